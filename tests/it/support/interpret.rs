//! Interprets graphs with plain loops in f64 over dense weights, as the reference for passes, plans
//! and backends. It shares no code with the crate's kernels.

use std::{collections::HashMap, ops::Range};

use inkstone::internals::{
    backend::Taps,
    graph::{
        Activation, AttentionSpec, ConvSpec, DeltaSpec, ExpertScore, ExpertsSpec, FusedOp, Glu, Graph, HeadOrder, Op,
        RopeSpec, RopeStyle, RouteSpec, Rows, ScanSpec, Scores, Shape, Source, Value,
    },
    weights::TensorSlice,
};

use super::images;

/// Dense weights by name, row by row.
pub type Weights = HashMap<String, Vec<f32>>;

/// A value, `[rows, width]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    pub rows: usize,
    pub width: usize,
    pub data: Vec<f64>,
}

impl Matrix {
    pub fn new(rows: usize, width: usize, data: Vec<f64>) -> Self {
        assert_eq!(data.len(), rows * width, "{rows} rows of {width}");
        Self { rows, width, data }
    }

    pub fn row(&self, row: usize) -> &[f64] {
        &self.data[row * self.width..][..self.width]
    }

    fn from_rows(width: usize, rows: impl IntoIterator<Item = Vec<f64>>) -> Self {
        let rows: Vec<_> = rows.into_iter().collect();
        Self::new(rows.len(), width, rows.concat())
    }

    fn map_rows(&self, width: usize, f: impl FnMut(&[f64]) -> Vec<f64>) -> Self {
        Self::from_rows(width, (0..self.rows).map(|row| self.row(row)).map(f))
    }
}

/// Consecutive tokens of one sequence.
#[derive(Clone, Debug, Default)]
pub struct Run {
    pub sequence: usize,
    pub start: usize,
    pub len: usize,
    /// The rotary positions of each token, or none.
    pub rotary: Vec<[u32; 3]>,
    /// The tokens that may see each other, as ranges of the run's tokens.
    pub spans: Vec<Range<usize>>,
}

impl Run {
    /// Returns a run of text.
    pub fn new(sequence: usize, start: usize, len: usize) -> Self {
        Self { sequence, start, len, ..Self::default() }
    }
}

/// One ragged batch; `outputs` are indices into `tokens`.
#[derive(Clone, Debug, Default)]
pub struct Step {
    pub tokens: Vec<u32>,
    pub runs: Vec<Run>,
    pub outputs: Vec<usize>,
    /// The tokens that the step gives rows for, and the rows.
    pub rows: Vec<(usize, Vec<f32>)>,
    /// The sets of taps.
    pub taps: Vec<Vec<Taps>>,
}

impl Step {
    /// Returns the number of rows of a value in this step.
    pub fn rows(&self, rows: Rows) -> usize {
        match rows {
            Rows::Fixed(rows) => rows,
            Rows::Tokens => self.tokens.len(),
            Rows::Outputs => self.outputs.len(),
        }
    }

    /// Returns the sequence of each token, and the token's position in the sequence.
    fn positions(&self) -> Vec<(usize, usize)> {
        let runs = self.runs.iter();
        let positions: Vec<_> = runs.flat_map(|r| (r.start..r.start + r.len).map(|p| (r.sequence, p))).collect();
        assert_eq!(positions.len(), self.tokens.len(), "the runs' lengths add up to the tokens");
        positions
    }
}

/// The key and value row of each position of a sequence.
type Cache = Vec<(Vec<f64>, Vec<f64>)>;

/// Runs graphs step by step.
pub struct Interpreter<'w> {
    weights: &'w Weights,
    /// The caches, by sequence and cache layer.
    caches: HashMap<(usize, usize), Cache>,
    /// The state of a recurrent op after each position, by sequence and number of the state.
    states: HashMap<(usize, usize), Vec<Vec<f64>>>,
}

