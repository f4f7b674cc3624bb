//! Tests an adapter before a model runs on it: small graphs with the model's formats and kinds of
//! attention run through the same kernels, and their results are compared with plain loops. So a
//! driver with a bug causes an error rather than wrong text.

mod case;
mod dense;
mod needs;
mod recurrent;
mod reference;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, OnceLock},
};

use self::{
    case::{Case, compile},
    needs::{AttentionSample, Needs, needs},
};
use super::{
    context::{Context, GpuChoices, lock},
    lower::GEMV_ROWS,
    parallel,
    step::{CHUNK, SPLIT},
};
use crate::{
    DType, Result,
    backend::{Executable, MAX_TOP_LOGITS, NextToken, Run, Step},
    graph::{DeltaSpec, RECURRENT_UNIT, ScanSpec, Scores},
    kv_cache::{CacheLayout, CacheType, KvCache},
    plan::Plan,
    weights::Weights,
};

/// Largest relative squared error: the squared error divided by the sum of squares. Rounding to
/// int8 causes about 1e-5, and a wrong kernel about 1.
const TOLERANCE: f64 = 2e-2;
/// Lengths of the steps of recurrent sequences: shorter and longer than convolutions and chunks.
const RECURRENT: [usize; 6] = [3, 1, GEMV_ROWS + 4, 1, 2 * CHUNK + 7, 1];
/// Size of the vocabulary in the test of sampling kernels: large enough for several rounds.
const CHOICES: usize = 3000;

/// The tests that passed in this process, each with its adapter.
static PASSED: OnceLock<Mutex<HashSet<String>>> = OnceLock::new();

/// Largest number of threads that run tests: a test mostly waits for the driver's compiler.
const THREADS: usize = 8;

/// A test by its name, and the function that returns a relative squared error.
type Test<'a> = (String, Box<dyn FnOnce() -> Result<f64> + Send + 'a>);

/// Runs the tests of the kernels that a plan uses, except tests that passed before.
///
/// # Errors
/// [`Error::Device`](crate::Error::Device) that names the failed test.
pub(super) fn run(context: &Arc<Context>, plan: &Plan, cache_type: CacheType) -> Result<()> {
    let needs = needs(plan);
    // Sequences without splits, and with splits.
    let short_splits = GpuChoices { unsplit_positions: SPLIT / 4, ..context.traits.choices };
    let splitting = Arc::new(context.with_choices(short_splits));
    let mut tests: Vec<Test<'_>> = vec![("the choice of tokens".into(), Box::new(|| choices(context)))];
    product_tests(context, &needs, &mut tests);
    attention_tests([context, &splitting], &needs, cache_type, &mut tests);
    recurrent_tests(context, &needs, cache_type, &mut tests);
    let mut names = HashSet::new();
    tests.retain(|(name, _)| names.insert(name.clone()));
    parallel::for_each(tests, THREADS, |(name, test)| once(context, &name, test), |()| ())
}

fn product_tests<'a>(context: &'a Arc<Context>, needs: &'a Needs, tests: &mut Vec<Test<'a>>) {
    let Needs { formats, activations, capped, experts, heads, .. } = needs;
    let capped = *capped;
    let formats = formats.iter().filter_map(|format| DType::from_ggml(*format));
    for (dtype, activation) in formats.flat_map(|dtype| activations.iter().map(move |activation| (dtype, *activation)))
    {
        let cap = if capped { ", capped" } else { "" };
        let test = move || {
            let mut case = Case::new();
            case.products(dtype, activation, capped);
            // The last has the tile for the longest steps.
            let steps = [1, GEMV_ROWS + 4, context.traits.choices.tile_rows[2] + 8];
            case.check(context, CacheType::F32, &steps)
        };
        tests.push((format!("products with {dtype} and {activation:?}{cap}"), Box::new(test)));
    }
    for dtype in heads.iter().filter_map(|format| DType::from_ggml(*format)) {
        let test = move || {
            let mut case = Case::new();
            case.heads(dtype);
            case.check(context, CacheType::F32, &[1, GEMV_ROWS + 4])
        };
        tests.push((format!("products of heads with {dtype}"), Box::new(test)));
    }
    for experts in experts {
        let name = format!("{experts:?}");
        let test = move || {
            let mut case = Case::new();
            case.experts(experts);
            case.check(context, CacheType::F32, &[1, GEMV_ROWS + 4])
        };
        tests.push((name, Box::new(test)));
    }
}

