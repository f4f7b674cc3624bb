//! Whether an adapter computes what it should: before a model runs, small graphs with its formats and its kind of
//! attention go through the same programs, and are held against plain loops. A driver that is wrong is an error then,
//! rather than a text of garbage.

mod reference;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, OnceLock},
};

use self::reference::Matrix;
use super::{
    best::MOST,
    context::{Context, lock},
    executable::GpuExecutable,
    lower::FEW,
    step::SPLIT,
};
use crate::{
    DType, Result,
    backend::{Bounds, Executable, Run, Step},
    graph::{
        Activation, AttentionSpec, Builder, DeltaSpec, ExpertsSpec, Graph, LayerCache, Op, RopeSpec, Scores, ValueId,
    },
    kv_cache::{CacheLayout, CacheType, KvCache, Stage},
    optimize::{Target, optimize},
    plan::{Operand, Plan},
    quant,
    weights::Weights,
};

/// The most that the squared error may be, as a share of the squares: rounding to 8 bits leaves a thousandth of it, a
/// wrong kernel all.
const TOLERANCE: f64 = 2e-2;
const WIDTH: usize = 256;
const VOCABULARY: usize = 64;
/// Positions that are seen through a window.
const WINDOW: usize = 19;
/// Steps of a sequence with a state, in runs shorter and longer than a convolution.
const RECURRENT: [usize; 4] = [3, 1, FEW + 4, 1];
/// Logits that tokens are chosen from: enough that what workgroups choose is chosen from again.
const CHOICES: usize = 3000;

/// What has been found to be right in this process, by adapter.
static PASSED: OnceLock<Mutex<HashSet<String>>> = OnceLock::new();

/// What a plan needs of an adapter.
struct Needs {
    formats: BTreeSet<u32>,
    activations: Vec<Activation>,
    /// Whether something is capped, apart from attention's scores.
    capped: bool,
    attention: Vec<Attention>,
    experts: Vec<Experts>,
    /// Kernels of short convolutions.
    convolutions: BTreeSet<usize>,
    deltas: Vec<DeltaSpec>,
}

/// Layers of experts: the formats of their matrices, and what their gate goes through.
#[derive(Clone, Debug, PartialEq)]
struct Experts {
    formats: Vec<DType>,
    activation: Activation,
}

#[derive(Clone, Copy, Debug)]
struct Attention {
    spec: AttentionSpec,
    rope: Option<RopeSpec>,
    norm: Option<f32>,
}

/// Tests what this plan needs, unless that was done.
///
/// # Errors
/// [`Error::Device`](crate::Error::Device) that names what came out wrong.
pub(super) fn run(context: &Arc<Context>, plan: &Plan, cache_type: CacheType) -> Result<()> {
    let Needs { formats, activations, capped, attention, experts, convolutions, deltas } = needs(plan);
    let formats = formats.into_iter().filter_map(DType::from_ggml);
    for (dtype, activation) in formats.flat_map(|dtype| activations.iter().map(move |activation| (dtype, *activation)))
    {
        let cap = if capped { ", capped" } else { "" };
        once(context, &format!("products with {dtype} and {activation:?}{cap}"), || {
            let mut case = Case::new();
            case.products(dtype, activation, capped);
            case.check(context, CacheType::F32, &[1, FEW + 4])
        })?;
    }
    for experts in experts {
        once(context, &format!("{experts:?}"), || {
            let mut case = Case::new();
            case.experts(&experts);
            case.check(context, CacheType::F32, &[1, FEW + 4])
        })?;
    }
    // What one workgroup attends to alone, and what several share.
    let sharing = Arc::new(context.with_span(SPLIT / 4));
    let lengths = [(context, vec![3, 1, FEW + 4, 1]), (&sharing, vec![SPLIT + 40, 1])];
    for Attention { spec, rope, norm } in attention {
        let (dim, group) = (spec.head_dim, spec.heads / spec.kv_heads);
        for (context, steps) in &lengths {
            let tokens: usize = steps.iter().sum();
            let Scores { softcap, window, .. } = spec.scores;
            let kind = format!(
                "attention to {tokens} tokens with {group} heads of {dim}, {cache_type:?}, {rope:?}, {norm:?}, softcap {softcap:?}, window {window:?}"
            );
            once(context, &kind, || {
                let mut case = Case::new();
                case.attention(spec, rope, norm);
                case.check(context, cache_type, steps)
            })?;
        }
    }
    for kernel in convolutions {
        once(context, &format!("convolutions over {kernel} tokens"), || {
            let mut case = Case::new();
            case.convolution(kernel);
            case.check(context, cache_type, &RECURRENT)
        })?;
    }
    for DeltaSpec { key_heads, value_heads, head_dim, eps, .. } in deltas {
        let group = value_heads / key_heads;
        once(context, &format!("the gated delta rule with {group} heads of {head_dim}"), || {
            let mut case = Case::new();
            case.delta(DeltaSpec { state: 0, key_heads: 2, value_heads: 2 * group, head_dim, eps });
            case.check(context, cache_type, &RECURRENT)
        })?;
    }
    once(context, "the choice of tokens", || choices(context))
}

