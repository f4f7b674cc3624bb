//! Tests of each stage of the sampler against plain f64 loops over the whole, sorted vocabulary.

use inkstone::{
    Error,
    gguf::Gguf,
    sampler::{Dry, DynamicTemperature, Mirostat, MirostatVersion, Sampler, SamplerOptions, Xtc},
    tokenizer::Tokenizer,
};
use proptest::prelude::*;

use crate::support::data;

/// Options with every stage off and temperature 1.
fn neutral() -> SamplerOptions {
    SamplerOptions { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: Some(1), ..SamplerOptions::default() }
}

/// Returns the probability of each token by the definitions, with a sort of the whole vocabulary.
fn probabilities(options: &SamplerOptions, logits: &[f32], history: &[u32]) -> Vec<f64> {
    let mut logits: Vec<f64> = logits.iter().map(|&l| f64::from(l)).collect();
    for &(id, bias) in &options.logit_bias {
        logits[id as usize] += f64::from(bias);
    }
    let window = &history[history.len().saturating_sub(options.penalty_window)..];
    for (id, logit) in logits.iter_mut().enumerate() {
        let count = window.iter().filter(|&&seen| seen as usize == id).count();
        if count > 0 {
            let penalty = f64::from(options.repetition_penalty);
            *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
            *logit -= count as f64 * f64::from(options.frequency_penalty) + f64::from(options.presence_penalty);
        }
    }
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    if options.top_k > 0 {
        order.truncate(options.top_k);
    }
    if options.typical_p < 1.0 {
        keep_typical(&mut order, &logits, f64::from(options.typical_p));
    }
    let p = softmax(&order, &logits, 1.0);
    let (mut kept, mut sum) = (0, 0.0);
    while kept < order.len() && (kept == 0 || options.top_p == 1.0 || sum < f64::from(options.top_p)) {
        sum += p[kept];
        kept += 1;
    }
    order.truncate(kept);
    let most = logits[order[0]];
    order.retain(|&id| (logits[id] - most).exp() >= f64::from(options.min_p));
    let mut result = vec![0.0; logits.len()];
    let mut add = |order: &[usize], share: f64| {
        let p = softmax(order, &logits, temperature_of(options, order, &logits));
        order.iter().zip(p).for_each(|(id, p)| result[*id] += share * p);
    };
    let Some(Xtc { probability, threshold }) = options.xtc else {
        add(&order, 1.0);
        return result;
    };
    add(&order, 1.0 - f64::from(probability));
    let p = softmax(&order, &logits, 1.0);
    let top = p.iter().filter(|p| **p >= f64::from(threshold)).count();
    add(&order[top.max(1) - 1..], f64::from(probability));
    result
}

/// Returns the relative probabilities of these tokens, best first; at temperature 0 the best has
/// all.
fn softmax(order: &[usize], logits: &[f64], temperature: f64) -> Vec<f64> {
    if temperature == 0.0 {
        return (0..order.len()).map(|rank| if rank == 0 { 1.0 } else { 0.0 }).collect();
    }
    let most = order.iter().map(|&id| logits[id]).fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = order.iter().map(|&id| ((logits[id] - most) / temperature).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / total).collect()
}

fn entropy(p: &[f64]) -> f64 {
    p.iter().map(|p| -p * p.ln()).sum()
}

/// Truncates as Hugging Face's `TypicalLogitsWarper`: by distance from the entropy, up to the token
/// that reaches the mass.
fn keep_typical(order: &mut Vec<usize>, logits: &[f64], mass: f64) {
    let p = softmax(order, logits, 1.0);
    let entropy = entropy(&p);
    let mut by_distance: Vec<usize> = (0..order.len()).collect();
    by_distance.sort_by(|&a, &b| (-p[a].ln() - entropy).abs().total_cmp(&(-p[b].ln() - entropy).abs()));
    let mut sum = 0.0;
    let before = by_distance.iter().take_while(|&&index| {
        sum += p[index];
        sum < mass
    });
    let mut kept: Vec<usize> = by_distance[..(before.count() + 1).min(order.len())].to_vec();
    kept.sort_unstable();
    *order = kept.into_iter().map(|index| order[index]).collect();
}

