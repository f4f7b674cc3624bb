//! Ops that carry a state: sizes, chunks, ragged batches, going back.

use std::collections::HashMap;

use inkstone::{
    CacheType,
    internals::graph::{DeltaSpec, HeadOrder, ScanSpec, ValueId},
};

use super::case::{Case, Maker, SINGLE, ragged};
use crate::support::{
    drive::{Driver, cpus, label, packed},
    interpret::Step,
};

/// What each token adds to a state loses a little of what the tokens before it left.
const RECURRENT: f64 = 1e-11;

/// The factor of an old state is an exponential, on some devices off by two units in the last
/// place. Over the fifty tokens that a head remembers these add up to a relative error of 1e-5.
const FADING: f64 = 1e-10;

const VOCABULARY: usize = 211;

/// Runs `(sequence, start, len)` of a step.
type Runs = &'static [(usize, usize, usize)];

/// Prefill in chunks shorter and longer than a kernel, one at a time and beside others, from the
/// start again, and from before a prompt's last token.
fn steps() -> Vec<Step> {
    let steps: [Runs; 9] = [
        &[(0, 0, 1)],
        &[(0, 1, 2), (1, 0, 1)],
        &[(1, 1, 1), (0, 3, 1), (2, 0, 5)],
        &[(0, 4, 30), (2, 5, 2)],
        &[(2, 7, 1), (1, 2, 18), (0, 34, 1)],
        &[(0, 0, 40)],
        &[(0, 40, 1), (1, 20, 1)],
        &[(1, 21, 33)],
        &[(1, 53, 2), (0, 41, 1)],
    ];
    steps.map(|runs| ragged(runs, VOCABULARY)).into()
}

/// Prefill of more tokens than are taken together, from odd positions, beside runs of few, and from
/// checkpoints that stand in the midst of what was taken together: 16 tokens and one before a
/// prompt's end.
fn long_steps(vocabulary: usize) -> Vec<Step> {
    let steps: [Runs; 8] = [
        &[(0, 0, 75)],
        &[(1, 0, 1), (0, 59, 33), (2, 0, 2)],
        &[(1, 1, 40), (0, 91, 1), (2, 2, 32)],
        &[(2, 33, 31), (1, 40, 70)],
        &[(0, 0, 112)],
        &[(1, 109, 1), (0, 96, 3)],
        &[(0, 98, 37), (1, 110, 65)],
        &[(0, 135, 1), (1, 159, 2)],
    ];
    steps.map(|runs| ragged(runs, vocabulary)).into()
}

pub fn short_conv() -> Vec<Case> {
    let case = |(channels, kernel): (usize, usize)| {
        let mut m = Maker::new(30);
        let y = conv(&mut m, channels, kernel);
        let steps = [steps(), long_steps(VOCABULARY)].concat();
        m.finish(format!("short_conv of {channels} channels by {kernel}"), y, steps, SINGLE)
    };
    let mut cases: Vec<_> = [(16, 4), (48, 2), (272, 3), (528, 7), (16, 34)].map(case).into();
    let mut m = Maker::new(32);
    let (x, w) = conv_operands(&mut m, 48, 3);
    let y = m.b.linear_conv(x, w);
    let all = [steps(), long_steps(VOCABULARY)].concat();
    cases.push(m.finish("short_conv of 48 channels by 3 without SiLU", y, all.clone(), SINGLE));
    let mut m = Maker::new(34);
    let (x, w) = conv_operands(&mut m, 80, 4);
    let bias = super::case::normal(80, &mut m.random);
    let bias = m.floats(80, &bias);
    let y = m.b.biased_conv(x, w, bias);
    cases.push(m.finish("short_conv of 80 channels by 4 with a bias", y, all, SINGLE));
    cases
}

fn conv(m: &mut Maker, channels: usize, kernel: usize) -> ValueId {
    let (x, w) = conv_operands(m, channels, kernel);
    m.b.short_conv(x, w)
}