/// Whether tokens are chosen that have the largest logits: 0 where all are right.
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
    let mut cache = KvCache::new(1, usize::MAX);
    let sequence = cache.open();
    cache.extend(sequence, 1)?;
    let pages = cache.pages(sequence)?;
    let run = Run { len: 1, start: 0, pages, state: None };
    let best = executable.best(&Step { tokens: &[0], runs: &[run], outputs: &[0], copies: &[] }, MOST)?;
    let best: Vec<_> = best.unwrap_or_default().iter().map(|token| token.id).collect();
    let Some(ahead) = executable.ahead() else { return Ok(f64::NAN) };
    ahead.start(Some(0), run, &[])?;
    let first = ahead.take()?;
    Ok(if best == ids[..MOST] && first == Some(ids[0]) { 0.0 } else { f64::NAN })
}

fn compile(
    context: &Arc<Context>,
    graph: &Graph,
    weights: &Weights,
    cache_type: CacheType,
    most: usize,
) -> Result<GpuExecutable> {
    let graph = optimize(graph, &Target { supports: &|_| true, vector: &|_| None })?.graph;
    let layout = CacheLayout::new(graph.caches(), graph.states(), cache_type)?;
    let plan = Plan::new(&graph)?;
    let bounds = Bounds::new(&plan, most, most);
    GpuExecutable::new(context.clone(), plan, weights, layout, bounds)
}

fn once(context: &Context, what: &str, test: impl FnOnce() -> Result<f64>) -> Result<()> {
    let passed = PASSED.get_or_init(Mutex::default);
    let key = format!("{} {:?} {what}", context.name, context.traits);
    if lock(passed).contains(&key) {
        return Ok(());
    }
    let error = test()?;
    if error.is_nan() || error > TOLERANCE {
        let what = format!(
            "the self-test of {what} came out wrong (a squared error of {error:.1e}): update the driver, or use the CPU"
        );
        return Err(context.error(what));
    }
    lock(passed).insert(key);
    Ok(())
}

fn needs(plan: &Plan) -> Needs {
    let mut needs = Needs {
        formats: BTreeSet::new(),
        activations: vec![],
        capped: false,
        attention: vec![],
        experts: vec![],
        convolutions: BTreeSet::new(),
        deltas: vec![],
    };
    for step in plan.steps() {
        let table = if step.op == Op::Embed { &step.inputs[..1] } else { &[] };
        for operand in step.matrices().iter().chain(table) {
            if let Operand::Weight { dtype, .. } = operand {
                needs.formats.insert(dtype.ggml());
            }
        }
        match &step.op {
            Op::Activate(activation) | Op::MatMulGlu(activation) => needs.activations.push(*activation),
            Op::SoftCap { .. } => needs.capped = true,
            Op::Experts(spec) => {
                let formats = step.matrices().iter().filter_map(|operand| match operand {
                    Operand::Weight { dtype, .. } => Some(*dtype),
                    Operand::Tokens | Operand::Constant(_) | Operand::Slot(_) => None,
                });
                needs.experts.push(Experts { formats: formats.collect(), activation: spec.activation });
            }
            Op::Attention(spec) => needs.attention.push(Attention { spec: *spec, rope: None, norm: None }),
            Op::RotatedAttention { attention, rope, norm } => {
                needs.attention.push(Attention { spec: *attention, rope: Some(*rope), norm: *norm });
            }
            Op::ShortConv(spec) => _ = needs.convolutions.insert(spec.kernel),
            Op::GatedDelta(spec) => needs.deltas.push(*spec),
            _ => {}
        }
    }
    if needs.activations.is_empty() {
        // Products are tested with one in any case.
        needs.activations.push(Activation::Silu);
    }
    needs
}

