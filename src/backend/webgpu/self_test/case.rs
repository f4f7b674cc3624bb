//! Builds small graphs with random weights, and measures the error of an adapter's results.

use std::{collections::HashMap, sync::Arc};

use super::{
    super::{context::Context, executable::GpuExecutable, weight_buffers::WeightBuffers},
    dense::DenseMatrix,
    needs::ExpertsSample,
    reference,
};
use crate::{
    DType, Result,
    backend::{Bounds, Executable, LoadProgress, Run, Step},
    graph::{
        Activation, AttentionSpec, Builder, DeltaSpec, ExpertsSpec, Graph, LayerCache, RopeSpec, ScanSpec, Scores,
        ValueId, Window,
    },
    kv_cache::{CacheLayout, CacheType, KvCache, Stage},
    optimize::{Target, optimize},
    plan::Plan,
    quant::{self, UNIT},
    weights::Weights,
};

const WIDTH: usize = 256;
const VOCABULARY: usize = 64;
/// Largest size of attention windows in positions.
const WINDOW: usize = 19;

/// Returns a window of the same kind that matters in a short sequence.
fn narrowed(window: Window) -> Window {
    match window {
        Window::Sliding(size) => Window::Sliding(size.min(WINDOW)),
        Window::Chunk(size) => Window::Chunk(size.min(WINDOW)),
    }
}

/// A small graph with its weights, and the state of the random number generator.
pub(super) struct Case {
    pub builder: Builder,
    pub tensors: Vec<(String, DType, Vec<usize>, Vec<u8>)>,
    random: u64,
    pub result: Option<ValueId>,
}

impl Case {
    pub fn new() -> Self {
        Self { builder: Builder::new(), tensors: vec![], random: 0x9e37_79b9_7f4a_7c15, result: None }
    }