fn temperature_of(options: &SamplerOptions, order: &[usize], logits: &[f64]) -> f64 {
    let middle = f64::from(options.temperature);
    let Some(DynamicTemperature { range, exponent }) = options.dynamic_temperature else { return middle };
    // One token has an entropy of 0 and a maximum of 0.
    let share = if order.len() == 1 { 0.0 } else { entropy(&softmax(order, logits, 1.0)) / (order.len() as f64).ln() };
    let (least, most) = ((middle - f64::from(range)).max(0.0), middle + f64::from(range));
    least + (most - least) * share.powf(exponent.into())
}

/// Draws with a constant history, and compares the counts with the probabilities.
fn assert_frequencies(options: &SamplerOptions, logits: &[f32], history: &[u32]) {
    const DRAWS: usize = 40_000;
    let expected = probabilities(options, logits, history);
    let fresh = |seed| {
        let mut sampler = Sampler::new(&SamplerOptions { seed: Some(seed), ..options.clone() }, logits.len()).unwrap();
        history.iter().for_each(|&id| sampler.accept(id).unwrap());
        sampler
    };
    let mut counts = vec![0usize; logits.len()];
    let mut sampler = fresh(0);
    for seed in 1..=DRAWS as u64 {
        counts[sampler.sample(&mut logits.to_vec()).unwrap() as usize] += 1;
        if !history.is_empty() {
            sampler = fresh(seed);
        }
    }
    let (mut chi_square, mut classes) = (0.0, 0);
    for (id, (&count, &p)) in counts.iter().zip(&expected).enumerate() {
        if p == 0.0 {
            assert_eq!(count, 0, "token {id} was to be cut: {options:?}");
            continue;
        }
        let mean = p * DRAWS as f64;
        assert!(mean >= 5.0, "choose logits for which chi-square holds: token {id} is expected {mean} times");
        chi_square += (count as f64 - mean).powi(2) / mean;
        classes += 1;
    }
    // The 99.99% point of chi-square with k degrees of freedom is below k + 3.8 sqrt(2k) + 10 for
    // every k of these tests.
    let freedom = (classes - 1) as f64;
    let bound = freedom + 3.8 * (2.0 * freedom).sqrt() + 10.0;
    assert!(
        chi_square < bound,
        "chi-square {chi_square:.1} of {freedom} degrees: {options:?}, {counts:?}, {expected:?}"
    );
}

const LOGITS: [f32; 10] = [0.5, 2.0, -1.0, 1.9, 0.0, 2.5, -0.5, 1.0, -2.0, 0.7];

#[test]
fn each_stage_gives_the_expected_distribution() {
    assert_frequencies(&neutral(), &LOGITS, &[]);
    assert_frequencies(&SamplerOptions { temperature: 0.6, ..neutral() }, &LOGITS, &[]);
    assert_frequencies(&SamplerOptions { temperature: 1.7, ..neutral() }, &LOGITS, &[]);
    assert_frequencies(&SamplerOptions { top_k: 4, ..neutral() }, &LOGITS, &[]);
    assert_frequencies(&SamplerOptions { top_k: 1, ..neutral() }, &LOGITS, &[]);
    assert_frequencies(&SamplerOptions { top_k: 99, ..neutral() }, &LOGITS, &[]);
    assert_frequencies(&SamplerOptions { top_p: 0.7, ..neutral() }, &LOGITS, &[]);
    assert_frequencies(&SamplerOptions { top_p: 0.0, ..neutral() }, &LOGITS, &[]);
    assert_frequencies(&SamplerOptions { min_p: 0.15, ..neutral() }, &LOGITS, &[]);
    let bias = vec![(8, 3.0), (5, f32::NEG_INFINITY), (1, -1.0)];
    assert_frequencies(&SamplerOptions { logit_bias: bias, ..neutral() }, &LOGITS, &[]);
}