/// A small graph, its weights, and the numbers they come from.
struct Case {
    builder: Builder,
    tensors: Vec<(String, DType, Vec<usize>, Vec<u8>)>,
    random: u64,
    result: Option<ValueId>,
}

impl Case {
    fn new() -> Self {
        Self { builder: Builder::new(), tensors: vec![], random: 0x9e37_79b9_7f4a_7c15, result: None }
    }

    /// A number between -1 and 1.
    fn number(&mut self) -> f32 {
        // xorshift64, after Marsaglia 2003.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    fn weight(&mut self, dtype: DType, rows: usize, columns: usize) -> ValueId {
        let name = format!("weight{}", self.tensors.len());
        let count = rows * columns;
        let bytes = if dtype.is_float() { self.floats(dtype, count) } else { self.blocks(dtype, count) };
        let shape = if rows == 1 { vec![columns] } else { vec![rows, columns] };
        self.tensors.push((name.clone(), dtype, shape, bytes));
        self.builder.weight(&name, dtype, rows, columns)
    }

    fn floats(&mut self, dtype: DType, count: usize) -> Vec<u8> {
        let mut bytes = vec![];
        for _ in 0..count {
            let x = self.number();
            match dtype {
                DType::F16 => bytes.extend(half::f16::from_f32(x).to_le_bytes()),
                DType::BF16 => bytes.extend(half::bf16::from_f32(x).to_le_bytes()),
                _ => bytes.extend(x.to_le_bytes()),
            }
        }
        bytes
    }

    /// Blocks of any codes, with scales of about a hundredth.
    fn blocks(&mut self, dtype: DType, count: usize) -> Vec<u8> {
        let mut bytes = vec![];
        for _ in 0..count / dtype.block_weights() {
            for (index, field) in quant::format(dtype).fields.iter().enumerate() {
                match (dtype, field) {
                    (DType::MXFP4, 1) => bytes.push(120),
                    // The second field of IQ4_XS holds bits of its scales.
                    (_, 2) if !(dtype == DType::IQ4_XS && index == 1) => {
                        let scale = half::f16::from_f32(0.01 + 0.005 * self.number());
                        bytes.extend(scale.to_le_bytes());
                    }
                    _ => bytes.extend((0..*field).map(|_| (128.0 + 127.0 * self.number()) as u8)),
                }
            }
        }
        bytes
    }

    fn rows(&mut self, width: usize) -> ValueId {
        let table = self.weight(DType::F32, VOCABULARY, width);
        let tokens = self.builder.tokens();
        self.builder.embed(table, tokens)
    }

    /// Looked-up rows, and all that products may be part of: several at once, a norm before, a gate, a residual.
    fn products(&mut self, dtype: DType, activation: Activation, capped: bool) {
        let table = self.weight(dtype, VOCABULARY, WIDTH);
        let tokens = self.builder.tokens();
        let x = self.builder.embed(table, tokens);
        let norm = self.weight(DType::F32, 1, WIDTH);
        let h = self.builder.rms_norm(x, norm, 1e-6);
        let [gate, up] = [0, 1].map(|_| {
            let w = self.weight(dtype, WIDTH, WIDTH);
            self.builder.matmul(h, w)
        });
        let gate = self.builder.activate(activation, gate);
        let h = self.builder.mul(gate, up);
        let down = self.weight(dtype, WIDTH, WIDTH);
        let h = self.builder.matmul(h, down);
        let x = self.builder.add(x, h);
        let h = self.builder.rms_norm(x, norm, 1e-6);
        let logits = self.builder.matmul(h, table);
        self.result = Some(if capped { self.builder.soft_cap(logits, 0.5) } else { logits });
    }

