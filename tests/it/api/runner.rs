//! Tests of the whole path on the CPU: against llama.cpp, and with and without cache, chunks and
//! batches.

use std::fs;

use inkstone::{
    CacheType, Error, GenerateOptions, LmRunner, LogitsFor, Message, Runner, RunnerBuilder, SamplerOptions, StopReason,
    chat::ChatOptions, tokenizer::SpecialTokens,
};

use crate::support::{
    gguf_file::Folder,
    on_cpu,
    tiny::{EXACT, MODELS, Tiny, argmax, nmse, with_template},
};

/// The tolerance for rounding in another order in f32.
const ROUNDING: f64 = 1e-10;

fn exact() -> RunnerBuilder {
    on_cpu().cache_type(CacheType::F32)
}

fn qwen3() -> Runner {
    exact().from_gguf(MODELS[0].path()).unwrap()
}

/// Where llama.cpp itself rounds, transformers shows whether the difference is only rounding.
#[test]
fn logits_match_transformers() {
    let mut compared = 0;
    for tiny in MODELS {
        let expected = tiny.expected();
        let Some(rows) = expected.transformers else { continue };
        let mut runner = exact().from_gguf(tiny.path()).unwrap();
        let text = [expected.prompt.as_slice(), &expected.greedy].concat();
        for (ids, row) in [&expected.prompt, &text].into_iter().zip(&rows) {
            let error = nmse(&runner.predict_logits(ids).unwrap(), row);
            assert!(error <= EXACT, "{} after {} ids: {error:.1e}", tiny.0, ids.len());
        }
        compared += 1;
    }
    assert_eq!(compared, 39);
}

/// Feeds the oracle's ids, and compares the chosen id of each step with the oracle's unless
/// rounding can explain a difference.
fn follow_oracle(tiny: Tiny, cache_type: CacheType, tolerance: f64) {
    let mut runner = exact().cache_type(cache_type).from_gguf(tiny.path()).unwrap();
    let expected = tiny.expected();
    let deviation = 3.0;
    let least_gap = 10.0 * tolerance.sqrt() * deviation;
    let mut logits = runner.predict_logits(&expected.prompt).unwrap();
    let error = nmse(&logits, &expected.prompt_logits);
    assert!(error <= tolerance, "{} after the prompt, {cache_type:?}: {error:.1e}", tiny.0);
    let mut compared = 0;
    for (&id, &gap) in expected.greedy.iter().zip(&expected.gaps) {
        if f64::from(gap) > least_gap {
            assert_eq!(argmax(&logits), id, "{}, {cache_type:?}", tiny.0);
            compared += 1;
        }
        logits = runner.decode(id).unwrap().to_vec();
    }
    // Of the 40 gaps fewer are large enough for a large tolerance.
    let least_steps = if tolerance < 1e-4 { 30 } else { 15 };
    assert!(compared >= least_steps, "{}: {compared} steps compared", tiny.0);
    let error = nmse(&logits, &expected.end_logits);
    assert!(error <= tolerance, "{} in the end, {cache_type:?}: {error:.1e}", tiny.0);
}

#[test]
fn logits_and_greedy_ids_match_llama_cpp() {
    for tiny in MODELS {
        follow_oracle(tiny, CacheType::F32, tiny.1);
        // Many layers amplify what a cache in f16 rounds: in llama.cpp it changes the logits of
        // exaone4_windows by up to 1e-3 and those of exaone4, which has 4 layers, by 1e-7. Rounding
        // can also exchange experts of equal weight for an earlier token.
        let runner = exact().from_gguf(tiny.path()).unwrap();
        let layers = &runner.config().layers;
        let of_cache = match layers.len() {
            64.. => 1e-3,
            _ if layers.iter().any(|layer| layer.experts.is_some()) => 1e-4,
            _ => 5e-5,
        };
        follow_oracle(tiny, CacheType::F16, tiny.1 + of_cache);
    }
}