#[test]
fn rare_stages_give_the_expected_distributions() {
    for typical_p in [0.0, 0.3, 0.6, 0.9, 0.97] {
        assert_frequencies(&SamplerOptions { typical_p, ..neutral() }, &LOGITS, &[]);
    }
    // A distribution so certain that its best token is not typical.
    let sure = [3.0, 0.0, 0.1, 0.2, -0.1, -0.2, 0.15, 0.05, 0.12, 0.07];
    assert_frequencies(&SamplerOptions { typical_p: 0.2, ..neutral() }, &sure, &[]);
    for (probability, threshold) in [(1.0, 0.1), (0.5, 0.2), (0.3, 0.5), (1.0, 0.01), (0.0, 0.1)] {
        let xtc = Some(Xtc { probability, threshold });
        assert_frequencies(&SamplerOptions { xtc, ..neutral() }, &LOGITS, &[]);
        assert_frequencies(&SamplerOptions { xtc, top_k: 5, temperature: 1.4, ..neutral() }, &LOGITS, &[]);
    }
    for (temperature, range, exponent) in [(1.0, 0.5, 1.0), (1.2, 0.8, 2.0), (0.9, 0.4, 0.5), (0.5, 1.5, 1.0)] {
        let dynamic_temperature = Some(DynamicTemperature { range, exponent });
        let options = SamplerOptions { temperature, dynamic_temperature, top_k: 6, ..neutral() };
        assert_frequencies(&options, &LOGITS, &[]);
    }
    // A temperature that reaches 0 takes the best token.
    let dynamic_temperature = Some(DynamicTemperature { range: 1.0, exponent: 1.0 });
    let one = SamplerOptions { dynamic_temperature, top_k: 1, ..neutral() };
    assert_frequencies(&one, &LOGITS, &[]);
    let all = SamplerOptions {
        top_k: 9,
        typical_p: 0.95,
        top_p: 0.95,
        min_p: 0.05,
        xtc: Some(Xtc { probability: 0.5, threshold: 0.1 }),
        dynamic_temperature: Some(DynamicTemperature { range: 0.3, exponent: 1.0 }),
        ..neutral()
    };
    assert_frequencies(&all, &LOGITS, &[]);
}

/// Compares the kept tokens with the paper's formulas in f64, step by step, and the bound after
/// each drawn token.
#[test]
fn mirostat_keeps_the_target_surprise() {
    let mut state = 9u64;
    let mut noise = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f64 / (1u64 << 24) as f64
    };
    for (version, tau, eta, temperature) in [
        (MirostatVersion::One, 3.0, 0.1, 1.0),
        (MirostatVersion::Two, 3.0, 0.1, 0.8),
        (MirostatVersion::Two, 5.0, 0.5, 1.3),
    ] {
        let mirostat = Some(Mirostat { version, tau, eta });
        let options = SamplerOptions { mirostat, temperature, top_k: 1, ..neutral() };
        let mut sampler = Sampler::new(&options, 1000).unwrap();
        let (mut mu, mut surprises) = (2.0 * f64::from(tau), vec![]);
        for _ in 0..400 {
            // Probabilities near Zipf's law, as of words, and shuffled.
            let logits: Vec<f32> =
                (0..1000).map(|i| (-1.1 * f64::from(i * 7 % 1000 + 1).ln() + 0.5 * noise()) as f32).collect();
            let id = sampler.sample(&mut logits.clone()).unwrap() as usize;
            let all: Vec<usize> = (0..1000).collect();
            let wide: Vec<f64> = logits.iter().map(|&l| f64::from(l)).collect();
            let p = softmax(&all, &wide, temperature.into());
            let rank = p.iter().filter(|other| **other > p[id]).count();
            let surprise = -p[id].log2();
            match version {
                MirostatVersion::Two => assert!(surprise <= mu + 1e-3 || rank == 0, "{surprise} bits within {mu}"),
                MirostatVersion::One => {
                    let mut sorted = p.clone();
                    sorted.sort_by(|a, b| b.total_cmp(a));
                    let t = |i: usize| ((i + 2) as f64 / (i + 1) as f64).ln();
                    let b = |i: usize| (sorted[i] / sorted[i + 1]).ln();
                    let s = (0..100).map(|i| t(i) * b(i)).sum::<f64>() / (0..100).map(|i| t(i) * t(i)).sum::<f64>();
                    let epsilon = s - 1.0;
                    let k = (epsilon * mu.exp2() / (1.0 - 1000f64.powf(-epsilon))).powf(1.0 / s);
                    assert!((rank as f64) < k.max(1.0) + 1e-3, "rank {rank} within {k}");
                }
            }
            mu -= f64::from(eta) * (surprise - f64::from(tau));
            surprises.push(surprise);
        }
        let mean = surprises[100..].iter().sum::<f64>() / 300.0;
        assert!((mean - f64::from(tau)).abs() < 0.15, "{version:?}: {mean} bits a token, {tau} were asked for");
    }
}

