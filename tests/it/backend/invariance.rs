//! Batch invariance: a token's logits are the same bits whichever tokens are computed beside it, in
//! steps of up to 16 tokens on a GPU, and in any step on the CPU.

use std::ops::Range;

#[cfg(any(feature = "wgpu", feature = "metal"))]
use inkstone::{Adapter, Device};
use inkstone::{CacheType, DType, LogitsFor, Runner, RunnerBuilder, SequenceId};

use super::ops;
use crate::support::{data, drive, on_cpu};

/// The largest number of tokens in a step.
const MOST: usize = 16;
/// Tokens that are appended to each sequence.
const APPENDED: usize = 6;
/// The sequence whose positions are split, on GPUs, within the appended tokens.
const LONG: usize = 2;

/// Models with windows, experts, recurrent layers and heads of different sizes.
const MODELS: [&str; 4] = ["models/gemma3", "models/gemma4_moe", "models/qwen3moe", "models/qwen35"];
/// A model for every type of cache.
const STORYTELLER: &str = "storyteller/storyteller";

fn ids(sequence: usize, len: usize) -> Vec<u32> {
    (0..len).map(|index| ((index * 29 + 7 * sequence) % 300) as u32).collect()
}

/// A model with sequences of different lengths, and the logits of the tokens appended to each, one
/// at a time and alone.
struct Prepared {
    runner: Runner,
    sequences: Vec<SequenceId>,
    alone: Vec<Vec<Vec<f32>>>,
    label: String,
}

impl Prepared {
    fn new(builder: RunnerBuilder, path: &str, cache_type: CacheType) -> Self {
        let mut runner = builder.cache_type(cache_type).from_gguf(data(&format!("{path}.gguf"))).unwrap();
        let label = format!("{path}, {cache_type:?}, {}", runner.device().name);
        let decoder = runner.decoder_mut();
        let mut sequences = vec![];
        for n in 0..MOST {
            let id = decoder.open();
            // The prefill of a long sequence takes most of the test's time.
            let is_long = n == LONG && cache_type == CacheType::F16;
            let len = if is_long { decoder.context_length().min(1027) - APPENDED } else { 1 + n * 11 % 70 };
            decoder.prefill(id, &ids(n, len), |_, _| true).unwrap();
            sequences.push(id);
        }
        let mut prepared = Self { runner, sequences, alone: vec![], label };
        prepared.alone = (0..MOST).map(|n| prepared.one_by_one(n)).collect();
        prepared
    }

    fn one_by_one(&mut self, n: usize) -> Vec<Vec<f32>> {
        let steps: Vec<_> = (0..APPENDED).map(|token| vec![(n, token..token + 1)]).collect();
        self.logits(&steps).into_iter().map(|(_, _, row)| row).collect()
    }

    /// Appends tokens to forks of the sequences in steps of several runs, each the tokens of a
    /// sequence; returns the logits of each token of each sequence.
    fn logits(&mut self, steps: &[Vec<(usize, Range<usize>)>]) -> Vec<(usize, usize, Vec<f32>)> {
        let vocab_size = self.runner.config().vocab_size;
        let decoder = self.runner.decoder_mut();
        let mut forks = vec![None; MOST];
        let appended: Vec<_> = (0..MOST).map(|n| ids(n + 3, APPENDED)).collect();
        let mut found = vec![];
        for step in steps {
            for (n, _) in step {
                forks[*n].get_or_insert_with(|| decoder.fork(self.sequences[*n]).unwrap());
            }
            let runs: Vec<_> = step
                .iter()
                .map(|(n, range)| (forks[*n].unwrap(), &appended[*n][range.clone()], LogitsFor::All))
                .collect();
            let logits = decoder.step(&runs).unwrap();
            let tokens = step.iter().flat_map(|(n, range)| range.clone().map(|token| (*n, token)));
            found.extend(tokens.zip(logits.chunks_exact(vocab_size)).map(|((n, token), row)| (n, token, row.to_vec())));
        }
        forks.into_iter().flatten().for_each(|fork| decoder.close(fork).unwrap());
        found
    }

    fn check(&mut self, steps: &[Vec<(usize, Range<usize>)>]) {
        for (n, token, row) in self.logits(steps) {
            let bits = |row: &[f32]| row.iter().map(|logit| logit.to_bits()).collect::<Vec<_>>();
            let differing =
                bits(&row).iter().zip(bits(&self.alone[n][token])).filter(|(found, alone)| **found != *alone).count();
            assert_eq!(
                differing, 0,
                "{}: {differing} logits of token {token} of sequence {n} differ in {steps:?}",
                self.label
            );
        }
    }
}

fn check(device: &dyn Fn() -> RunnerBuilder, path: &str, cache_type: CacheType) {
    let mut prepared = Prepared::new(device(), path, cache_type);
    // One token of each of several sequences.
    for size in [2, 4, 7, MOST] {
        prepared.check(&[(0..size).map(|n| (n, 0..1)).collect(), (0..size).rev().map(|n| (n, 1..2)).collect()]);
    }
    // A run of several tokens, in chunks of every size.
    for len in [2, 5, APPENDED] {
        let chunks = (0..APPENDED).step_by(len).map(|start| start..APPENDED.min(start + len));
        for n in [0, LONG] {
            prepared.check(&chunks.clone().map(|chunk| vec![(n, chunk)]).collect::<Vec<_>>());
        }
    }
    // Runs of different lengths beside single tokens.
    prepared.check(&[
        vec![(0, 0..5), (1, 0..1), (LONG, 0..4), (3, 0..2), (9, 0..1)],
        vec![(LONG, 4..6), (1, 1..2), (5, 0..6), (3, 2..4)],
        vec![(1, 2..3), (3, 4..5)],
    ]);
}

fn check_all(device: &dyn Fn() -> RunnerBuilder) {
    for path in MODELS {
        check(device, path, CacheType::F16);
    }
    for cache_type in [CacheType::F32, CacheType::F16, CacheType::Q8_0] {
        check(device, STORYTELLER, cache_type);
    }
}

#[test]
fn logits_on_the_cpu_do_not_depend_on_other_tokens_of_a_step() {
    check_all(&on_cpu);
}

#[cfg(any(feature = "wgpu", feature = "metal"))]
#[test]
fn logits_on_gpus_do_not_depend_on_other_tokens_of_a_step() {
    for info in super::gpu::adapters() {
        check_all(&|| Runner::builder().device(Device::Gpu(Adapter::Named(info.name.clone()))));
    }
}

#[test]
fn products_on_the_cpu_do_not_depend_on_other_tokens_of_a_step() {
    let cases = DType::ALL.iter().map(|dtype| ops::chained_products(*dtype, false));
    let lengths = [2, 3, 5, 8, 13, 16, 17, 33, 40];
    let differences: Vec<_> = cases
        .flat_map(|case| drive::cpus().into_iter().filter_map(move |cpu| case.difference_in_company(&*cpu, &lengths)))
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn products_on_gpus_do_not_depend_on_other_tokens_of_a_step() {
    let cases = DType::ALL.iter().map(|dtype| ops::chained_products(*dtype, true));
    let differences: Vec<_> = cases
        .flat_map(|case| {
            drive::gpus().into_iter().filter_map(move |gpu| case.difference_in_company(&*gpu, &[2, 3, 5, 8, 13, MOST]))
        })
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