#[test]
fn generated_ids_match_llama_cpp() {
    let expected = MODELS[0].expected();
    let mut runner = qwen3();
    let mut seen = vec![];
    let mut collect = |id| {
        seen.push(id);
        true
    };
    assert_eq!(runner.generate_ids(&expected.prompt, 40, &mut collect).unwrap(), expected.greedy);
    assert_eq!(seen, expected.greedy);
    assert!(runner.generate_ids(&expected.prompt, 0, |_| panic!()).unwrap().is_empty());
    let mut left = 3;
    let stopped = runner.generate_ids(&expected.prompt, 40, |_| {
        left -= 1;
        left > 0
    });
    assert_eq!(stopped.unwrap(), &expected.greedy[..3]);
}

#[test]
fn cached_logits_match_recomputed_logits() {
    for tiny in MODELS {
        let expected = tiny.expected();
        let mut cached = exact().from_gguf(tiny.path()).unwrap();
        let mut recomputed = exact().recompute(true).from_gguf(tiny.path()).unwrap();
        for &id in expected.prompt.iter().chain(&expected.greedy) {
            let error = nmse(cached.decode(id).unwrap(), recomputed.decode(id).unwrap());
            assert!(error <= ROUNDING, "{} after {} ids: {error:.1e}", tiny.0, cached.tokens().len());
        }
        assert_eq!(cached.tokens(), recomputed.tokens());
    }
}

#[test]
fn logits_do_not_depend_on_the_prefill_chunk() {
    for tiny in MODELS {
        let prompt = tiny.expected().prompt;
        let whole = exact().from_gguf(tiny.path()).unwrap().predict_logits(&prompt).unwrap();
        for chunk in [1, 7, 64, 69] {
            let logits = exact().prefill_chunk(chunk).from_gguf(tiny.path()).unwrap().predict_logits(&prompt).unwrap();
            let error = nmse(&logits, &whole);
            assert!(error <= ROUNDING, "{} in chunks of {chunk}: {error:.1e}", tiny.0);
        }
    }
}

#[test]
fn ragged_batch_matches_single_sequences() {
    let expected = MODELS[0].expected();
    let mut runner = qwen3();
    let vocab_size = runner.config().vocab_size;
    let (a, b, c) = (&expected.prompt[..65], &expected.prompt[3..4], &expected.greedy[..20]);
    let one_by_one = [a, b, c].map(|ids| runner.predict_logits(ids).unwrap());
    let decoder = runner.decoder_mut();
    let [first, second, third] = [(); 3].map(|()| decoder.open());
    // Some tokens come earlier, so that the runs start at different positions; the last run returns
    // all rows.
    decoder.step(&[(first, &a[..40], LogitsFor::None), (third, &c[..1], LogitsFor::None)]).unwrap();
    let batch = [(first, &a[40..], LogitsFor::Last), (second, b, LogitsFor::Last), (third, &c[1..], LogitsFor::All)];
    let logits = decoder.step(&batch).unwrap();
    let rows: Vec<_> = logits.chunks(vocab_size).collect();
    assert_eq!(rows.len(), 2 + 19);
    for (row, alone) in [rows[0], rows[1], rows[20]].iter().zip(&one_by_one) {
        assert!(nmse(row, alone) <= ROUNDING);
    }
    let middle = rows[10].to_vec();
    assert!(nmse(&middle, &runner.predict_logits(&c[..10]).unwrap()) <= ROUNDING);
}

#[test]
fn forks_and_truncation_keep_the_shared_prefix() {
    let expected = MODELS[0].expected();
    let (prompt, other) = (&expected.prompt, [5, 6, 7]);
    let mut runner = qwen3();
    let plain = runner.predict_logits(&[prompt.as_slice(), &[9]].concat()).unwrap();
    let branched = runner.predict_logits(&[prompt.as_slice(), &other].concat()).unwrap();
    runner.predict_logits(prompt).unwrap();
    let sequence = runner.sequence();
    let twin = runner.decoder_mut().fork(sequence).unwrap();
    let logits = runner.decoder_mut().step(&[(twin, &other, LogitsFor::Last)]).unwrap();
    assert!(nmse(logits, &branched) <= ROUNDING);
    assert!(nmse(runner.decode(9).unwrap(), &plain) <= ROUNDING);
    runner.decoder_mut().close(twin).unwrap();

    runner.truncate(prompt.len()).unwrap();
    assert_eq!(runner.tokens(), prompt);
    assert!(nmse(runner.prefill(&other).unwrap(), &branched) <= ROUNDING);
    runner.reset();
    assert!(runner.tokens().is_empty());
}