fn attention_tests<'a>(
    [context, splitting]: [&'a Arc<Context>; 2],
    needs: &Needs,
    cache_type: CacheType,
    tests: &mut Vec<Test<'a>>,
) {
    let lengths = [(context, vec![3, 1, GEMV_ROWS + 4, 1]), (splitting, vec![SPLIT + 40, 1])];
    for AttentionSample { spec, rope, norm } in needs.attention.iter().copied() {
        let (dim, group) = (spec.head_dim, spec.heads / spec.kv_heads);
        for (context, steps) in lengths.clone() {
            let tokens: usize = steps.iter().sum();
            let Scores { softcap, window, .. } = spec.scores;
            let values = if spec.keys_only { "keys as values" } else { "values" };
            let name = format!(
                "attention to {tokens} tokens with {group} heads of {dim}, {cache_type:?}, {rope:?}, {norm:?}, softcap {softcap:?}, window {window:?}, {values}"
            );
            let test = move || {
                let mut case = Case::new();
                case.attention(spec, rope, norm);
                case.check(context, cache_type, &steps)
            };
            tests.push((name, Box::new(test)));
        }
    }
}

fn recurrent_tests<'a>(context: &'a Arc<Context>, needs: &Needs, cache_type: CacheType, tests: &mut Vec<Test<'a>>) {
    for (kernel, biased, silu) in needs.convolutions.iter().copied() {
        let test = move || {
            let mut case = Case::new();
            case.convolution(kernel, biased, silu);
            case.check(context, cache_type, &RECURRENT)
        };
        let name = format!("convolutions over {kernel} tokens, with a bias: {biased}, with SiLU: {silu}");
        tests.push((name, Box::new(test)));
    }
    for ScanSpec { heads, groups, head_dim, size, .. } in needs.scans.iter().copied() {
        let group = heads / groups;
        // Few groups whose heads are whole vectors.
        let fits = |groups: &usize| (groups * group * head_dim).is_multiple_of(RECURRENT_UNIT);
        let groups = (2..RECURRENT_UNIT).find(fits).unwrap_or(RECURRENT_UNIT);
        let test = move || {
            let mut case = Case::new();
            case.scan(ScanSpec { state: 0, heads: groups * group, groups, head_dim, size });
            case.check(context, cache_type, &RECURRENT)
        };
        tests.push((format!("scans of {group} heads of {head_dim} by {size}"), Box::new(test)));
    }
    for DeltaSpec { key_heads, value_heads, order, head_dim, eps, .. } in needs.deltas.iter().copied() {
        let group = value_heads / key_heads;
        let test = move || {
            let mut case = Case::new();
            case.delta(DeltaSpec { state: 0, key_heads: 2, value_heads: 2 * group, order, head_dim, eps });
            case.check(context, cache_type, &RECURRENT)
        };
        tests.push((format!("the gated delta rule with {group} heads of {head_dim}, {order:?}"), Box::new(test)));
    }
}