    /// Experts that a softmax chooses, and then those that other weights do.
    fn experts(&mut self, of: &Experts) {
        let spec = ExpertsSpec { experts: 5, used: 2, activation: of.activation };
        let (mut x, logits) = (self.rows(WIDTH), self.rows(spec.experts));
        let chosen = self.builder.route(logits, spec.used);
        let factors = self.builder.constant(vec![0.5; spec.experts]);
        let others = self.builder.mul(chosen, factors);
        for weights in [chosen, others] {
            let last = of.formats.len() - 1;
            let stacked = |index| if last == 1 && index == 0 { 2 * spec.experts } else { spec.experts };
            let matrices: Vec<_> = of
                .formats
                .iter()
                .enumerate()
                .map(|(index, dtype)| self.weight(*dtype, stacked(index) * WIDTH, WIDTH))
                .collect();
            let y = self.builder.experts(x, weights, &matrices, spec);
            // As large as the rows that products are tested with.
            let norm = self.weight(DType::F32, 1, WIDTH);
            x = self.builder.rms_norm(y, norm, 1e-6);
        }
        self.result = Some(x);
    }

    fn attention(&mut self, spec: AttentionSpec, rope: Option<RopeSpec>, norm: Option<f32>) {
        let (dim, group) = (spec.head_dim, spec.heads / spec.kv_heads);
        let [mut q, mut k, v] = [group, 1, 1].map(|heads| self.rows(heads * dim));
        if let Some(eps) = norm {
            let [q_norm, k_norm] = [0, 1].map(|_| self.weight(DType::F32, 1, dim));
            (q, k) = (self.builder.rms_norm(q, q_norm, eps), self.builder.rms_norm(k, k_norm, eps));
        }
        if let Some(rope) = rope {
            let frequencies: Vec<f32> = (0..dim / 2).map(|i| 0.7 / (i + 1) as f32).collect();
            let frequencies = self.builder.constant(frequencies);
            [q, k] = [q, k].map(|x| self.builder.rope(x, frequencies, rope));
        }
        // A cap and a window so small that they matter in a short sequence.
        let Scores { softcap, window, .. } = spec.scores;
        let (softcap, window) = (softcap.map(|_| 0.5), window.map(|window| window.min(WINDOW)));
        let scores = Scores { scale: 1.0 / (dim as f32).sqrt(), softcap, window };
        self.result = Some(self.builder.attention([q, k, v], LayerCache { kv_heads: 1, head_dim: dim }, group, scores));
    }

    fn convolution(&mut self, kernel: usize) {
        let x = self.rows(WIDTH);
        let taps = self.weight(DType::F32, WIDTH, kernel);
        self.result = Some(self.builder.short_conv(x, taps));
    }

    fn delta(&mut self, spec: DeltaSpec) {
        let heads = spec.value_heads;
        let [qkv, alpha, beta] = [(2 * spec.key_heads + heads) * spec.head_dim, heads, heads].map(|n| self.rows(n));
        let a = self.builder.constant((0..heads).map(|head| -1.0 / (head + 1) as f32).collect::<Vec<_>>());
        let dt = self.weight(DType::F32, 1, heads);
        self.result = Some(self.builder.gated_delta([qkv, alpha, beta, a, dt], spec));
    }