impl<'w> Interpreter<'w> {
    pub fn new(weights: &'w Weights) -> Self {
        Self { weights, caches: HashMap::new(), states: HashMap::new() }
    }

    /// Returns the logits of the step's outputs.
    pub fn run(&mut self, graph: &Graph, step: &Step) -> Matrix {
        self.run_all(graph, step).swap_remove(graph.logits().index()).expect("some node makes the logits")
    }

    /// Returns every value of the graph that is a source or that a node makes.
    pub fn run_all(&mut self, graph: &Graph, step: &Step) -> Vec<Option<Matrix>> {
        let mut values: Vec<_> = graph.values().iter().map(|value| self.source(value, step)).collect();
        for node in graph.nodes() {
            let inputs: Vec<_> =
                node.inputs.iter().map(|id| values[id.index()].clone().expect("comes first")).collect();
            for (id, result) in node.outputs.iter().zip(self.apply(&node.op, &inputs, step)) {
                let shape = graph.shape(*id);
                assert_eq!((result.rows, result.width), (step.rows(shape.rows), shape.width), "{}", node.op);
                values[id.index()] = Some(result);
            }
        }
        values
    }

    fn source(&self, value: &Value, step: &Step) -> Option<Matrix> {
        match &value.source {
            Source::Tokens => Some(token_column(step)),
            Source::Weight { slice, .. } => Some(self.weight(slice, value.shape)),
            Source::Constant(row) => Some(constant_row(row)),
            Source::Node { .. } => None,
        }
    }

    /// Returns a weight in f64.
    pub fn weight(&self, slice: &TensorSlice, shape: Shape) -> Matrix {
        let Rows::Fixed(rows) = shape.rows else { panic!("weight `{slice}` of {shape}") };
        let tensor = self.weights.get(&*slice.name).unwrap_or_else(|| panic!("no weight `{slice}`"));
        let elements = match &slice.rows {
            None => tensor.as_slice(),
            // The rows of a matrix, or the elements of a vector.
            Some(range) => {
                let width = if rows == range.len() { shape.width } else { 1 };
                &tensor[range.start * width..range.end * width]
            }
        };
        Matrix::new(rows, shape.width, elements.iter().copied().map(f64::from).collect())
    }