#[test]
fn q8_0_cache_logits_are_close() {
    let expected = MODELS[0].expected();
    let mut runner = exact().cache_type(CacheType::Q8_0).from_gguf(MODELS[0].path()).unwrap();
    let error = nmse(&runner.predict_logits(&expected.prompt).unwrap(), &expected.prompt_logits);
    assert!((1e-8..1e-3).contains(&error), "{error:.1e}");
    let error = exact().cache_type(CacheType::Q8_0).from_gguf(MODELS[2].path()).unwrap_err();
    assert!(error.to_string().contains("multiple of 32"), "{error}");
}

#[test]
fn generation_yields_pieces_and_caches_turns() {
    let mut runner = qwen3();
    let sampler = SamplerOptions { seed: Some(7), temperature: 1.5, ..Default::default() };
    let options = GenerateOptions { sampler, max_tokens: Some(20), ..Default::default() };
    let mut generation = runner.generate("once upon a time", &options).unwrap();
    let text: String = generation.by_ref().map(Result::unwrap).collect();
    let (prompt, ids) = (generation.prompt().to_vec(), generation.ids().to_vec());
    let summary = generation.summary().clone();
    assert_eq!((summary.prompt_tokens, summary.cached_tokens), (prompt.len(), 0));
    assert_eq!(summary.generated_tokens, ids.len());
    assert!(!text.is_empty() && summary.prefill_tokens_per_second() > 0.0 && summary.decode_tokens_per_second() > 0.0);
    assert_eq!(runner.tokenizer().encode_prompt("once upon a time").unwrap(), prompt);
    assert_eq!(runner.tokens(), [prompt.as_slice(), &ids[..ids.len() - 1]].concat());

    // The same prompt again, which is in the cache except for its last token.
    let mut again = runner.generate("once upon a time", &options).unwrap();
    assert_eq!(again.by_ref().map(Result::unwrap).collect::<String>(), text);
    assert_eq!(again.summary().cached_tokens, prompt.len() - 1);
}