    /// Returns a random number between -1 and 1.
    fn number(&mut self) -> f32 {
        // xorshift64, after Marsaglia 2003.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub fn weight(&mut self, dtype: DType, rows: usize, columns: usize) -> ValueId {
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

    /// Returns blocks of random integers, with scales of about 0.01.
    fn blocks(&mut self, dtype: DType, count: usize) -> Vec<u8> {
        let mut bytes = vec![];
        for _ in 0..count / dtype.block_weights() {
            for (index, field) in quant::format(dtype).fields.iter().enumerate() {
                match (dtype, field) {
                    (DType::MXFP4, 1) => bytes.push(120),
                    (DType::NVFP4, 4) => bytes.extend([8, 9, 10, 11]),
                    // The last field of IQ1_M has four bits of the scale in each of four pairs of
                    // bytes: 2^-7.
                    (DType::IQ1_M, 8) => bytes.extend([0x53, 0x01, 0xac, 0x02, 0x6f, 0x00, 0x91, 0x23]),
                    // The second field of IQ4_XS has the upper bits of its scales.
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

    /// Adds a lookup, and products in all combinations that can be fused: several with one input,
    /// after a norm, with a gate, with a residual.
    pub fn products(&mut self, dtype: DType, activation: Activation, capped: bool) {
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

    /// Adds two layers of experts: one with the weights of a router, one with scaled weights.
    pub fn experts(&mut self, sample: &ExpertsSample) {
        let spec = ExpertsSpec { experts: 5, top_k: 2, glu: sample.glu, biased: false };
        let (mut x, logits) = (self.rows(WIDTH), self.rows(spec.experts));
        let chosen = self.builder.route(logits, spec.top_k);
        let factors = self.builder.constant(vec![0.5; spec.experts]);
        let scaled = self.builder.mul(chosen, factors);
        for weights in [chosen, scaled] {
            let last = sample.formats.len() - 1;
            let stacked = |index| if last == 1 && index == 0 { 2 * spec.experts } else { spec.experts };
            let matrices: Vec<_> = sample
                .formats
                .iter()
                .enumerate()
                .map(|(index, dtype)| self.weight(*dtype, stacked(index) * WIDTH, WIDTH))
                .collect();
            let y = self.builder.experts(x, weights, &matrices, spec);
            // The norm keeps rows as large as in the test of products.
            let norm = self.weight(DType::F32, 1, WIDTH);
            x = self.builder.rms_norm(y, norm, 1e-6);
        }
        self.result = Some(x);
    }

    /// Adds a product of heads, each with its own matrix.
    pub fn heads(&mut self, dtype: DType) {
        const HEADS: usize = 3;
        let x = self.rows(HEADS * WIDTH);
        let matrices = self.weight(dtype, HEADS * WIDTH, WIDTH);
        self.result = Some(self.builder.matmul_heads(x, matrices, HEADS));
    }

    pub fn attention(&mut self, spec: AttentionSpec, rope: Option<RopeSpec>, norm: Option<f32>) {
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
        // A cap and a window that are small enough to matter in a short sequence.
        let Scores { softcap, window, .. } = spec.scores;
        let (softcap, window) = (softcap.map(|_| 0.5), window.map(narrowed));
        let scores = Scores { scale: 1.0 / (dim as f32).sqrt(), softcap, window, sees: Default::default() };
        let cache = LayerCache { kv_heads: 1, head_dim: dim, keys_only: spec.keys_only };
        self.result = Some(match spec.keys_only {
            true => self.builder.attention_to_keys([q, k], cache, group, scores),
            false => self.builder.attention([q, k, v], cache, group, scores),
        });
    }

    pub fn convolution(&mut self, kernel: usize, biased: bool, silu: bool) {
        let x = self.rows(WIDTH);
        let taps = self.weight(DType::F32, WIDTH, kernel);
        self.result = Some(match (biased, silu) {
            (true, _) => {
                let bias = self.weight(DType::F32, 1, WIDTH);
                self.builder.biased_conv(x, taps, bias)
            }
            (false, true) => self.builder.short_conv(x, taps),
            (false, false) => self.builder.linear_conv(x, taps),
        });
    }

    pub fn scan(&mut self, spec: ScanSpec) {
        let ScanSpec { heads, groups, head_dim, size, .. } = spec;
        let [x, dt] = [heads * head_dim + 2 * groups * size, heads].map(|width| self.rows(width));
        let a = self.builder.constant((0..heads).map(|head| -1.0 / (head + 1) as f32).collect::<Vec<_>>());
        let [bias, d] = [0, 1].map(|_| self.weight(DType::F32, 1, heads));
        self.result = Some(self.builder.state_scan([x, dt, a, bias, d], spec));
    }

    /// Adds a gated delta rule, with the norm, the gate and the product that follow in models.
    pub fn delta(&mut self, spec: DeltaSpec) {
        let heads = spec.value_heads;
        let [qkv, alpha, beta] = [(2 * spec.key_heads + heads) * spec.head_dim, heads, heads].map(|n| self.rows(n));
        let a = self.builder.constant((0..heads).map(|head| -1.0 / (head + 1) as f32).collect::<Vec<_>>());
        let dt = self.weight(DType::F32, 1, heads);
        let y = self.builder.gated_delta([qkv, alpha, beta, a, dt], spec);
        let (width, norm) = (heads * spec.head_dim, self.weight(DType::F32, 1, spec.head_dim));
        let (y, gate) = (self.builder.rms_norm(y, norm, spec.eps), self.rows(width));
        let gate = self.builder.silu(gate);
        let y = self.builder.mul(y, gate);
        let dtype = if width.is_multiple_of(UNIT) { DType::Q8_0 } else { DType::F32 };
        let out = self.weight(dtype, WIDTH, width);
        self.result = Some(self.builder.matmul(y, out));
    }

    /// Returns the largest relative squared error of the logits of a step. `steps` are the lengths
    /// of the steps, all of one sequence.
    pub fn check(self, context: &Arc<Context>, cache_type: CacheType, steps: &[usize]) -> Result<f64> {
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
            let error = relative_error(&found[logits.clone()], &expected.data[logits]);
            worst = if error.is_nan() || error > worst { error } else { worst };
        }
        Ok(worst)
    }
}

/// Returns the squared error divided by the sum of squares.
pub(super) fn relative_error(found: &[f32], expected: &[f64]) -> f64 {
    let power: f64 = expected.iter().map(|x| x * x).sum();
    found.iter().zip(expected).map(|(found, expected)| (expected - f64::from(*found)).powi(2)).sum::<f64>() / power
}

pub(super) fn decoded(tensors: &[(String, DType, Vec<usize>, Vec<u8>)]) -> Result<HashMap<String, DenseMatrix>> {
    let decode = |(name, dtype, shape, bytes): &(String, DType, Vec<usize>, Vec<u8>)| {
        let mut floats = vec![0.0; shape.iter().product()];
        quant::dequantize_row(*dtype, bytes, &mut floats)?;
        let width = shape.last().copied().unwrap_or(1);
        Ok((name.clone(), DenseMatrix { width, data: floats.iter().copied().map(f64::from).collect() }))
    };
    tensors.iter().map(decode).collect()
}

pub(super) fn compute(
    context: &Arc<Context>,
    graph: &Graph,
    weights: &Weights,
    cache_type: CacheType,
    steps: &[usize],
    tokens: &[u32],
) -> Result<Vec<f32>> {
    let most = steps.iter().copied().max().unwrap_or(1);
    let mut executable = compile(context, graph, weights, cache_type, most)?;
    let mut cache = KvCache::new(&CacheLayout::new(graph, cache_type)?, tokens.len());
    let sequence = cache.open();
    let (mut found, mut start) = (vec![], 0);
    for &len in steps {
        cache.extend(sequence, len)?;
        let state = cache.advance(sequence, start + len, Stage::Within)?;
        let runs = [Run { len, start, pages: cache.pages(sequence)?, state: state.as_ref(), ..Run::default() }];
        let outputs: Vec<_> = (0..len).collect();
        let step = Step { tokens: &tokens[start..start + len], runs: &runs, outputs: &outputs, ..Step::default() };
        found.extend_from_slice(executable.run(&step)?);
        start += len;
    }
    Ok(found)
}

pub(super) fn compile(
    context: &Arc<Context>,
    graph: &Graph,
    weights: &Weights,
    cache_type: CacheType,
    most: usize,
) -> Result<GpuExecutable> {
    let graph = optimize(graph, &Target { supports: &|_| true, vector: &|_, _| None })?.graph;
    let layout = CacheLayout::new(&graph, cache_type)?;
    let plan = Plan::new(&graph)?;
    let bounds = Bounds::new(&plan, &layout, most, most);
    let buffers = WeightBuffers::new();
    let mut executable = GpuExecutable::new(context.clone(), plan, weights, buffers, layout, bounds)?;
    executable.upload(weights, &LoadProgress::unobserved())?;
    Ok(executable)
}