    /// Returns the results of one op.
    pub fn apply(&mut self, op: &Op, inputs: &[Matrix], step: &Step) -> Vec<Matrix> {
        match (op, inputs) {
            (Op::Embed, [table, tokens]) => {
                vec![tokens.map_rows(table.width, |token| table.row(token[0] as usize).to_vec())]
            }
            (Op::MatMul, [x, w]) => vec![product(x, w)],
            (Op::MatMulHeads { heads }, [x, w]) => vec![products_of_heads(*heads, x, w)],
            (Op::Add, [a, b]) => vec![pairwise(a, b, |a, b| a + b)],
            (Op::Mul, [a, b]) => vec![pairwise(a, b, |a, b| a * b)],
            (Op::Div, [a, b]) => vec![pairwise(a, b, |a, b| a / b)],
            (Op::Activate(activation), [x]) => vec![activate(*activation, x)],
            (Op::SoftCap { cap }, [x]) => vec![x.map_rows(x.width, |x| x.iter().map(|x| soft_cap(*x, *cap)).collect())],
            (Op::Slice { first, len, every }, [x]) => {
                let slice =
                    |row: &[f64]| row.chunks(*every).flat_map(|group| &group[*first..first + len]).copied().collect();
                vec![x.map_rows(x.width / every * len, slice)]
            }
            (Op::Clamp, [x, lower, upper]) => {
                let clamp = |x: &f64| x.max(lower.data[0]).min(upper.data[0]);
                vec![Matrix::new(x.rows, x.width, x.data.iter().map(clamp).collect())]
            }
            (Op::Concat { groups }, operands) => vec![images::concat(operands, *groups)],
            (Op::LayerNorm { eps, groups }, [x, w, b]) => vec![images::layer_norm(x, [w, b], *eps, *groups)],
            (Op::JoinRows { count }, [x]) => vec![images::join_rows(x, *count, step)],
            (Op::InputRows { width }, []) => vec![images::input_rows(*width, step)],
            (Op::PlaceRows { first, marked }, [x]) => vec![images::place_rows(x, *first, *marked, step)],
            (Op::Temper { scale, interval, offset }, [x]) => vec![temper(x, *scale, [*interval, *offset], step)],
            (Op::MixStreams { outputs }, [x, weights]) => vec![mix_streams(x, weights, *outputs)],
            (Op::Deviation { centered }, [x]) => vec![deviation(x, *centered)],
            (Op::AddRows { first }, [x]) => vec![images::mix_rows(x, *first, step, |x, given| x + given)],
            (Op::Interpolate { taps }, [table]) => vec![images::interpolate(table, *taps, step)],
            (Op::RmsNorm { eps }, [x, w]) => vec![rms_norm(x, w, *eps)],
            (Op::Rope(spec), [x, frequencies]) => vec![rope(spec, x, frequencies, step)],
            (Op::Attention(spec), [q, k, v]) => vec![self.attention(spec, [q, k, v], None, step)],
            (Op::Attention(spec), [q, k]) => vec![self.attention(spec, [q, k, k], None, step)],
            (Op::Attention(spec), [q, k, v, sinks]) => {
                vec![self.attention(spec, [q, k, v], Some(sinks.row(0)), step)]
            }
            (Op::Attention(spec), [q]) => vec![self.shared_attention(spec, q, None, step)],
            (Op::ShortConv(spec), [x, w, bias @ ..]) => vec![self.short_conv(spec, [x, w], bias.first(), step)],
            (Op::GatedDelta(spec), [qkv, alpha, beta, a, dt]) => {
                vec![self.gated_delta(spec, [qkv, alpha, beta, a, dt], step)]
            }
            (Op::StateScan(spec), [x, dt, a, bias, d]) => vec![self.state_scan(spec, x, [dt, a, bias, d], step)],
            (Op::SelectOutputs, [x]) => {
                vec![Matrix::from_rows(x.width, step.outputs.iter().map(|row| x.row(*row).to_vec()))]
            }
            (Op::Route(spec), [logits, bias @ ..]) => {
                vec![logits.map_rows(logits.width, |row| route(row, bias.first().map(|bias| bias.row(0)), spec))]
            }
            (Op::Experts(spec), [x, weights, matrices @ ..]) => vec![experts(spec, x, weights, matrices)],
            (Op::Fused(FusedOp::MatMulJoined), [x, matrices @ ..]) => matrices.iter().map(|w| product(x, w)).collect(),
            (Op::Fused(FusedOp::MatMulGlu(activation)), [x, gate, up]) => {
                vec![pairwise(&activate(*activation, &product(x, gate)), &product(x, up), |a, b| a * b)]
            }
            (Op::Fused(FusedOp::MatMulAddRmsNorm { eps }), [x, w, residual, norm]) => {
                let sum = pairwise(residual, &product(x, w), |a, b| a + b);
                let normed = rms_norm(&sum, norm, *eps);
                vec![sum, normed]
            }
            (
                Op::Fused(FusedOp::RotatedAttention { attention, rope: spec, norm }),
                [q, k, v, frequencies, norms @ ..],
            ) => {
                let normed = |x: &Matrix, index: usize| match norm {
                    Some(eps) => rms_norm(x, &norms[index], *eps),
                    None => x.clone(),
                };
                let [q, k] = [normed(q, 0), normed(k, 1)].map(|x| rope(spec, &x, frequencies, step));
                vec![self.attention(attention, [&q, &k, v], None, step)]
            }
            (Op::Fused(FusedOp::MatMulAdd), [x, w, residual]) => vec![pairwise(residual, &product(x, w), |a, b| a + b)],
            (Op::Fused(FusedOp::Gated { activation, norm }), [x, gate, weights @ ..]) => {
                let x = norm.map_or_else(|| x.clone(), |eps| rms_norm(x, &weights[0], eps));
                vec![pairwise(&x, &activate(*activation, gate), |a, b| a * b)]
            }
            (Op::Fused(FusedOp::AddRmsNorm { eps }), [a, b, w]) => {
                let sum = pairwise(a, b, |a, b| a + b);
                let normed = rms_norm(&sum, w, *eps);
                vec![sum, normed]
            }
            (
                Op::Embed
                | Op::MatMul
                | Op::MatMulHeads { .. }
                | Op::Add
                | Op::Mul
                | Op::Div
                | Op::Activate(_)
                | Op::SoftCap { .. }
                | Op::Slice { .. }
                | Op::RmsNorm { .. }
                | Op::Rope(_)
                | Op::Attention(_)
                | Op::ShortConv(_)
                | Op::GatedDelta(_)
                | Op::StateScan(_)
                | Op::SelectOutputs
                | Op::Clamp
                | Op::LayerNorm { .. }
                | Op::JoinRows { .. }
                | Op::InputRows { .. }
                | Op::PlaceRows { .. }
                | Op::AddRows { .. }
                | Op::Temper { .. }
                | Op::MixStreams { .. }
                | Op::Deviation { .. }
                | Op::Interpolate { .. }
                | Op::Route(_)
                | Op::Experts(_)
                | Op::Fused(_),
                _,
            ) => panic!("{op} with {} operands", inputs.len()),
        }
    }