/// Compares with the author's definition, by a search at every position for every length.
#[test]
fn dry_penalizes_repetitions_by_their_length() {
    const VOCAB: usize = 6;
    let mut state = 3u64;
    for case in 0..300 {
        let history: Vec<u32> = (0..case % 60)
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                // Few different tokens, so that many repetitions occur.
                (state >> 33) as u32 % (2 + case % 4)
            })
            .collect();
        let dry = Dry {
            multiplier: 0.8,
            base: 1.75,
            allowed_length: 1 + (case as usize) % 3,
            window: if case % 5 == 0 { 20 } else { usize::MAX },
            breakers: if case % 2 == 0 { vec![3] } else { vec![] },
        };
        let options = SamplerOptions { dry: Some(dry.clone()), ..SamplerOptions::greedy() };
        let mut sampler = Sampler::new(&options, VOCAB).unwrap();
        history.iter().for_each(|&id| sampler.accept(id).unwrap());
        let mut logits = [0.0f32; VOCAB];
        sampler.sample(&mut logits).unwrap();
        let seen = &history[history.len().saturating_sub(dry.window)..];
        for token in 0..VOCAB as u32 {
            // The largest n for which the last n tokens occur before an earlier `token`, without a
            // breaker in the range.
            let fits = |n: usize, at: usize| {
                let (end, then) = (&seen[seen.len() - n..], &seen[at - n..at]);
                seen[at] == token && end == then && !end.contains(&3)
            };
            let free = dry.breakers.is_empty();
            let holds = |n: usize, at: usize| match free {
                true => seen[at] == token && seen[seen.len() - n..] == seen[at - n..at],
                false => token != 3 && fits(n, at),
            };
            let longest = (1..=50.min(seen.len())).rev().find(|&n| (n..seen.len()).any(|at| holds(n, at)));
            let expected = match longest {
                Some(n) if n >= dry.allowed_length => -0.8 * 1.75f64.powi((n - dry.allowed_length) as i32),
                _ => 0.0,
            };
            let found = f64::from(logits[token as usize]);
            assert!(
                (found - expected).abs() <= 1e-5 * expected.abs(),
                "{found} for {expected}: {seen:?}, {token}, {dry:?}"
            );
        }
    }
}