/// Returns 0 if the kernels find the tokens with the largest logits, and NaN otherwise.
fn choices(context: &Arc<Context>) -> Result<f64> {
    let mut case = Case::new();
    let table = case.weight(DType::F32, 2, CHOICES);
    let tokens = case.builder.tokens();
    let row = case.builder.embed(table, tokens);
    let graph = case.builder.finish(row)?;
    let expected: Vec<f32> = bytemuck::pod_collect_to_vec(&case.tensors[0].3[..4 * CHOICES]);
    let mut ids: Vec<u32> = (0..CHOICES as u32).collect();
    ids.sort_by(|a, b| expected[*b as usize].total_cmp(&expected[*a as usize]).then(a.cmp(b)));
    let mut executable = compile(context, &graph, &Weights::from_memory(case.tensors)?, CacheType::F32, 1)?;
    let mut cache = KvCache::new(&CacheLayout::new(&graph, CacheType::F32)?, 1);
    let sequence = cache.open();
    cache.extend(sequence, 1)?;
    let pages = cache.pages(sequence)?;
    let run = Run { len: 1, start: 0, pages, ..Run::default() };
    let best =
        executable.best(&Step { tokens: &[0], runs: &[run], outputs: &[0], ..Step::default() }, MAX_TOP_LOGITS)?;
    let best: Vec<_> = best.unwrap_or_default().iter().flat_map(|top| &top.best).map(|token| token.id).collect();
    let Some(pipelined) = executable.pipelined() else { return Ok(f64::NAN) };
    pipelined.start(&[NextToken::Given(0)], &[run], &[])?;
    let first = pipelined.take()?.ids;
    Ok(if best == ids[..MAX_TOP_LOGITS] && first == [Some(ids[0])] { 0.0 } else { f64::NAN })
}

/// Runs a test, which returns a relative squared error, unless the test `name` passed before.
fn once(context: &Context, name: &str, test: impl FnOnce() -> Result<f64>) -> Result<()> {
    let passed = PASSED.get_or_init(Mutex::default);
    let key = format!("{} {:?} {name}", context.name, context.traits);
    if lock(passed).contains(&key) {
        return Ok(());
    }
    let error = test()?;
    if error.is_nan() || error > TOLERANCE {
        let what = format!(
            "the self-test of {name} came out wrong (a squared error of {error:.1e}): update the driver, or use the CPU"
        );
        return Err(context.error(what));
    }
    lock(passed).insert(key);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{
        case::{compute, decoded, relative_error},
        *,
    };
    use crate::{backend::webgpu::adapter, graph::Activation};

    #[test]
    fn failed_tests_run_again_and_passed_tests_do_not() {
        let Some(adapter) = adapter::all().into_iter().next() else {
            eprintln!("skipped: this machine has no adapter, not even a software one");
            return;
        };
        let context = adapter::open(&adapter, &Default::default()).unwrap();
        for wrong in [f64::NAN, 1.0, f64::INFINITY] {
            let error = once(&context, "nothing", || Ok(wrong)).unwrap_err().to_string();
            assert!(error.contains("the self-test of nothing came out wrong"), "{error}");
        }
        once(&context, "nothing", || Ok(1e-4)).unwrap();
        once(&context, "nothing", || panic!("tested again")).unwrap();
    }

    #[test]
    fn wrong_results_exceed_the_tolerance() {
        let Some(adapter) = adapter::all().into_iter().next() else {
            eprintln!("skipped: this machine has no adapter, not even a software one");
            return;
        };
        let context = Arc::new(adapter::open(&adapter, &Default::default()).unwrap());
        let mut case = Case::new();
        case.products(DType::Q4_K, Activation::Silu, false);
        assert!(case.check(&context, CacheType::F32, &[1]).unwrap() < 1e-3);
        // The reference has other weights than the device, as if a kernel read the wrong weights.
        let mut case = Case::new();
        case.products(DType::Q4_K, Activation::Silu, false);
        let graph = case.builder.finish(case.result.unwrap()).unwrap();
        let mut others = decoded(&case.tensors).unwrap();
        others.get_mut("weight0").unwrap().data.rotate_left(1);
        let expected = reference::logits(&graph, &others, &[3]).unwrap();
        let weights = Weights::from_memory(case.tensors).unwrap();
        let found = compute(&context, &graph, &weights, CacheType::F32, &[1], &[3]).unwrap();
        let error = relative_error(&found, &expected.data);
        assert!(error > 10.0 * TOLERANCE, "{error}");
    }
}