    /// Returns attention over the keys and values that an earlier attention has appended.
    fn shared_attention(&self, spec: &AttentionSpec, q: &Matrix, sinks: Option<&[f64]>, step: &Step) -> Matrix {
        let rows = step.positions().into_iter().enumerate().map(|(row, (sequence, position))| {
            attend(spec, q.row(row), sinks, &self.caches[&(sequence, spec.layer)][step.seen(spec, row, position)])
        });
        Matrix::from_rows(q.width, rows)
    }

    fn attention(
        &mut self,
        spec: &AttentionSpec,
        [q, k, v]: [&Matrix; 3],
        sinks: Option<&[f64]>,
        step: &Step,
    ) -> Matrix {
        for (row, (sequence, position)) in step.positions().into_iter().enumerate() {
            let cache = self.caches.entry((sequence, spec.layer)).or_default();
            assert!(position <= cache.len(), "position {position} of sequence {sequence} leaves a gap");
            cache.truncate(position);
            cache.push((k.row(row).to_vec(), v.row(row).to_vec()));
        }
        self.shared_attention(spec, q, sinks, step)
    }
}

impl Interpreter<'_> {
    /// Returns `update` of each token of the step: it gets the token's row and the state before the
    /// token, which it changes.
    fn recur(
        &mut self,
        number: usize,
        len: usize,
        step: &Step,
        mut update: impl FnMut(usize, &mut Vec<f64>) -> Vec<f64>,
    ) -> Vec<Vec<f64>> {
        let mut rows = Vec::new();
        for (row, (sequence, position)) in step.positions().into_iter().enumerate() {
            let states = self.states.entry((sequence, number)).or_default();
            assert!(position <= states.len(), "position {position} of sequence {sequence} leaves a gap");
            states.truncate(position);
            let mut state = states.last().cloned().unwrap_or_else(|| vec![0.0; len]);
            rows.push(update(row, &mut state));
            states.push(state);
        }
        rows
    }

    fn short_conv(&mut self, spec: &ConvSpec, [x, w]: [&Matrix; 2], bias: Option<&Matrix>, step: &Step) -> Matrix {
        let past = (spec.kernel - 1) * spec.channels;
        let rows = self.recur(spec.state, past, step, |row, inputs| {
            inputs.extend(x.row(row));
            let sum = |channel: usize| -> f64 {
                w.row(channel).iter().enumerate().map(|(tap, w)| w * inputs[tap * spec.channels + channel]).sum()
            };
            let biased = |channel| sum(channel) + bias.map_or(0.0, |bias| bias.data[channel]);
            let sums: Vec<_> = (0..spec.channels).map(biased).collect();
            inputs.drain(..spec.channels);
            if spec.silu { sums.iter().map(|x| x / (1.0 + (-x).exp())).collect() } else { sums }
        });
        Matrix::from_rows(spec.channels, rows)
    }

    fn state_scan(&mut self, spec: &ScanSpec, x: &Matrix, [dt, a, bias, d]: [&Matrix; 4], step: &Step) -> Matrix {
        let ScanSpec { heads, groups, head_dim, size, .. } = *spec;
        let inner = heads * head_dim;
        let rows = self.recur(spec.state, inner * size, step, |row, state| {
            let (x, open) = (x.row(row), dt.row(row));
            let result = |(own, state): (usize, &mut [f64])| {
                let head = own / head_dim;
                let of_group = |first: usize| &x[inner + first + head / (heads / groups) * size..][..size];
                let (b, c) = (of_group(0), of_group(groups * size));
                let length = softplus(open[head] + bias.data[head]);
                for (s, b) in state.iter_mut().zip(b) {
                    *s = (length * a.data[head]).exp() * *s + length * x[own] * b;
                }
                state.iter().zip(c).map(|(s, c)| s * c).sum::<f64>() + d.data[head] * x[own]
            };
            state.chunks_mut(size).enumerate().map(result).collect()
        });
        Matrix::from_rows(inner, rows)
    }

    fn gated_delta(&mut self, spec: &DeltaSpec, [qkv, alpha, beta, a, dt]: [&Matrix; 5], step: &Step) -> Matrix {
        let DeltaSpec { key_heads, value_heads, head_dim: n, .. } = *spec;
        let rows = self.recur(spec.state, value_heads * n * n, step, |row, states| {
            let mut result = Vec::new();
            for (head, state) in states.chunks_mut(n * n).enumerate() {
                let part = |head: usize| &qkv.row(row)[head * n..][..n];
                let key_head = match spec.order {
                    HeadOrder::Tiled => head % key_heads,
                    HeadOrder::Grouped => head * key_heads / value_heads,
                };
                let (q, k) = (part(key_head), part(key_heads + key_head));
                let unit = |x: &[f64]| -> Vec<f64> {
                    let length = (x.iter().map(|x| x * x).sum::<f64>() + f64::from(spec.eps)).sqrt();
                    x.iter().map(|x| x / length).collect()
                };
                let softplus = (alpha.row(row)[head] + dt.row(0)[head]).exp().ln_1p();
                let decay = (a.row(0)[head] * softplus).exp();
                let strength = 1.0 / (1.0 + (-beta.row(row)[head]).exp());
                result.extend(delta(state, &unit(q), &unit(k), part(2 * key_heads + head), decay, strength));
            }
            result
        });
        Matrix::from_rows(value_heads * n, rows)
    }
}

