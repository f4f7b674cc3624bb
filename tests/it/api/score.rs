//! Tests of log-probabilities against a softmax in f64 over logits that are computed separately.

use inkstone::{
    CacheType, Error, GenerateOptions, Runner, SamplerOptions,
    sampler::{Logprobs, TokenLogprob},
};

use crate::support::{
    on_cpu,
    tiny::{MODELS, RECURRENT, Tiny},
};

fn runner(tiny: Tiny) -> Runner {
    on_cpu().cache_type(CacheType::F32).prefill_chunk(24).from_gguf(tiny.path()).unwrap()
}

/// Returns the log-probability of every token after `ids`.
fn log_softmax(runner: &mut Runner, ids: &[u32]) -> Vec<f64> {
    let logits: Vec<f64> = runner.predict_logits(ids).unwrap().iter().map(|&logit| logit.into()).collect();
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total = logits.iter().map(|logit| (logit - most).exp()).sum::<f64>().ln() + most;
    logits.iter().map(|logit| logit - total).collect()
}

fn assert_scores(found: &[Logprobs], ids: &[u32], from: usize, top: usize, reference: &mut Runner) {
    assert_eq!(found.len(), ids.len() - from);
    for (at, found) in (from..).zip(found) {
        let expected = log_softmax(reference, &ids[..at]);
        let close = |token: &TokenLogprob| (f64::from(token.logprob) - expected[token.id as usize]).abs() < 2e-4;
        assert_eq!(found.token.id, ids[at]);
        assert!(close(&found.token) && found.top.iter().all(close), "token {at}: {found:?}");
        let mut order: Vec<u32> = (0..expected.len() as u32).collect();
        order.sort_by(|&a, &b| expected[b as usize].total_cmp(&expected[a as usize]));
        assert_eq!(found.top.iter().map(|token| token.id).collect::<Vec<_>>(), order[..top], "token {at}");
    }
}

#[test]
fn scores_match_stepwise_log_probabilities() {
    for tiny in [MODELS[0], RECURRENT] {
        let (mut runner, mut reference) = (runner(tiny), self::runner(tiny));
        let ids = tiny.expected().prompt;
        for (from, top) in [(1, 3), (40, 0), (30, 5), (69, 1)] {
            let found = runner.score_ids(&ids, from, top).unwrap();
            assert_scores(&found, &ids, from, top, &mut reference);
        }
        for from in [0, ids.len(), ids.len() + 1] {
            assert!(matches!(runner.score_ids(&ids, from, 0), Err(Error::Argument { name: "from", .. })));
        }
    }
}

#[test]
fn continuation_starts_at_the_first_different_token() {
    let mut runner = runner(MODELS[0]);
    let ids = runner.tokenizer().encode_prompt("the fox and the hen").unwrap();
    let found = runner.score("the fox", " and the hen", 2).unwrap();
    assert_eq!(found.last().unwrap().token.id, *ids.last().unwrap());
    assert_scores(&found, &ids, ids.len() - found.len(), 2, &mut self::runner(MODELS[0]));
    assert!(matches!(runner.score("the fox", "", 0), Err(Error::Argument { name: "continuation", .. })));
    assert!(matches!(runner.score("", "the fox", 0), Err(Error::Argument { name: "prompt", .. })));
}

/// The log-probabilities are the model's, whatever the sampler's options.
#[test]
fn generation_reports_log_probabilities() {
    let mut reference = runner(MODELS[0]);
    for sampler in [
        SamplerOptions::greedy(),
        SamplerOptions { seed: Some(4), temperature: 2.0, ..Default::default() },
        SamplerOptions { seed: Some(5), logit_bias: vec![(7, 5.0)], top_k: 0, ..Default::default() },
    ] {
        let mut runner = runner(MODELS[0]);
        let options = GenerateOptions { sampler, max_tokens: Some(12), logprobs: Some(4), ..Default::default() };
        let mut generation = runner.generate("once upon a time", &options).unwrap();
        generation.by_ref().for_each(|piece| _ = piece.unwrap());
        let all = [generation.prompt(), generation.ids()].concat();
        assert_scores(generation.logprobs(), &all, generation.prompt().len(), 4, &mut reference);
        let mut without = runner.generate("once upon a time", &GenerateOptions { logprobs: None, ..options }).unwrap();
        without.by_ref().for_each(|piece| _ = piece.unwrap());
        assert!(without.logprobs().is_empty());
    }
}