#[test]
fn processors_run_first_with_all_ids() {
    let forbid = |ids: &[u32], logits: &mut [f32]| {
        assert!(ids.starts_with(&[7]));
        logits.iter_mut().step_by(2).for_each(|logit| *logit = f32::NEG_INFINITY);
        Ok(())
    };
    let raise = |_: &[u32], logits: &mut [f32]| {
        logits[4] = 100.0;
        logits[9] += 50.0;
        Ok(())
    };
    let mut sampler = Sampler::new(&neutral(), 10).unwrap().with_processor(raise).with_processor(forbid);
    sampler.accept(7).unwrap();
    for _ in 0..5 {
        assert_eq!(sampler.sample(&mut LOGITS.to_vec()).unwrap(), 9);
    }
    let fail = |_: &[u32], _: &mut [f32]| Err(Error::Unsupported("nothing fits".into()));
    let mut sampler = Sampler::new(&neutral(), 10).unwrap().with_processor(fail);
    assert!(sampler.sample(&mut LOGITS.to_vec()).is_err());
}

#[test]
fn stages_run_in_the_documented_order() {
    let all = SamplerOptions { temperature: 0.7, top_k: 7, top_p: 0.9, min_p: 0.1, ..neutral() };
    assert_frequencies(&all, &LOGITS, &[]);
    // Top-p after top-k differs from top-p alone; min-p truncates more than top-p here.
    assert_frequencies(&SamplerOptions { top_k: 3, top_p: 0.8, ..neutral() }, &LOGITS, &[]);
    assert_frequencies(&SamplerOptions { top_p: 0.95, min_p: 0.5, temperature: 3.0, ..neutral() }, &LOGITS, &[]);
}

#[test]
fn top_p_keeps_a_wide_nucleus() {
    let options = SamplerOptions { top_p: 0.5, ..neutral() };
    let mut sampler = Sampler::new(&options, 1200).unwrap();
    let mut seen = vec![false; 1200];
    for _ in 0..12_000 {
        seen[sampler.sample(&mut vec![0.0; 1200]).unwrap() as usize] = true;
    }
    assert!(seen[..600].iter().all(|&s| s), "each of the lower half is expected 20 times");
    assert!(!seen[601..].contains(&true));
}

#[test]
fn penalties_apply_to_the_window() {
    let history = [5, 5, 1, 2, 5, 1, 9];
    assert_frequencies(&SamplerOptions { repetition_penalty: 1.8, ..neutral() }, &LOGITS, &history);
    assert_frequencies(&SamplerOptions { frequency_penalty: 0.7, ..neutral() }, &LOGITS, &history);
    assert_frequencies(&SamplerOptions { presence_penalty: 1.1, ..neutral() }, &LOGITS, &history);
    let short = SamplerOptions { frequency_penalty: 0.5, repetition_penalty: 1.3, penalty_window: 3, ..neutral() };
    assert_frequencies(&short, &LOGITS, &history);
    let none = SamplerOptions { frequency_penalty: 0.5, penalty_window: 0, ..neutral() };
    assert_frequencies(&none, &LOGITS, &history);
}

#[test]
fn sampled_ids_are_added_to_the_history() {
    let options = SamplerOptions { presence_penalty: 10.0, penalty_window: 2, ..SamplerOptions::greedy() };
    let mut sampler = Sampler::new(&options, 4).unwrap();
    let ids: Vec<u32> = (0..6).map(|_| sampler.sample(&mut [1.0, 4.0, 2.0, 3.0]).unwrap()).collect();
    assert_eq!(ids, [1, 3, 2, 1, 3, 2], "the window forgets a token after two others");
}

#[test]
fn greedy_takes_the_largest_logit_and_the_lowest_id() {
    let mut sampler = Sampler::new(&SamplerOptions::greedy(), 5).unwrap();
    assert_eq!(sampler.sample(&mut [1.0, 3.0, 3.0, 2.0, 3.0]).unwrap(), 1);
    assert_eq!(sampler.sample(&mut [f32::NEG_INFINITY, -7.0, -7.0, f32::NEG_INFINITY, -8.0]).unwrap(), 1);
    let mut wide = vec![0.0; 150_001];
    (wide[1_023], wide[1_024], wide[150_000]) = (1.0, 1.0, 1.0);
    let mut sampler = Sampler::new(&SamplerOptions::greedy(), wide.len()).unwrap();
    assert_eq!(sampler.sample(&mut wide).unwrap(), 1_023);
    wide[150_000] = 2.0;
    assert_eq!(sampler.sample(&mut wide).unwrap(), 150_000);
}