fn conv_operands(m: &mut Maker, channels: usize, kernel: usize) -> (ValueId, ValueId) {
    let x = m.normal_rows(channels, VOCABULARY);
    let w = super::case::normal(channels * kernel, &mut m.random);
    (x, m.floats(kernel, &w))
}

pub fn state_scan() -> Vec<Case> {
    let sizes = [(1, 1, 16, 16), (4, 2, 20, 16), (8, 1, 8, 32), (6, 3, 64, 48), (2, 1, 64, 128), (2, 2, 80, 256)];
    let case = |(heads, groups, head_dim, size): (usize, usize, usize, usize)| {
        let mut m = Maker::new(35);
        let x = m.normal_rows(heads * head_dim + 2 * groups * size, VOCABULARY);
        let dt = m.normal_rows(heads, VOCABULARY);
        // As in models: some heads forget within a few tokens, some keep nearly all.
        let a: Vec<f32> = (0..heads).map(|head| -(0.01 + 3.0 * head as f32 / heads as f32)).collect();
        let bias: Vec<f32> = (0..heads).map(|_| m.random.between(-7.0, 1.0)).collect();
        let d = super::case::normal(heads, &mut m.random);
        let [a, bias, d] = [a, bias, d].map(|row| m.floats(heads, &row));
        let y = m.b.state_scan([x, dt, a, bias, d], ScanSpec { state: 0, heads, groups, head_dim, size });
        let name = format!("state_scan of {heads} heads of {head_dim} by {size}, {groups} groups");
        m.finish(name, y, [steps(), long_steps(VOCABULARY)].concat(), FADING)
    };
    sizes.map(case).into_iter().chain([scan_extremes()]).collect()
}

/// Steps of a token that are all but 0, or so long that a head forgets all before it.
fn scan_extremes() -> Case {
    const FEW: usize = 6;
    let (heads, head_dim, size) = (2, 8, 16);
    let mut m = Maker::new(36);
    let x = m.normal_rows(heads * head_dim + 2 * size, FEW);
    let each = |values: [f32; FEW]| values.into_iter().flat_map(|x| vec![x; heads]).collect::<Vec<_>>();
    let dt = m.rows_of(heads, &each([-200.0, 10.0, -3.0, -90.0, 400.0, 0.0]));
    let [a, bias, d] = [-3.0, 0.0, 0.5].map(|x| m.floats(heads, &vec![x; heads]));
    let y = m.b.state_scan([x, dt, a, bias, d], ScanSpec { state: 0, heads, groups: 1, head_dim, size });
    m.finish("state_scan at extremes", y, long_steps(FEW), RECURRENT)
}

pub fn gated_delta() -> Vec<Case> {
    let sizes = [
        (2, 4, HeadOrder::Tiled, 16),
        (2, 4, HeadOrder::Grouped, 16),
        (2, 2, HeadOrder::Tiled, 32),
        (1, 3, HeadOrder::Tiled, 48),
        (3, 6, HeadOrder::Tiled, 64),
        (3, 6, HeadOrder::Grouped, 64),
        (1, 2, HeadOrder::Tiled, 128),
    ];
    let mut cases: Vec<_> = sizes
        .map(|(key_heads, value_heads, order, head_dim)| {
            let spec = DeltaSpec { state: 0, key_heads, value_heads, order, head_dim, eps: 1e-6 };
            let mut m = Maker::new(31);
            let qkv = m.normal_rows((2 * key_heads + value_heads) * head_dim, VOCABULARY);
            let y = delta(&mut m, spec, qkv);
            let name = format!("gated_delta of {value_heads} heads of {head_dim} over {key_heads}, {order:?}");
            m.finish(name, y, [steps(), long_steps(VOCABULARY)].concat(), RECURRENT)
        })
        .into();
    cases.push(both());
    cases.push(extremes());
    cases
}