#[test]
fn continued_conversation_computes_only_new_messages() {
    // The comment at the end absorbs the spaces that pad the key.
    let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                    {% if think is defined %}{{ think }}{% endif %}<|im_start|>assistant\n{# -#}";
    let folder = Folder::new();
    let mut runner = exact().from_gguf(folder.write("chat.gguf", with_template(MODELS[0], template))).unwrap();
    // An end-of-generation token would end the first answer early.
    let ends = runner.tokenizer().end_of_generation().iter().map(|&id| (id, f32::NEG_INFINITY)).collect();
    let sampler = SamplerOptions { logit_bias: ends, ..SamplerOptions::greedy() };
    let options = GenerateOptions { max_tokens: Some(8), sampler, ..Default::default() };
    let mut messages = vec![Message::user("tell me about the fox")];
    let mut generation = runner.chat(&messages, &options).unwrap();
    let answer: String = generation.by_ref().map(Result::unwrap).collect();
    let prompt = generation.generation().prompt().to_vec();
    let tokenizer = runner.tokenizer();
    let rendered = "<|im_start|>user\ntell me about the fox<|im_end|>\n<|im_start|>assistant\n";
    assert_eq!(tokenizer.encode(rendered, SpecialTokens::Parse).unwrap(), prompt);
    assert_eq!(prompt.iter().filter(|&&id| tokenizer.is_end_of_generation(id)).count(), 1);

    messages.extend([Message::assistant(answer), Message::user("and the dog?")]);
    let mut generation = runner.chat(&messages, &options).unwrap();
    generation.prefill(|_, _| true).unwrap();
    assert!(generation.summary().cached_tokens >= prompt.len());

    let chat = ChatOptions::default().variable("think", "hm");
    let thoughtful = runner.chat_with(&messages, &chat, &options).unwrap().generation().prompt().to_vec();
    assert!(runner.tokenizer().decode(&thoughtful).unwrap().contains("\nhm"));
}

#[test]
fn clones_on_threads_give_the_same_text() {
    let runner = qwen3();
    let options = |seed| GenerateOptions {
        sampler: SamplerOptions { seed: Some(seed), temperature: 1.5, ..Default::default() },
        max_tokens: Some(15),
        ..Default::default()
    };
    let text = |runner: &mut Runner, seed: u64| -> String {
        runner.generate(format!("once upon {seed} times"), &options(seed)).unwrap().map(Result::unwrap).collect()
    };
    let together: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|seed| {
                let mut runner = runner.clone();
                scope.spawn(move || text(&mut runner, seed))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (seed, together) in together.iter().enumerate() {
        assert_eq!(&text(&mut qwen3(), seed as u64), together);
    }
}

#[test]
fn end_of_generation_ends_ids_and_text() {
    let mut runner = qwen3();
    let end = runner.tokenizer().end_of_generation()[0];
    let bias = (end, 1e6);
    let sampler = SamplerOptions { logit_bias: vec![bias], ..SamplerOptions::greedy() };
    let mut generation = runner.generate("the end", &GenerateOptions { sampler, ..Default::default() }).unwrap();
    assert!(generation.next().is_none());
    assert_eq!(generation.summary().stop, StopReason::EndOfGeneration(end));
}

#[test]
fn memory_plan_is_available_before_loading() {
    let path = MODELS[0].path();
    let builder = exact().context_length(130).prefill_chunk(16);
    let plan = builder.plan(&path).unwrap();
    // Two layers with a key and a value of 32 floats, 90,560 weights in the file, and pages of 64
    // tokens.
    assert_eq!((plan.cache_per_token, plan.weights, plan.cache()), (2 * 2 * 32 * 4, 90_560 * 4, 3 * 64 * 512));
    assert!(plan.scratch >= 16 * 320 * 4);
    assert_eq!(plan.total(), plan.weights + plan.scratch + plan.cache());
    assert_eq!(*builder.clone().memory_limit(plan.total()).from_gguf(&path).unwrap().memory(), plan);
    let error = builder.memory_limit(plan.total() - 1).from_gguf(&path).unwrap_err();
    assert!(matches!(error, Error::Memory { needed, .. } if needed == plan.total()), "{error}");
}

/// The limit has room for one full sequence; the error of two in a step names the cache and its
/// limit, and one after the other has it.
#[test]
fn full_cache_is_refused_by_name() {
    let builder = exact().context_length(128);
    let plan = builder.plan(MODELS[0].path()).unwrap();
    let mut runner = builder.memory_limit(plan.total()).from_gguf(MODELS[0].path()).unwrap();
    let expected = runner.prefill(&[1; 128]).unwrap().to_vec();
    let full = runner.decode(1).unwrap_err();
    assert!(matches!(full, Error::ContextFull { tokens: 1, free: 0, context: 128, .. }), "{full}");
    let first = runner.sequence();
    let decoder = runner.decoder_mut();
    let other = decoder.open();
    decoder.truncate(first, 127).unwrap();
    let error = decoder.step(&[(first, &[1], LogitsFor::Last), (other, &[1], LogitsFor::Last)]).unwrap_err();
    let Error::Memory { what: "the KV cache", needed, limit } = error else { panic!("{error}") };
    assert_eq!((needed, limit), (plan.cache() * 3 / 2, plan.cache()));
    assert!(error.to_string().contains("close sequences"), "{error}");
    decoder.step(&[(other, &[1; 70], LogitsFor::Last)]).unwrap();
    assert!(decoder.step(&[(first, &[1], LogitsFor::Last)]).unwrap() == expected);
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    let refused = |builder: RunnerBuilder, what: &str| {
        let error = builder.from_gguf(MODELS[0].path()).unwrap_err();
        assert!(matches!(&error, Error::Argument { name, .. } if *name == what), "{error:?}");
    };
    refused(exact().context_length(513), "context_length");
    refused(exact().context_length(0), "context_length");
    refused(exact().prefill_chunk(0), "prefill_chunk");
    refused(exact().prefill_chunk(usize::MAX), "prefill_chunk");
    refused(exact().threads(0), "threads");
    assert_eq!(qwen3().context_length(), 512);
}

#[test]
fn invalid_requests_are_refused_and_leave_the_sequence_unchanged() {
    let mut runner = exact().context_length(40).from_gguf(MODELS[0].path()).unwrap();
    runner.prefill(&[1, 2, 3]).unwrap();
    let long = vec![1; 41];
    let vocabulary = [0, 320];
    for ids in [&[][..], &vocabulary] {
        assert!(matches!(runner.predict_logits(ids), Err(Error::Argument { name: "ids", .. })));
        assert!(matches!(runner.prefill(ids), Err(Error::Argument { name: "ids", .. })));
        assert!(matches!(runner.generate_ids(ids, 4, |_| true), Err(Error::Argument { name: "ids", .. })));
    }
    assert!(matches!(runner.predict_logits(&long), Err(Error::ContextFull { tokens: 41, free: 40, .. })));
    assert!(matches!(runner.prefill(&long), Err(Error::ContextFull { tokens: 41, free: 37, .. })));
    assert!(matches!(runner.generate_ids(&long, 4, |_| true), Err(Error::ContextFull { .. })));
    let options = GenerateOptions::default();
    assert!(matches!(runner.generate("", &options), Err(Error::Argument { name: "prompt", .. })));
    assert!(matches!(runner.generate("word ".repeat(400_000), &options), Err(Error::ContextFull { .. })));
    assert!(matches!(runner.chat(&[], &options), Err(Error::Argument { name: "messages", .. })));
    let error = runner.chat(&[Message::user("hello")], &options).unwrap_err();
    assert!(matches!(error, Error::ChatTemplate(_)), "{error}");
    assert_eq!(runner.tokens(), [1, 2, 3]);
}

#[test]
fn generate_ids_ends_at_the_end_of_the_context() {
    let mut runner = exact().context_length(10).from_gguf(MODELS[0].path()).unwrap();
    assert_eq!(runner.generate_ids(&MODELS[0].expected().prompt[..8], 40, |_| true).unwrap().len(), 3);
}

#[test]
fn every_model_implements_lm_runner() {
    fn assert_send<T: Send>() {}
    assert_send::<Runner>();
    let expected = MODELS[0].expected();
    let mut model: Box<dyn LmRunner> = Box::new(qwen3());
    assert_eq!((model.family(), model.vocab_size(), model.supports_multimodal()), ("qwen3", 320, false));
    let logits = model.predict_logits(&expected.prompt).unwrap();
    assert!(nmse(&logits, &expected.prompt_logits) <= MODELS[0].1);
    let ids = model.generate(&expected.prompt, 40, &mut |id| id != expected.greedy[4]).unwrap();
    assert_eq!(ids, &expected.greedy[..5]);
    let error = model.generate_multimodal("what is it?", &[0; 12], 2, 2, None, 4, &mut |_| true).unwrap_err();
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
}

#[test]
fn invalid_files_are_refused() {
    let folder = Folder::new();
    let sound = fs::read(MODELS[0].path()).unwrap();
    let missing = Runner::from_gguf(folder.path().join("missing.gguf")).unwrap_err();
    assert!(matches!(missing, Error::Io { .. }) && missing.to_string().contains("missing.gguf"), "{missing}");
    let directory = Runner::from_gguf(folder.path()).unwrap_err();
    assert!(directory.to_string().contains("is a directory"), "{directory}");
    let invalid: [&[u8]; 4] = [b"", b"a text, and not a model", &sound[..100], &sound[..sound.len() - 1]];
    for bytes in invalid {
        let path = folder.write("bad.gguf", bytes);
        let error = Runner::from_gguf(&path).unwrap_err();
        assert!(matches!(error, Error::InvalidFile { .. }) && error.to_string().contains("bad.gguf"), "{error}");
    }
}
