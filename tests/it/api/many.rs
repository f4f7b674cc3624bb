//! Tests of several texts at once: each equals the text of its request alone, and the common prefix
//! is computed once.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use inkstone::{
    CacheType, Completion, Decoder, Error, GenerateOptions, GenerateRequest, Generation, RunnerBuilder, SamplerOptions,
    StopHandle, StopReason,
    gguf::Gguf,
    internals::generate::{Limits, generate_many},
    tokenizer::Tokenizer,
};
use proptest::prelude::*;

use crate::support::{
    data, on_cpu,
    recorder::Recorder,
    tiny::{MODELS, RECURRENT},
};

const VOCAB: usize = 320;
const LIMITS: Limits = Limits { vocab_size: VOCAB, max_tokens: 7, max_outputs: 3 };
const CONTEXT: usize = 60;

/// Logits that differ for different histories; most of them favour letters, and some an end.
fn fingerprint(ids: &[u32]) -> Vec<f32> {
    let hash = ids.iter().fold(17u32, |hash, &id| hash.wrapping_mul(31).wrapping_add(id + 1));
    let logit = |i: u32| (hash.wrapping_mul(2 * i + 1) >> 8) as f32 / (1 << 24) as f32;
    (0..VOCAB as u32).map(|i| logit(i) + if (97..123).contains(&i) { 0.5 } else { 0.0 }).collect()
}

fn tokenizer() -> Tokenizer {
    Tokenizer::from_gguf(&Gguf::open(data("models/qwen3.gguf")).unwrap()).unwrap()
}

fn seeded(seed: u64, max_tokens: Option<usize>) -> GenerateOptions {
    let sampler = SamplerOptions { seed: Some(seed), temperature: 1.5, ..Default::default() };
    GenerateOptions { sampler, max_tokens, logprobs: Some(2), ..Default::default() }
}

fn greedy(max_tokens: usize) -> GenerateOptions {
    GenerateOptions { sampler: SamplerOptions::greedy(), max_tokens: Some(max_tokens), ..Default::default() }
}

/// Returns the text of one request by a separate generation.
fn alone(decoder: &mut Decoder, prompt: &[u32], options: &GenerateOptions) -> Completion {
    let tokenizer = tokenizer();
    let sequence = decoder.open();
    let request = GenerateRequest::new(prompt, options.clone());
    let mut one = generate_many(decoder, sequence, &tokenizer, [request], |_, _| true).unwrap().remove(0);
    let mut generation = Generation::new(decoder, sequence, prompt.to_vec(), &tokenizer, options).unwrap();
    one.text = generation.by_ref().map(Result::unwrap).collect();
    one.ids = generation.ids().to_vec();
    one.logprobs = generation.logprobs().to_vec();
    one.summary = generation.summary().clone();
    one
}

fn assert_same(found: &Completion, expected: &Completion, what: &str) {
    let of = |c: &Completion| (c.ids.clone(), c.text.clone(), c.logprobs.clone(), c.summary.stop.clone());
    assert_eq!(of(found), of(expected), "{what}");
    let (found, expected) = (&found.summary, &expected.summary);
    assert_eq!((found.prompt_tokens, found.generated_tokens), (expected.prompt_tokens, expected.generated_tokens));
}