/// Keys that come again and again, in heads that forget all, nearly all or nothing and learn all or
/// nothing.
fn extremes() -> Case {
    const FEW: usize = 6;
    let spec = DeltaSpec { state: 0, key_heads: 1, value_heads: 2, order: HeadOrder::Tiled, head_dim: 32, eps: 1e-6 };
    let DeltaSpec { key_heads, value_heads, head_dim, .. } = spec;
    let mut m = Maker::new(33);
    let qkv = m.normal_rows((2 * key_heads + value_heads) * head_dim, FEW);
    // Times -3: everything is left of a state, a 1e-13th, nothing even in double precision.
    let each = |values: [f32; FEW]| values.into_iter().flat_map(|x| vec![x; value_heads]).collect::<Vec<_>>();
    let alpha = m.rows_of(value_heads, &each([-200.0, 10.0, -3.0, -200.0, 400.0, -200.0]));
    let beta = m.rows_of(value_heads, &each([200.0, 0.5, 200.0, -200.0, 200.0, 1.0]));
    let [a, dt] = [-3.0, 0.0].map(|x| m.floats(value_heads, &vec![x; value_heads]));
    let y = m.b.gated_delta([qkv, alpha, beta, a, dt], spec);
    m.finish("gated_delta at extremes", y, long_steps(FEW), RECURRENT)
}

fn delta(m: &mut Maker, spec: DeltaSpec, qkv: ValueId) -> ValueId {
    let heads = spec.value_heads;
    let [alpha, beta] = [(); 2].map(|()| m.normal_rows(heads, VOCABULARY));
    // As in models: some heads forget within a few tokens, some keep nearly all.
    let a: Vec<f32> = (0..heads).map(|head| -(0.01 + 3.0 * head as f32 / heads as f32)).collect();
    let dt: Vec<f32> = (0..heads).map(|_| m.random.between(-4.0, 1.0)).collect();
    let [a, dt] = [a, dt].map(|row| m.floats(heads, &row));
    m.b.gated_delta([qkv, alpha, beta, a, dt], spec)
}

/// Two states of different sizes, one op reading what the other made.
fn both() -> Case {
    let spec = DeltaSpec { state: 0, key_heads: 2, value_heads: 4, order: HeadOrder::Tiled, head_dim: 32, eps: 1e-5 };
    let mut m = Maker::new(32);
    let qkv = conv(&mut m, 256, 4);
    let y = delta(&mut m, spec, qkv);
    m.finish("gated_delta after short_conv", y, steps(), RECURRENT)
}

/// Bit for bit, what the CPU makes of a token is the same on any number of threads, alone and in a
/// run of any length.
#[test]
fn results_do_not_depend_on_threads_or_on_runs() {
    const END: usize = 70;
    let ways: [&[Runs]; 3] = [
        &[&[(0, 0, END)]],
        &[&[(0, 0, 2)], &[(0, 2, 31)], &[(1, 0, 5), (0, 33, 1)], &[(0, 34, 36), (1, 5, 1)]],
        &[&[(0, 0, 60)], &[(0, 59, 10)], &[(0, 69, 1)]],
    ];
    let case = both();
    let mut by_instruction_set = HashMap::new();
    for backend in cpus() {
        for way in ways {
            let mut driver =
                Driver::new(&*backend, &case.graph, &packed(&case.tensors), CacheType::F32, [END, END]).unwrap();
            let mut found = vec![vec![]; END];
            for runs in way {
                let step = ragged(runs, VOCABULARY);
                let results = driver.run(&step).unwrap();
                let mut results = results.chunks(results.len() / step.tokens.len());
                for run in step.runs {
                    for (position, row) in (run.start..run.start + run.len).zip(results.by_ref()) {
                        if run.sequence == 0 {
                            found[position] = row.iter().map(|x| x.to_bits()).collect();
                        }
                    }
                }
            }
            let first = by_instruction_set.entry(backend.device().details.clone()).or_insert_with(|| found.clone());
            assert!(*first == found, "{}: other results in the runs {way:?}", label(&*backend));
        }
    }
}