/// Returns `ln(1 + exp(x))`.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// Computes `S = g S; S += k (strength (v - S^T k))^T` and returns `S^T q / sqrt(n)`; `S` is
/// row-major.
fn delta(state: &mut [f64], q: &[f64], k: &[f64], v: &[f64], decay: f64, strength: f64) -> Vec<f64> {
    let n = v.len();
    state.iter_mut().for_each(|s| *s *= decay);
    let read = |state: &[f64], x: &[f64], column: usize| -> f64 { (0..n).map(|i| state[i * n + column] * x[i]).sum() };
    let change: Vec<_> = (0..n).map(|column| strength * (v[column] - read(state, k, column))).collect();
    for (i, row) in state.chunks_mut(n).enumerate() {
        row.iter_mut().zip(&change).for_each(|(s, change)| *s += k[i] * change);
    }
    (0..n).map(|column| read(state, q, column) / (n as f64).sqrt()).collect()
}

/// Returns the token ids, `[tokens, 1]`.
pub fn token_column(step: &Step) -> Matrix {
    Matrix::from_rows(1, step.tokens.iter().map(|token| vec![f64::from(*token)]))
}

/// Returns a constant in f64.
pub fn constant_row(row: &[f32]) -> Matrix {
    Matrix::new(1, row.len(), row.iter().copied().map(f64::from).collect())
}

