//! Tests the small trained model in the repository: its text is llama.cpp's, and its perplexity in
//! every format is close to that in f32.

use std::{fs, path::PathBuf};

use inkstone::{
    CacheType, DType, Decoder, GenerateOptions, LogitsFor, Message, RunnerBuilder, SamplerOptions, StopReason,
    chat::ChatOptions,
    gguf::Gguf,
    internals::{
        backend::{Backend, cpu::Cpu},
        generate::Limits,
        kv_cache::{CacheLayout, KvCache},
        models::Model,
        quant,
        weights::Weights,
    },
    tokenizer::SpecialTokens,
};
use serde_json::Value;

use crate::support::{data, on_cpu, quantize::quantize, tiny::argmax};

fn file() -> PathBuf {
    data("storyteller/storyteller.gguf")
}

/// Returns the model's tensors with every matrix in another format, and the same rounded weights in
/// f32.
fn requantized(gguf: &Gguf, dtype: DType) -> [Weights; 2] {
    let weights = Weights::from_gguf(gguf);
    let (mut packed, mut widened) = (vec![], vec![]);
    for tensor in gguf.tensors() {
        let weight = weights.get(&tensor.name, &tensor.shape).unwrap();
        let mut values = vec![0.0; tensor.elements()];
        quant::dequantize_row(weight.dtype, &weight.bytes(), &mut values).unwrap();
        let dtype = if tensor.shape.len() == 1 { DType::F32 } else { dtype };
        // With a scale, the largest of a matrix's own scales is the largest that the format has.
        let peak = values.iter().fold(0.0, |peak: f32, x| peak.max(x.abs()));
        let is_scaled = dtype == DType::NVFP4 && tensor.name != "token_embd.weight";
        let scale = if is_scaled { peak / (6.0 * 448.0) } else { 1.0 };
        values.iter_mut().for_each(|x| *x /= scale);
        let bytes = quantize(dtype, &values);
        quant::dequantize_row(dtype, &bytes, &mut values).unwrap();
        if is_scaled {
            values.iter_mut().for_each(|x| *x *= scale);
            let name = tensor.name.replace(".weight", ".scale");
            packed.push((name, DType::F32, vec![1], scale.to_le_bytes().to_vec()));
        }
        packed.push((tensor.name.clone(), dtype, tensor.shape.clone(), bytes));
        widened.push((tensor.name.clone(), DType::F32, tensor.shape.clone(), quantize(DType::F32, &values)));
    }
    [packed, widened].map(|tensors| Weights::from_memory(tensors).unwrap())
}

/// Returns the perplexity of `ids`: of each id but the first, given the ids before it.
fn perplexity(gguf: &Gguf, weights: &Weights, cache_type: CacheType, ids: &[u32]) -> f64 {
    let Model { config, graph, .. } = Model::from_gguf(gguf, weights).unwrap();
    let layout = CacheLayout::new(&graph, cache_type).unwrap();
    let limits = Limits { vocab_size: config.vocab_size, max_tokens: 64, max_outputs: 64 };
    let executable = Cpu::new(Some(2)).unwrap().compile(&graph, weights, &layout, 64, 64).unwrap();
    let mut decoder = Decoder::new(executable, KvCache::new(&layout, config.context_length), limits);
    let sequence = decoder.open();
    let mut surprise = 0.0;
    let mut next = ids[1..].iter();
    for chunk in ids[..ids.len() - 1].chunks(64) {
        let logits = decoder.step(&[(sequence, chunk, LogitsFor::All)]).unwrap();
        for (row, &id) in logits.chunks_exact(limits.vocab_size).zip(&mut next) {
            let total: f64 = row.iter().map(|&logit| f64::from(logit).exp()).sum();
            surprise += total.ln() - f64::from(row[id as usize]);
        }
    }
    (surprise / (ids.len() - 1) as f64).exp()
}

