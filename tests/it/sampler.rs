//! Each stage of the sampler against plain f64 loops over the whole, sorted vocabulary.

use inkstone::Error;
use inkstone::sampler::{Sampler, SamplerOptions};
use proptest::prelude::*;

/// Every stage switched off, temperature 1.
fn neutral() -> SamplerOptions {
    SamplerOptions { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: Some(1), ..SamplerOptions::default() }
}

/// The probability of each token by the definitions, with a sort of everything.
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
    let most = logits[order[0]];
    let total: f64 = order.iter().map(|&id| (logits[id] - most).exp()).sum();
    let (mut kept, mut sum) = (0, 0.0);
    while kept < order.len() && (kept == 0 || options.top_p == 1.0 || sum < f64::from(options.top_p)) {
        sum += (logits[order[kept]] - most).exp() / total;
        kept += 1;
    }
    order.truncate(kept);
    order.retain(|&id| (logits[id] - most).exp() >= f64::from(options.min_p));
    let weight = |id: usize| ((logits[id] - most) / f64::from(options.temperature)).exp();
    let total: f64 = order.iter().map(|&id| weight(id)).sum();
    let mut result = vec![0.0; logits.len()];
    for id in order {
        result[id] = weight(id) / total;
    }
    result
}

/// Draws with a history that stays as it is, and holds the counts against the probabilities.
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
    // The 99.99% point of chi-square with k degrees of freedom is below k + 3.8 sqrt(2k) + 10 for every k of these tests.
    let freedom = (classes - 1) as f64;
    let bound = freedom + 3.8 * (2.0 * freedom).sqrt() + 10.0;
    assert!(
        chi_square < bound,
        "chi-square {chi_square:.1} of {freedom} degrees: {options:?}, {counts:?}, {expected:?}"
    );
}

const LOGITS: [f32; 10] = [0.5, 2.0, -1.0, 1.9, 0.0, 2.5, -0.5, 1.0, -2.0, 0.7];

#[test]
fn each_stage_gives_its_distribution() {
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
fn stages_apply_in_the_stated_order() {
    let all = SamplerOptions { temperature: 0.7, top_k: 7, top_p: 0.9, min_p: 0.1, ..neutral() };
    assert_frequencies(&all, &LOGITS, &[]);
    // Top-p over what top-k left differs from top-p over everything; min-p here cuts deeper than top-p.
    assert_frequencies(&SamplerOptions { top_k: 3, top_p: 0.8, ..neutral() }, &LOGITS, &[]);
    assert_frequencies(&SamplerOptions { top_p: 0.95, min_p: 0.5, temperature: 3.0, ..neutral() }, &LOGITS, &[]);
}

#[test]
fn a_wide_nucleus_is_kept_whole() {
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
fn penalties_count_the_window() {
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
fn what_is_sampled_joins_the_history() {
    let options = SamplerOptions { presence_penalty: 10.0, penalty_window: 2, ..SamplerOptions::greedy() };
    let mut sampler = Sampler::new(&options, 4).unwrap();
    let ids: Vec<u32> = (0..6).map(|_| sampler.sample(&mut [1.0, 4.0, 2.0, 3.0]).unwrap()).collect();
    assert_eq!(ids, [1, 3, 2, 1, 3, 2], "the window forgets a token after two others");
}

#[test]
fn greedy_takes_the_largest_and_of_equals_the_lowest_id() {
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
fn the_same_seed_gives_the_same_ids() {
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
fn unusable_logits_are_errors() {
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
    /// Large vocabularies go through the partial selection: only tokens of the exact support may come.
    #[test]
    fn draws_stay_in_the_support(
        raw in prop::collection::vec(-12i16..12, 1..3000),
        top_k in prop_oneof![Just(0usize), 1usize..700],
        top_p in prop_oneof![Just(1.0f32), 0.0f32..1.0],
        min_p in prop_oneof![Just(0.0f32), 0.0f32..1.0],
        seed: u64,
    ) {
        // Steps of 1/2 make many ties.
        let logits: Vec<f32> = raw.iter().map(|&l| f32::from(l) * 0.5).collect();
        let options = SamplerOptions { top_k, top_p, min_p, seed: Some(seed), ..neutral() };
        let expected = probabilities(&options, &logits, &[]);
        let mut sampler = Sampler::new(&options, logits.len()).unwrap();
        // Where the sum meets top_p exactly, rounding decides on one token more or less: it may come too.
        let near = probabilities(&SamplerOptions { top_p: (top_p + 1e-6).min(1.0), ..options.clone() }, &logits, &[]);
        for _ in 0..20 {
            let id = sampler.sample(&mut logits.clone()).unwrap() as usize;
            prop_assert!(expected[id] > 0.0 || near[id] > 0.0, "token {} of logit {}", id, logits[id]);
        }
    }
}