fn attend(spec: &AttentionSpec, q: &[f64], sinks: Option<&[f64]>, cache: &[(Vec<f64>, Vec<f64>)]) -> Vec<f64> {
    let mut result = Vec::new();
    for head in 0..spec.heads {
        let kv = head / (spec.heads / spec.kv_heads) * spec.head_dim;
        let q = &q[head * spec.head_dim..][..spec.head_dim];
        let Scores { scale, softcap, .. } = spec.scores;
        let scaled = |k: &[f64]| f64::from(scale) * q.iter().zip(&k[kv..]).map(|(q, k)| q * k).sum::<f64>();
        let score = |k: &[f64]| softcap.map_or(scaled(k), |cap| soft_cap(scaled(k), cap));
        let scores: Vec<_> = cache.iter().map(|(k, _)| score(k)).collect();
        let sink = sinks.map_or(f64::NEG_INFINITY, |sinks| sinks[head]);
        let max = scores.iter().copied().fold(sink, f64::max);
        let weights: Vec<_> = scores.iter().map(|score| (score - max).exp()).collect();
        let total: f64 = weights.iter().sum::<f64>() + (sink - max).exp();
        for i in 0..spec.head_dim {
            result.push(weights.iter().zip(cache).map(|(weight, (_, v))| weight * v[kv + i]).sum::<f64>() / total);
        }
    }
    result
}

fn soft_cap(x: f64, cap: f32) -> f64 {
    f64::from(cap) * (x / f64::from(cap)).tanh()
}

fn product(x: &Matrix, w: &Matrix) -> Matrix {
    x.map_rows(w.rows, |x| (0..w.rows).map(|row| x.iter().zip(w.row(row)).map(|(x, w)| x * w).sum()).collect())
}

fn products_of_heads(heads: usize, x: &Matrix, w: &Matrix) -> Matrix {
    let rows = w.rows / heads;
    let head = |x: &[f64], row: usize| x.iter().skip(row / rows * w.width).zip(w.row(row)).map(|(x, w)| x * w).sum();
    x.map_rows(w.rows, |x| (0..w.rows).map(|row| head(x, row)).collect())
}

fn pairwise(a: &Matrix, b: &Matrix, f: impl Fn(f64, f64) -> f64) -> Matrix {
    let one_row = b.rows == 1;
    let rows = (0..a.rows).map(|row| {
        let b = b.row(if one_row { 0 } else { row });
        a.row(row).iter().zip(b.iter().cycle()).map(|(a, b)| f(*a, *b)).collect()
    });
    Matrix::from_rows(a.width, rows)
}

fn activate(activation: Activation, x: &Matrix) -> Matrix {
    let f = match activation {
        Activation::Silu => |x: &f64| x / (1.0 + (-x).exp()),
        Activation::Sigmoid => |x: &f64| 1.0 / (1.0 + (-x).exp()),
        Activation::Relu => |x: &f64| x.max(0.0),
        Activation::SquaredRelu => |x: &f64| x.max(0.0).powi(2),
        Activation::GeluErf => |x: &f64| 0.5 * x * (1.0 + images::erf(x / 2.0_f64.sqrt())),
        Activation::QuickGelu => |x: &f64| x / (1.0 + (-1.702 * x).exp()),
        Activation::Gelu => |x: &f64| {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        },
    };
    Matrix::new(x.rows, x.width, x.data.iter().map(f).collect())
}