    /// The squared error as a share of the squares, of the step where it is largest: steps of so many tokens of one
    /// sequence.
    fn check(self, context: &Arc<Context>, cache_type: CacheType, steps: &[usize]) -> Result<f64> {
        let Self { builder, tensors, result, .. } = self;
        let graph = match result {
            Some(result) => builder.finish(result)?,
            None => return Ok(0.0),
        };
        let tokens: Vec<u32> = (0..steps.iter().sum()).map(|i: usize| (i * 7 % VOCABULARY) as u32).collect();
        let expected = reference::logits(&graph, &decoded(&tensors)?, &tokens)?;
        let found = compute(context, &graph, &Weights::from_memory(tensors)?, cache_type, steps, &tokens)?;
        let (mut worst, mut start) = (0.0, 0);
        for step in steps {
            let logits = start..start + step * expected.width;
            start = logits.end;
            let error = share_of_error(&found[logits.clone()], &expected.data[logits]);
            worst = if error.is_nan() || error > worst { error } else { worst };
        }
        Ok(worst)
    }
}

fn share_of_error(found: &[f32], expected: &[f64]) -> f64 {
    let power: f64 = expected.iter().map(|x| x * x).sum();
    found.iter().zip(expected).map(|(found, expected)| (expected - f64::from(*found)).powi(2)).sum::<f64>() / power
}

fn decoded(tensors: &[(String, DType, Vec<usize>, Vec<u8>)]) -> Result<HashMap<String, Matrix>> {
    let decode = |(name, dtype, shape, bytes): &(String, DType, Vec<usize>, Vec<u8>)| {
        let mut floats = vec![0.0; shape.iter().product()];
        quant::dequantize_row(*dtype, bytes, &mut floats)?;
        let width = shape.last().copied().unwrap_or(1);
        Ok((name.clone(), Matrix { width, data: floats.iter().copied().map(f64::from).collect() }))
    };
    tensors.iter().map(decode).collect()
}

fn compute(
    context: &Arc<Context>,
    graph: &Graph,
    weights: &Weights,
    cache_type: CacheType,
    steps: &[usize],
    tokens: &[u32],
) -> Result<Vec<f32>> {
    let most = steps.iter().copied().max().unwrap_or(1);
    let mut executable = compile(context, graph, weights, cache_type, most)?;
    let cache = KvCache::new(tokens.len(), usize::MAX);
    let mut cache = if graph.states().is_empty() { cache } else { cache.with_states(usize::MAX) };
    let sequence = cache.open();
    let (mut found, mut start) = (vec![], 0);
    for &len in steps {
        cache.extend(sequence, len)?;
        let state = cache.advance(sequence, start + len, Stage::Within)?;
        let runs = [Run { len, start, pages: cache.pages(sequence)?, state: state.as_ref() }];
        let outputs: Vec<_> = (0..len).collect();
        let step = Step { tokens: &tokens[start..start + len], runs: &runs, outputs: &outputs, copies: &[] };
        found.extend_from_slice(executable.run(&step)?);
        start += len;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::webgpu::adapter;

    #[test]
    fn a_wrong_result_is_an_error_each_time_and_a_right_one_is_tested_once() {
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
    fn a_kernel_that_computes_something_else_is_found_out() {
        let Some(adapter) = adapter::all().into_iter().next() else {
            eprintln!("skipped: this machine has no adapter, not even a software one");
            return;
        };
        let context = Arc::new(adapter::open(&adapter, &Default::default()).unwrap());
        let mut case = Case::new();
        case.products(DType::Q4_K, Activation::Silu, false);
        assert!(case.check(&context, CacheType::F32, &[1]).unwrap() < 1e-3);
        // The reference has other weights than the device: as far off as a kernel that reads the wrong ones.
        let mut case = Case::new();
        case.products(DType::Q4_K, Activation::Silu, false);
        let graph = case.builder.finish(case.result.unwrap()).unwrap();
        let mut others = decoded(&case.tensors).unwrap();
        others.get_mut("weight0").unwrap().data.rotate_left(1);
        let expected = reference::logits(&graph, &others, &[3]).unwrap();
        let weights = Weights::from_memory(case.tensors).unwrap();
        let found = compute(&context, &graph, &weights, CacheType::F32, &[1], &[3]).unwrap();
        let error = share_of_error(&found, &expected.data);
        assert!(error > 10.0 * TOLERANCE, "{error}");
    }
}
