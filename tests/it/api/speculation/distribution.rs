//! Tests that tokens which are sampled with drafts follow the model's own distribution.

use inkstone::{GenerateOptions, LogitsFor, Runner, RunnerBuilder, SamplerOptions, Speculation, SpeculationSummary};

use crate::support::{data, graphs::Random, on_cpu};

/// Numbers of texts and of tokens of each.
const TEXTS: usize = 20;
const TOKENS: usize = 500;
const BINS: usize = 20;

/// Returns the place of a token in the softmax of `logits`: the probability of the tokens before
/// it, the most probable one first, and a random share of its own. If each token is drawn from the
/// distribution of its own logits, places are independent and uniform from 0 to 1, whatever the
/// distributions are ([Rosenblatt 1952](https://doi.org/10.1214/aoms/1177729394)).
fn place(logits: &[f32], token: usize, share: f64) -> f64 {
    let logits: Vec<f64> = logits.iter().copied().map(f64::from).collect();
    let highest = logits.iter().copied().fold(f64::MIN, f64::max);
    let weight = |id: usize| (logits[id] - highest).exp();
    let is_before = |id: &usize| (-logits[*id], *id) < (-logits[token], token);
    let before: f64 = (0..logits.len()).filter(is_before).map(weight).sum();
    let all: f64 = (0..logits.len()).map(weight).sum();
    (before + share * weight(token)) / all
}

/// Returns the value that chi-square with this number of degrees of freedom exceeds with a
/// probability of at most 1e-6 ([Laurent and Massart 2000](https://doi.org/10.1214/aos/1015957395),
/// lemma 1).
fn bound(freedom: usize) -> f64 {
    let (freedom, x) = (freedom as f64, 1e6f64.ln());
    freedom + 2.0 * (freedom * x).sqrt() + 2.0 * x
}

/// Samples texts with three drafts in each step, and returns chi-square of the places of their
/// tokens in the distributions of `plain`, with the numbers of drafted and accepted tokens.
fn chi_square(runner: &mut Runner, plain: &mut Runner) -> (f64, [usize; 2]) {
    let prompt: Vec<u32> = (3..20).collect();
    let (mut counts, mut drafts, mut random) = ([0usize; BINS], [0; 2], Random::new(1));
    for seed in 0..TEXTS as u64 {
        let sampler = SamplerOptions {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: Some(seed),
            ..Default::default()
        };
        let options = GenerateOptions {
            sampler,
            max_tokens: Some(TOKENS),
            speculation: Speculation::Exactly(3),
            ..Default::default()
        };
        let mut generation = runner.generate(&prompt[..], &options).unwrap().past_the_end();
        generation.by_ref().for_each(|piece| drop(piece.unwrap()));
        let SpeculationSummary { drafted, accepted, .. } = generation.summary().speculation;
        drafts = [drafts[0] + drafted, drafts[1] + accepted];
        let text = generation.ids().to_vec();
        assert_eq!(text.len(), TOKENS);
        let ids = [&prompt[..], &text].concat();
        let decoder = plain.decoder_mut();
        let (sequence, width) = (decoder.open(), decoder.limits().vocab_size);
        let logits = decoder.step(&[(sequence, &ids, LogitsFor::All)]).unwrap();
        for (token, logits) in text.iter().zip(logits.chunks(width).skip(prompt.len() - 1)) {
            let place = place(logits, *token as usize, f64::from(random.between(0.0, 1.0)));
            counts[((place * BINS as f64) as usize).min(BINS - 1)] += 1;
        }
        decoder.close(sequence).unwrap();
    }
    let expected = (TEXTS * TOKENS) as f64 / BINS as f64;
    (counts.iter().map(|count| (*count as f64 - expected).powi(2) / expected).sum(), drafts)
}

/// 10,000 tokens of each drafter, of which it has some drafts right and some wrong.
#[test]
fn tokens_sampled_with_drafts_follow_the_models_distribution() {
    let path = data("speculation/correlated-blurred.gguf");
    let mut plain = on_cpu().without_mtp().from_gguf(&path).unwrap();
    let drafters: [(&str, RunnerBuilder); 3] = [
        ("repetitions", on_cpu().without_mtp()),
        ("a draft model", on_cpu().without_mtp().without_ngrams().draft(&path)),
        ("a head", on_cpu().without_ngrams()),
    ];
    for (name, builder) in drafters {
        let mut runner = builder.from_gguf(&path).unwrap();
        let (found, [drafted, accepted]) = chi_square(&mut runner, &mut plain);
        assert!(found < bound(BINS - 1), "{name}: chi-square is {found}, more than {}", bound(BINS - 1));
        assert!(accepted > 1000 && drafted - accepted > 1000, "{name}: {accepted} of {drafted} accepted");
    }
}