fn rms_norm(x: &Matrix, w: &Matrix, eps: f32) -> Matrix {
    x.map_rows(x.width, |row| {
        let mut result = Vec::new();
        for group in row.chunks(w.width) {
            let mean = group.iter().map(|x| x * x).sum::<f64>() / w.width as f64;
            let root = (mean + f64::from(eps)).sqrt();
            result.extend(group.iter().zip(w.row(0)).map(|(x, w)| x / root * w));
        }
        result
    })
}

fn route(logits: &[f64], bias: Option<&[f64]>, spec: &RouteSpec) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<_> = logits.iter().map(|logit| (logit - largest).exp()).collect();
    let probabilities: Vec<_> = match spec.score {
        ExpertScore::Softmax => powers.iter().map(|power| power / powers.iter().sum::<f64>()).collect(),
        ExpertScore::Sigmoid => logits.iter().map(|logit| 1.0 / (1.0 + (-logit).exp())).collect(),
    };
    // Without a bias, the logits tell equal experts apart where their probabilities underflow.
    let mut keys = match bias {
        Some(bias) => probabilities.iter().zip(bias).map(|(probability, bias)| probability + bias).collect(),
        None if spec.groups.is_none() => logits.to_vec(),
        None => probabilities.clone(),
    };
    if let Some(groups) = spec.groups {
        let size = keys.len() / groups.count;
        let best = |group: &[f64]| ranked(group)[..2].iter().map(|index| group[*index]).sum::<f64>();
        let scores: Vec<_> = keys.chunks(size).map(best).collect();
        ranked(&scores)[groups.top_k..].iter().for_each(|group| keys[group * size..][..size].fill(f64::NEG_INFINITY));
    }
    let order = ranked(&keys);
    let selected = &order[..spec.top_k];
    let weights = if spec.score == ExpertScore::Softmax && spec.normalized { powers } else { probabilities };
    let sum: f64 = if spec.normalized { selected.iter().map(|index| weights[*index]).sum() } else { 1.0 };
    let weight = |index: usize| f64::from(spec.scale) * weights[index] / sum;
    (0..logits.len()).map(|index| if selected.contains(&index) { weight(index) } else { 0.0 }).collect()
}

/// Returns the positions of numbers, from the largest on; of equal ones the first comes first.
fn ranked(numbers: &[f64]) -> Vec<usize> {
    let mut order: Vec<_> = (0..numbers.len()).collect();
    order.sort_by(|a, b| numbers[*b].total_cmp(&numbers[*a]));
    order
}

fn experts(spec: &ExpertsSpec, x: &Matrix, weights: &Matrix, rest: &[Matrix]) -> Matrix {
    let (biases, matrices) = if spec.biased { (Some(&rest[0].data), &rest[1..]) } else { (None, rest) };
    let down = &matrices[matrices.len() - 1];
    let (n, m) = (x.width, down.width);
    // One expert's rows of a stack.
    let part = |w: &Matrix, first: usize, rows: usize| {
        Matrix::new(rows, w.width, w.data[first * w.width..][..rows * w.width].to_vec())
    };
    let rows = (0..x.rows).map(|row| {
        let x = Matrix::new(1, n, x.row(row).to_vec());
        let mut sum = vec![0.0; n];
        let selected = (0..spec.experts).filter(|expert| weights.row(row)[*expert] != 0.0).take(spec.top_k);
        for expert in selected {
            let (gate, up) = match matrices {
                [gate_up, _] => (part(gate_up, 2 * expert * m, m), part(gate_up, (2 * expert + 1) * m, m)),
                _ => (part(&matrices[0], expert * m, m), part(&matrices[1], expert * m, m)),
            };
            let biased = |mut y: Matrix, first: usize| {
                let biases = biases.map(|biases| &biases[first..]).into_iter().flatten();
                y.data.iter_mut().zip(biases).for_each(|(y, bias)| *y += bias);
                y
            };
            let gate = biased(product(&x, &gate), expert * m);
            let up = biased(product(&x, &up), (spec.experts + expert) * m);
            let gated = glu(spec.glu, &gate, &up);
            let y = product(&gated, &part(down, expert * n, n));
            let y = biased(y, 2 * spec.experts * m + expert * n);
            sum.iter_mut().zip(y.row(0)).for_each(|(sum, y)| *sum += weights.row(row)[expert] * y);
        }
        sum
    });
    Matrix::from_rows(n, rows)
}