/// Returns the reference outputs; tests/data/storyteller/README.md says how they were made.
fn expected() -> Value {
    serde_json::from_str(&fs::read_to_string(data("storyteller/expected.json")).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn floats(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

#[test]
fn greedy_ids_are_the_references() {
    check_greedy_ids(on_cpu());
}

/// Checks that after each of llama.cpp's greedy ids, the best id is that of an f64 reference, if
/// its lead over the second exceeds the error of int8 activations.
pub fn check_greedy_ids(builder: RunnerBuilder) {
    const LEAD: f64 = 0.5;
    let mut runner = builder.cache_type(CacheType::F32).from_gguf(file()).unwrap();
    for case in expected()["generate"].as_array().unwrap() {
        let mut logits = runner.predict_logits(&ids(&case["prompt_ids"])).unwrap();
        let mut compared = 0;
        // After the end of a story, which the model was not trained on, rounding decides.
        let until_stop = case["until_stop"].as_u64().unwrap() as usize;
        let reference = ids(&case["f64_ids"]).into_iter().zip(floats(&case["f64_gaps"]));
        for (id, (best, gap)) in ids(&case["ids"]).into_iter().zip(reference).take(until_stop) {
            if gap > LEAD {
                assert_eq!(argmax(&logits), best, "{}", case["prompt"]);
                compared += 1;
            }
            logits = runner.decode(id).unwrap().to_vec();
        }
        assert!(4 * compared >= 3 * until_stop, "{}: {compared} of {until_stop} compared", case["prompt"]);
    }
}

/// Prompts have llama.cpp's ids, and conversations transformers' text.
#[test]
fn prompts_and_conversations_are_the_references() {
    let runner = on_cpu().from_gguf(file()).unwrap();
    let parse = |text: &Value| runner.tokenizer().encode(text.as_str().unwrap(), SpecialTokens::Parse).unwrap();
    let expected = expected();
    for case in expected["generate"].as_array().unwrap() {
        assert_eq!(parse(&case["prompt"]), ids(&case["prompt_ids"]));
    }
    for case in expected["chat"].as_array().unwrap() {
        let message = |m: &Value| Message::new(m["role"].as_str().unwrap(), m["content"].as_str().unwrap());
        let messages: Vec<_> = case["messages"].as_array().unwrap().iter().map(message).collect();
        let options = ChatOptions::default().add_generation_prompt(case["add_generation_prompt"].as_bool().unwrap());
        assert_eq!(runner.chat_template().unwrap().render(&messages, &options).unwrap(), case["text"]);
        assert_eq!(parse(&case["text"]), ids(&case["ids"]));
    }
}

/// The perplexity in a format is that of the same rounded weights in f32, and not much above that
/// of the file's weights.
#[test]
fn perplexity_of_every_format_is_close_to_that_of_f32() {
    let gguf = Gguf::open(file()).unwrap();
    let held_out = &expected()["held_out"];
    let ids = ids(&held_out["ids"]);
    let reference = held_out["perplexity_q8_0"].as_f64().unwrap();
    for &dtype in DType::ALL {
        let margin = match dtype {
            DType::F32 => 1e-4,
            DType::F16 | DType::BF16 | DType::Q8_0 | DType::Q6_K => 0.01,
            DType::Q5_0 | DType::Q5_1 | DType::Q5_K => 0.03,
            DType::Q4_0 | DType::Q4_1 | DType::Q4_K | DType::IQ4_NL | DType::IQ4_XS | DType::MXFP4 => 0.08,
            DType::NVFP4 | DType::IQ3_S => 0.08,
            DType::Q3_K | DType::IQ3_XXS => 0.12,
            DType::Q2_K => 0.35,
            DType::IQ2_S => 0.6,
            DType::IQ2_XS => 1.5,
            DType::IQ2_XXS => 3.0,
            // Of other models than those trained in these formats, little is left.
            DType::IQ1_S | DType::IQ1_M | DType::TQ1_0 | DType::TQ2_0 | DType::Q1_0 | DType::Q2_0 => continue,
        };
        let [packed, widened] = requantized(&gguf, dtype);
        let found = perplexity(&gguf, &packed, CacheType::F16, &ids);
        let exact = perplexity(&gguf, &widened, CacheType::F32, &ids);
        assert!((found / exact - 1.0).abs() < 0.01, "{dtype}: {found} with packed weights, {exact} with widened");
        assert!((exact / reference - 1.0).abs() < margin, "{dtype}: {exact}, but the file's weights have {reference}");
    }
}

/// The text of `ask` is the text of the tokens after the message in the chat template.
#[test]
fn ask_returns_the_text_of_the_answer() {
    let mut runner = on_cpu().from_gguf(file()).unwrap();
    let text = runner.ask("Tell me a story about a fox and a lantern").unwrap();
    let ids = runner.tokens().to_vec();
    let prompt = "<|im_start|>user\nTell me a story about a fox and a lantern<|im_end|>\n<|im_start|>assistant\n";
    let prompt = runner.tokenizer().encode(prompt, SpecialTokens::Parse).unwrap();
    assert_eq!(ids[..prompt.len()], prompt);
    // The last token may not be in the sequence yet.
    assert!(text.starts_with(&runner.tokenizer().decode(&ids[prompt.len()..]).unwrap()), "{text}");
    assert!(text.contains("fox") && text.contains("lantern"), "{text}");
}

/// The story of the quick start's prompt mentions the prompt's nouns, with every seed.
#[test]
fn stories_mention_the_nouns_of_the_prompt() {
    let mut runner = on_cpu().from_gguf(file()).unwrap();
    for seed in 0..4 {
        let sampler = SamplerOptions { seed: Some(seed), ..Default::default() };
        let options = GenerateOptions { sampler, ..Default::default() };
        let prompt = [Message::user("Tell me a story about a fox and a lantern")];
        let mut generation = runner.chat(&prompt, &options).unwrap();
        let story: String = generation.by_ref().collect::<Result<_, _>>().unwrap();
        assert!(matches!(generation.summary().stop, StopReason::EndOfGeneration(_)), "{story}");
        assert!(story.contains("fox") && story.contains("lantern"), "{story}");
    }
}