#[test]
fn same_seed_gives_the_same_ids() {
    let run = |seed| {
        let mut sampler = Sampler::new(&SamplerOptions { seed, ..SamplerOptions::default() }, LOGITS.len()).unwrap();
        let ids: Vec<u32> = (0..64).map(|_| sampler.sample(&mut LOGITS.to_vec()).unwrap()).collect();
        (ids, sampler.seed())
    };
    assert_eq!(run(Some(7)), run(Some(7)));
    assert_ne!(run(Some(7)).0, run(Some(8)).0);
    let (ids, seed) = run(None);
    assert_eq!(run(Some(seed)).0, ids, "the seed that was taken repeats the run");
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    let refused = |options: SamplerOptions, name: &str| match Sampler::new(&options, 10) {
        Err(Error::Argument { name: at, .. }) => assert_eq!(at, name),
        other => panic!("{name}: {other:?}"),
    };
    for bad in [-0.1, f32::NAN, f32::INFINITY] {
        refused(SamplerOptions { temperature: bad, ..neutral() }, "temperature");
        refused(SamplerOptions { top_p: bad, ..neutral() }, "top_p");
        refused(SamplerOptions { min_p: bad, ..neutral() }, "min_p");
        refused(SamplerOptions { repetition_penalty: bad, ..neutral() }, "repetition_penalty");
    }
    let xtc = |probability, threshold| SamplerOptions { xtc: Some(Xtc { probability, threshold }), ..neutral() };
    refused(xtc(1.1, 0.1), "xtc.probability");
    refused(xtc(0.5, 0.0), "xtc.threshold");
    refused(xtc(0.5, 0.6), "xtc.threshold");
    let dynamic = |range, exponent| {
        let dynamic_temperature = Some(DynamicTemperature { range, exponent });
        SamplerOptions { dynamic_temperature, ..neutral() }
    };
    refused(dynamic(0.0, 1.0), "dynamic_temperature.range");
    refused(dynamic(1.0, f32::NAN), "dynamic_temperature.exponent");
    let mirostat = |tau, eta| {
        let mirostat = Some(Mirostat { version: MirostatVersion::Two, tau, eta });
        SamplerOptions { mirostat, ..neutral() }
    };
    refused(mirostat(0.0, 0.1), "mirostat.tau");
    refused(mirostat(5.0, -0.1), "mirostat.eta");
    let dry = Dry { multiplier: 0.8, base: 1.75, allowed_length: 2, window: 100, breakers: vec![] };
    let with = |dry| SamplerOptions { dry: Some(dry), ..neutral() };
    refused(with(Dry { multiplier: 0.0, ..dry.clone() }), "dry.multiplier");
    refused(with(Dry { base: 0.9, ..dry.clone() }), "dry.base");
    refused(with(Dry { allowed_length: 0, ..dry.clone() }), "dry.allowed_length");
    refused(with(Dry { breakers: vec![10], ..dry }), "dry.breakers");
    refused(SamplerOptions { typical_p: 1.1, ..neutral() }, "typical_p");
    refused(SamplerOptions { repetition_penalty: 0.0, ..neutral() }, "repetition_penalty");
    refused(SamplerOptions { top_p: 1.1, ..neutral() }, "top_p");
    refused(SamplerOptions { min_p: 1.1, ..neutral() }, "min_p");
    refused(SamplerOptions { frequency_penalty: f32::NAN, ..neutral() }, "frequency_penalty");
    refused(SamplerOptions { presence_penalty: f32::NEG_INFINITY, ..neutral() }, "presence_penalty");
    refused(SamplerOptions { logit_bias: vec![(10, 1.0)], ..neutral() }, "logit_bias");
    refused(SamplerOptions { logit_bias: vec![(1, f32::NAN)], ..neutral() }, "logit_bias");
    refused(SamplerOptions { logit_bias: vec![(1, f32::INFINITY)], ..neutral() }, "logit_bias");
    assert!(Sampler::new(&neutral(), 0).is_err());
    let mut sampler = Sampler::new(&neutral(), 10).unwrap();
    assert!(matches!(sampler.accept(10), Err(Error::Argument { name: "id", .. })));
}