fn mix_streams(x: &Matrix, weights: &Matrix, outputs: usize) -> Matrix {
    let streams = weights.width / outputs;
    let part = x.width / streams;
    let rows = (0..x.rows).map(|row| {
        let sum = |output: usize, column: usize| {
            let weight = |stream: usize| weights.row(row)[output * streams + stream];
            (0..streams).map(|stream| weight(stream) * x.row(row)[stream * part + column]).sum()
        };
        (0..outputs * part).map(|column| sum(column / part, column % part)).collect()
    });
    Matrix::from_rows(outputs * part, rows)
}

fn deviation(x: &Matrix, centered: bool) -> Matrix {
    x.map_rows(1, |row| {
        let mean = |numbers: &mut dyn Iterator<Item = f64>| numbers.sum::<f64>() / row.len() as f64;
        let center = if centered { mean(&mut row.iter().copied()) } else { 0.0 };
        vec![mean(&mut row.iter().map(|x| (x - center).powi(2))).sqrt()]
    })
}

fn temper(x: &Matrix, scale: f32, [interval, offset]: [usize; 2], step: &Step) -> Matrix {
    let mut positions = step.positions().into_iter();
    x.map_rows(x.width, |row| {
        let (_, position) = positions.next().expect("a position for each row");
        let steps = ((position + offset) as f64 / interval as f64).floor();
        row.iter().map(|x| x * (1.0 + f64::from(scale) * (1.0 + steps).ln())).collect()
    })
}

fn glu(glu: Glu, gate: &Matrix, up: &Matrix) -> Matrix {
    match glu {
        Glu::Plain(activation) => pairwise(&activate(activation, gate), up, |a, b| a * b),
        Glu::Clamped => pairwise(gate, up, |gate, up| {
            let gate = gate.min(7.0);
            gate / (1.0 + (-1.702 * gate).exp()) * (up.clamp(-7.0, 7.0) + 1.0)
        }),
    }
}

fn rope(spec: &RopeSpec, x: &Matrix, frequencies: &Matrix, step: &Step) -> Matrix {
    let pairs = frequencies.width;
    let mut positions = step.rotary_positions().into_iter();
    x.map_rows(x.width, |row| {
        let positions = positions.next().expect("positions for each row");
        let mut result = row.to_vec();
        for head in (0..row.len()).step_by(spec.head_dim) {
            for pair in 0..pairs {
                let (a, b) = match spec.style {
                    RopeStyle::Adjacent => (head + 2 * pair, head + 2 * pair + 1),
                    RopeStyle::Halves => (head + pair, head + pair + pairs),
                    RopeStyle::Quarters if pair < pairs / 2 => (head + pair, head + pair + pairs / 2),
                    RopeStyle::Quarters => (head + pair + pairs / 2, head + pair + pairs),
                };
                let (sin, cos) = (images::position(spec.axes, pair, positions) * frequencies.row(0)[pair]).sin_cos();
                result[a] = row[a] * cos - row[b] * sin;
                result[b] = row[a] * sin + row[b] * cos;
            }
        }
        result
    })
}