fn options() -> impl Strategy<Value = GenerateOptions> {
    let stops = prop::collection::vec("[a-z]{1,2}", 0..3);
    let logprobs = prop::option::of(0..3usize);
    (any::<Option<u64>>(), prop::option::of(0..40usize), stops, logprobs, -1..2).prop_map(
        |(seed, max_tokens, stop, logprobs, penalty)| {
            let options = seed.map_or(greedy(0), |seed| seeded(seed, None));
            let sampler = SamplerOptions { presence_penalty: penalty as f32, ..options.sampler };
            GenerateOptions { max_tokens, stop, logprobs, sampler, ..options }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// For any common prefixes and ends of texts; pieces arrive in order and form the texts.
    #[test]
    fn batched_texts_equal_single_texts(
        common in prop::collection::vec(0..256u32, 0..20),
        requests in prop::collection::vec((prop::collection::vec(0..4u32, 0..12), options()), 0..9),
        recurrent: bool,
    ) {
        let recorder = || {
            let recorder = Recorder::new(LIMITS, fingerprint).windowed(9).sorting();
            if recurrent { recorder.recurrent() } else { recorder }
        };
        let prompt = |own: &[u32]| [common.as_slice(), &[65], own].concat();
        let mut decoder = recorder().into_decoder(CONTEXT);
        let sequence = decoder.open();
        let pieces = RefCell::new(vec![String::new(); requests.len()]);
        let several = requests.iter().map(|(own, options)| GenerateRequest::new(prompt(own), options.clone()));
        let texts = generate_many(&mut decoder, sequence, &tokenizer(), several, |index, piece| {
            assert!(!piece.is_empty());
            pieces.borrow_mut()[index] += piece;
            true
        }).unwrap();
        prop_assert_eq!(texts.len(), requests.len());
        for (((own, options), text), pieces) in requests.iter().zip(&texts).zip(pieces.into_inner()) {
            assert_same(text, &alone(&mut recorder().into_decoder(CONTEXT), &prompt(own), options), "a text");
            prop_assert_eq!(&text.text, &pieces);
        }
        prop_assert_eq!(open_sequences(&decoder), 1);
    }
}

fn open_sequences(decoder: &Decoder) -> usize {
    let text = format!("{decoder:?}");
    let (_, rest) = text.split_once("sequences: ").unwrap();
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

/// A device that counts computed tokens and steps.
fn counting() -> (Decoder, Arc<AtomicUsize>) {
    let recorder = Recorder::new(Limits { max_tokens: 64, ..LIMITS }, fingerprint);
    let computed = recorder.computed();
    (recorder.into_decoder(200), computed)
}

#[test]
fn common_prefix_is_computed_once() {
    let (mut decoder, computed) = counting();
    let sequence = decoder.open();
    let common: Vec<u32> = (0..100).collect();
    let requests = (0..8).map(|n| ([common.as_slice(), &[n, n, n]].concat(), greedy(1)));
    let texts = generate_many(&mut decoder, sequence, &tokenizer(), requests, |_, _| true).unwrap();
    assert_eq!(computed.load(Relaxed), 100 + 8 * 3);
    assert!(texts.iter().all(|text| text.summary.cached_tokens == 100 && text.summary.prompt_tokens == 103));
    assert_eq!(decoder.tokens(sequence).unwrap(), common);

    // The next call reuses the prefix except for the last token.
    computed.store(0, Relaxed);
    let requests = (0..3).map(|n| ([common.as_slice(), &[n + 50]].concat(), greedy(1)));
    generate_many(&mut decoder, sequence, &tokenizer(), requests, |_, _| true).unwrap();
    assert_eq!(computed.load(Relaxed), 1 + 3);
    assert_eq!(open_sequences(&decoder), 1);
}

#[test]
fn callback_ends_only_its_text() {
    let (mut decoder, _) = counting();
    let sequence = decoder.open();
    let requests = (0..5).map(|n| (vec![n; 4], greedy(9)));
    let mut seen = [0; 5];
    let texts = generate_many(&mut decoder, sequence, &tokenizer(), requests, |index, _| {
        seen[index] += 1;
        index != 2
    });
    for (index, text) in texts.unwrap().iter().enumerate() {
        assert_eq!(text.summary.stop == StopReason::Caller, index == 2, "{:?}", text.summary);
        assert_eq!(index == 2, seen[index] == 1 && text.ids.len() < 9);
    }
}

#[test]
fn handles_stop_waiting_texts() {
    let (mut decoder, computed) = counting();
    let sequence = decoder.open();
    let (all, one) = (StopHandle::new(), StopHandle::new());
    one.stop();
    let requests = || {
        (0..9).map(|n| {
            let request = GenerateRequest::new(vec![n; 4], greedy(9)).with_stop_handle(all.clone());
            if n == 8 { request.with_stop_handle(one.clone()) } else { request }
        })
    };
    let texts = generate_many(&mut decoder, sequence, &tokenizer(), requests(), |_, _| true).unwrap();
    let stopped: Vec<_> = texts.iter().map(|text| text.summary.stop == StopReason::Caller).collect();
    assert_eq!(stopped, [false, false, false, false, false, false, false, false, true]);
    assert!(texts[8].ids.is_empty());
    computed.store(0, Relaxed);
    all.stop();
    let texts = generate_many(&mut decoder, sequence, &tokenizer(), requests(), |_, _| true).unwrap();
    assert!(texts.iter().all(|text| text.ids.is_empty() && text.summary.stop == StopReason::Caller));
    assert_eq!(computed.load(Relaxed), 0);
}

#[test]
fn processors_apply_only_to_their_text() {
    let (mut decoder, _) = counting();
    let sequence = decoder.open();
    let requests = (0..6u32).map(|n| {
        GenerateRequest::new(vec![1, 2, 3], greedy(4)).with_processor(move |ids: &[u32], logits: &mut [f32]| {
            assert_eq!(ids[..3], [1, 2, 3]);
            logits[(65 + n) as usize] += 100.0;
            Ok(())
        })
    });
    let texts = generate_many(&mut decoder, sequence, &tokenizer(), requests, |_, _| true).unwrap();
    let texts: Vec<_> = texts.iter().map(|text| text.text.as_str()).collect();
    assert_eq!(texts, ["AAAA", "BBBB", "CCCC", "DDDD", "EEEE", "FFFF"]);
}

#[test]
fn errors_name_the_request_and_close_all_sequences() {
    let refused = |decoder: &mut Decoder, bad: GenerateRequest<'static>| {
        let sequence = decoder.open();
        let good = || GenerateRequest::new(vec![1, 2], greedy(5));
        let result = generate_many(decoder, sequence, &tokenizer(), [good(), bad, good()], |_, _| true);
        decoder.close(sequence).unwrap();
        assert_eq!(open_sequences(decoder), 0);
        match result.unwrap_err() {
            Error::Request { index: 1, error } => *error,
            other => panic!("{other:?}"),
        }
    };
    let (mut decoder, computed) = counting();
    let long = refused(&mut decoder, GenerateRequest::new(vec![1; 201], greedy(5)));
    assert!(matches!(long, Error::ContextFull { tokens: 201, .. }));
    let empty = refused(&mut decoder, GenerateRequest::new("", greedy(5)));
    assert!(matches!(empty, Error::Argument { name: "prompt", .. }));
    let sampler = SamplerOptions { temperature: -1.0, ..Default::default() };
    let options = GenerateOptions { sampler, ..greedy(5) };
    assert!(refused(&mut decoder, GenerateRequest::new(vec![1], options)).to_string().contains("temperature"));
    assert_eq!(computed.load(Relaxed), 0);
    let failing = |ids: &[u32], _: &mut [f32]| match ids.len() {
        0..4 => Ok(()),
        _ => Err(Error::Unsupported("on purpose".into())),
    };
    let late = refused(&mut decoder, GenerateRequest::new(vec![1, 2], greedy(5)).with_processor(failing));
    assert!(matches!(late, Error::Unsupported(_)));
}

#[test]
fn device_errors_close_all_sequences() {
    for steps in 0..5 {
        let recorder = Recorder::new(LIMITS, fingerprint).failing_after(steps);
        let mut decoder = recorder.into_decoder(CONTEXT);
        let sequence = decoder.open();
        let requests = || (0..4).map(|n| (vec![7, 7, n], greedy(3)));
        let failed = generate_many(&mut decoder, sequence, &tokenizer(), requests(), |_, _| true);
        assert!(matches!(failed, Err(Error::Unsupported(_))), "after {steps} steps: {failed:?}");
        assert_eq!(open_sequences(&decoder), 1);
        let texts = generate_many(&mut decoder, sequence, &tokenizer(), requests(), |_, _| true).unwrap();
        assert_eq!(texts.len(), 4);
    }
}

#[test]
fn callback_panic_closes_all_sequences() {
    let (mut decoder, _) = counting();
    let sequence = decoder.open();
    let requests = (0..4).map(|n| (vec![n], greedy(3)));
    let run = || generate_many(&mut decoder, sequence, &tokenizer(), requests, |_, _| panic!("on purpose"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
    assert_eq!(open_sequences(&decoder), 1);
}

/// Compares texts of real models alone and at once, including every bit of their log-probabilities.
fn compare(builder: &RunnerBuilder, path: &std::path::Path, exact: bool) {
    let prompts = ["the fox", "the fox and the hen", "the fox and the owl went to the wood, and then", "a dog", "the"];
    let mut runner = builder.from_gguf(path).unwrap();
    // More texts than can run at once.
    let requests: Vec<_> = (0..18)
        .map(|n| (prompts[n % 5], if n % 3 == 0 { greedy(2 + n) } else { seeded(n as u64, Some(20 - n)) }))
        .collect();
    let requests: Vec<_> = requests
        .into_iter()
        .map(|(prompt, options)| (prompt, GenerateOptions { logprobs: Some(3), ..options }))
        .collect();
    let together = runner.generate_many(requests.iter().map(|(p, o)| (*p, o)), |_, _| true).unwrap();
    for ((prompt, options), together) in requests.iter().zip(&together) {
        runner.reset();
        let mut generation = runner.generate(*prompt, options).unwrap();
        let text: String = generation.by_ref().map(Result::unwrap).collect();
        let what = format!("{}: {prompt}", path.display());
        assert_eq!(together.text, text, "{what}");
        assert_eq!((&together.ids, &together.summary.stop), (&generation.ids().to_vec(), &generation.summary().stop));
        if exact {
            assert_eq!(together.logprobs, generation.logprobs(), "{what}");
        }
    }
}

#[test]
fn batched_texts_of_real_models_equal_single_texts() {
    for tiny in MODELS {
        compare(&on_cpu(), &tiny.path(), true);
    }
}

#[test]
fn batched_texts_of_the_storyteller_equal_single_texts() {
    let path = data("storyteller/storyteller.gguf");
    let builder = on_cpu();
    compare(&builder.cache_type(CacheType::Q8_0), &path, true);
}

#[cfg(any(feature = "wgpu", feature = "metal"))]
#[test]
fn batched_texts_on_gpus_equal_single_texts() {
    for info in inkstone::internals::backend::webgpu::Gpu::adapters() {
        let device = inkstone::Device::Gpu(inkstone::Adapter::Named(info.name));
        for tiny in [MODELS[0], RECURRENT] {
            compare(&inkstone::Runner::builder().device(device.clone()), &tiny.path(), false);
        }
    }
}

/// With memory for one context, some texts wait, and suspended texts continue later.
#[test]
fn texts_wait_for_free_memory() {
    for tiny in [MODELS[0], RECURRENT, MODELS[8]] {
        let builder = on_cpu().context_length(130).prefill_chunk(16);
        let limit = builder.plan(tiny.path()).unwrap().total();
        let mut runner = builder.memory_limit(limit).from_gguf(tiny.path()).unwrap();
        let ids = tiny.expected().prompt;
        // Some texts continue to the end of the context, which takes all memory.
        let requests: Vec<_> =
            (0..6).map(|n| (&ids[..20 + 8 * n], seeded(n as u64, (n % 2 == 0).then_some(60)))).collect();
        let texts = runner.generate_many(requests.iter().map(|(p, o)| (*p, o)), |_, _| true).unwrap();
        assert!(texts.iter().any(|text| text.summary.stop == StopReason::ContextEnd));
        for ((prompt, options), text) in requests.iter().zip(texts) {
            runner.reset();
            let mut generation = runner.generate(*prompt, options).unwrap();
            let expected: String = generation.by_ref().map(Result::unwrap).collect();
            assert_eq!(text.text, expected, "{}, {} ids", tiny.0, prompt.len());
            assert_eq!(text.summary.stop, generation.summary().stop);
        }
    }
}

#[cfg(feature = "constrained")]
#[test]
fn batched_texts_have_separate_grammars() {
    let mut runner = on_cpu().from_gguf(MODELS[0].path()).unwrap();
    let forms = ["[0-9]{4}", "(yes|no)", "x{3}"].map(|form| runner.grammars().unwrap().regex(form).unwrap());
    let requests =
        forms.into_iter().cycle().take(9).enumerate().map(|(seed, grammar)| {
            ("the fox", GenerateOptions { grammar: Some(grammar), ..seeded(seed as u64, None) })
        });
    let requests: Vec<_> = requests.collect();
    let together = runner.generate_many(requests.clone(), |_, _| true).unwrap();
    for ((prompt, options), together) in requests.iter().zip(together) {
        let alone: String = runner.generate(*prompt, options).unwrap().map(Result::unwrap).collect();
        assert_eq!(together.text, alone);
        assert!(!alone.is_empty());
    }
}

#[cfg(feature = "async")]
#[test]
fn async_generate_many_returns_all_texts() {
    use futures::executor::block_on;
    let mut runner = on_cpu().from_gguf(MODELS[0].path()).unwrap();
    let requests = || (0..5).map(|seed| ("the fox", seeded(seed, Some(8))));
    let expected = runner.generate_many(requests(), |_, _| true).unwrap();
    let runner = inkstone::AsyncRunner::new(runner).unwrap();
    let (sender, pieces) = std::sync::mpsc::channel();
    let send = move |index, piece: &str| sender.send((index, piece.to_owned())).is_ok();
    let texts = block_on(runner.generate_many(requests(), send)).unwrap();
    for (text, expected) in texts.iter().zip(&expected) {
        assert_same(text, expected, "async");
    }
    let mut joined = vec![String::new(); 5];
    pieces.into_iter().for_each(|(index, piece)| joined[index] += &piece);
    assert_eq!(joined, expected.iter().map(|text| text.text.clone()).collect::<Vec<_>>());

    // The future is dropped while its texts, which would not end, are generated.
    let ends = runner.model().tokenizer().end_of_generation().iter().map(|&id| (id, f32::NEG_INFINITY)).collect();
    let sampler = SamplerOptions { logit_bias: ends, ..SamplerOptions::greedy() };
    let endless = GenerateOptions { sampler, max_tokens: None, ..Default::default() };
    let (sender, pieces) = std::sync::mpsc::channel();
    let send = move |index, _: &str| sender.send(index).is_ok();
    let reply = runner.generate_many([("the fox", &endless), ("a hen", &endless)], send);
    pieces.recv().unwrap();
    drop(reply);
    block_on(runner.call(|_| Ok(()))).unwrap();
    assert!(pieces.into_iter().count() < 800);
}