#[test]
fn invalid_logits_are_refused() {
    for options in [SamplerOptions::greedy(), neutral(), SamplerOptions::default()] {
        let mut sampler = Sampler::new(&options, 3).unwrap();
        for mut bad in [[f32::NAN; 3], [0.0, f32::NAN, 1.0], [0.0, f32::INFINITY, 1.0], [f32::NEG_INFINITY; 3]] {
            assert!(matches!(sampler.sample(&mut bad), Err(Error::Argument { name: "logits", .. })), "{bad:?}");
        }
        assert!(matches!(sampler.sample(&mut [0.0; 2]), Err(Error::Argument { name: "logits", .. })));
        assert!(sampler.sample(&mut [f32::NEG_INFINITY, f32::NEG_INFINITY, 0.0]).is_ok_and(|id| id == 2));
    }
}

proptest! {
    /// Large vocabularies use the partial selection: only tokens of the exact support may be drawn.
    #[test]
    fn draws_are_within_the_truncated_support(
        raw in prop::collection::vec(-12i16..12, 1..3000),
        top_k in prop_oneof![Just(0usize), 1usize..700],
        top_p in prop_oneof![Just(1.0f32), 0.0f32..1.0],
        typical_p in prop_oneof![3 => Just(1.0f32), 1 => 0.0f32..1.0],
        min_p in prop_oneof![Just(0.0f32), 0.0f32..1.0],
        seed: u64,
    ) {
        // Steps of 1/2 make many equal logits.
        let logits: Vec<f32> = raw.iter().map(|&l| f32::from(l) * 0.5).collect();
        let options = SamplerOptions { top_k, typical_p, top_p, min_p, seed: Some(seed), ..neutral() };
        let expected = probabilities(&options, &logits, &[]);
        let mut sampler = Sampler::new(&options, logits.len()).unwrap();
        // If the sum meets top_p exactly, rounding may add one token.
        let [top_p, typical_p] = [top_p, typical_p].map(|p| (p + 1e-6).min(1.0));
        let near = probabilities(&SamplerOptions { top_p, typical_p, ..options.clone() }, &logits, &[]);
        for _ in 0..20 {
            let id = sampler.sample(&mut logits.clone()).unwrap() as usize;
            prop_assert!(expected[id] > 0.0 || near[id] > 0.0, "token {} of logit {}", id, logits[id]);
        }
    }
}

#[test]
fn default_breakers_are_the_tokens_with_their_text() {
    let gguf = Gguf::open(data("storyteller/storyteller.gguf")).unwrap();
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let dry = Dry::new(&tokenizer);
    let marks = ['\n', ':', '"', '*'];
    let breaks = |id: &u32| tokenizer.decode(&[*id]).unwrap().contains(marks);
    let expected: Vec<u32> = (0..tokenizer.vocab_size() as u32).filter(breaks).collect();
    assert!(expected.len() >= marks.len());
    assert_eq!(dry.breakers, expected);
    assert!(tokenizer.tokens_with(&[]).is_empty());
    assert!(SamplerOptions { dry: Some(dry), ..Default::default() }.check(tokenizer.vocab_size()).is_ok());
}
