//! The ops: a closed list, so that the compiler names every place that a new one still lacks.

use super::{AttentionSpec, ConvSpec, DeltaSpec, ExpertsSpec, RopeSpec, Rows, Shape, attention::rotated};

/// A function applied to each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x / (1 + exp(-x))`.
    Silu,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`, the approximation that is commonly used
    /// ([Hendrycks and Gimpel 2016](https://arxiv.org/abs/1606.08415)).
    Gelu,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
}

/// What a node computes. Operands and results are `[rows, width]`; "row-wise" means that a row of the result depends
/// on the same row of the operands alone.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `(table [vocabulary, n], tokens) -> [Tokens, n]`: the table's row for each token id.
    Embed,
    /// `(x [r, k], w [n, k]) -> [r, n]`: `y = x w^T`. Row-wise.
    MatMul,
    /// `(a, b) -> a + b`, where `b` has the shape of `a`, or is one row for all rows, or one number. Row-wise.
    Add,
    /// `(a, b) -> a * b` element by element, with `b` as for `Add`. Row-wise.
    Mul,
    /// `(a, b) -> a / b` element by element, with `b` as for `Add`. Row-wise.
    Div,
    /// `(x) -> f(x)` element by element. Row-wise.
    Activate(Activation),
    /// `(x) -> c tanh(x / c)` element by element. Row-wise.
    SoftCap {
        /// What no element's magnitude exceeds.
        cap: f32,
    },
    /// `(x [r, n]) -> [r, n / every * len]`: of each group of `every` elements the `len` from `first` on. Row-wise.
    Slice {
        /// The first that is taken of a group.
        first: usize,
        /// How many are.
        len: usize,
        /// Elements of a group.
        every: usize,
    },
    /// `(x [r, n], w [1, g]) -> [r, n]`: each group of `g` elements divided by `sqrt(mean(x^2) + eps)`, times `w`
    /// ([Zhang and Sennrich 2019](https://arxiv.org/abs/1910.07467)). `g` divides `n`: the row, or one head. Row-wise.
    RmsNorm {
        /// Added to the mean square.
        eps: f32,
    },
    /// `(x [Tokens, heads * head_dim], frequencies [1, pairs]) -> x rotated` by position times frequency, in radians.
    Rope(RopeSpec),
    /// `(q [Tokens, heads * head_dim], k, v [Tokens, kv_heads * head_dim]) -> [Tokens, heads * head_dim]`: appends `k`
    /// and `v` to the layer's cache of each run's sequence, then causal attention over all that the cache holds. With `q`
    /// alone, attention over what another has appended to that layer.
    Attention(AttentionSpec),
    /// `(x [Tokens, channels], w [channels, kernel]) -> [Tokens, channels]`: a causal convolution of each channel with
    /// its own row of `w`, whose last element is for the token itself, then SiLU. Zeros come before a sequence's start.
    ShortConv(ConvSpec),
    /// `(q|k|v [Tokens, (2 key_heads + value_heads) head_dim], alpha, beta [Tokens, value_heads], a, dt [1, value_heads])
    /// -> [Tokens, value_heads * head_dim]`: the gated delta rule ([Yang et al. 2024](https://arxiv.org/abs/2412.06464)).
    ///
    /// Each value head has a state `S [head_dim, head_dim]`, at first zero, and reads a key head. Queries
    /// and keys are divided by `sqrt(sum(x^2) + eps)`, queries by `sqrt(head_dim)` as well. For each token `S` becomes
    /// `g S + k u^T` with `g = exp(a ln(1 + exp(alpha + dt)))` and `u = (v - g S^T k) / (1 + exp(-beta))`; the result is
    /// `S^T q`.
    GatedDelta(DeltaSpec),
    /// `(x [Tokens, n]) -> [Outputs, n]`: the rows whose logits the step wants.
    SelectOutputs,
    /// `(logits [r, n]) -> [r, n]`: the softmax over the `used` largest of a row, and 0 for the others; of equal ones the
    /// first are taken. It is what a softmax over all gives once those taken are divided by their sum. Row-wise.
    Route {
        /// How many of a row are taken, 1 to `n`.
        used: usize,
    },
    /// `(x [r, n], weights [r, experts], gate [experts * m, n], up [experts * m, n], down [experts * n, m]) -> [r, n]`: the
    /// sum over a row's experts of its weight times `down (f(gate x) * (up x))`, each with its own `m` or `n` rows of the
    /// matrices, which lie one expert after the other. Also with `gate` and `up` in one, `[experts * 2m, n]`, each
    /// expert's gate before its up. An expert whose weight is 0 is not looked at; of more than `used` others the first
    /// are taken. Row-wise.
    Experts(ExpertsSpec),

    /// Fused: `(x, w1, w2, ..) -> (x w1^T, x w2^T, ..)`. Row-wise.
    MatMulJoined,
    /// Fused: `(x, gate, up) -> f(x gate^T) * (x up^T)`. Row-wise.
    MatMulGlu(Activation),
    /// Fused: `(x, w, residual) -> residual + x w^T`. Row-wise.
    MatMulAdd,
    /// Fused: `(a, b, w) -> (a + b, rms_norm(a + b, w))`, the norm over the whole row. Row-wise.
    AddRmsNorm {
        /// Added to the mean square.
        eps: f32,
    },
    /// Fused: `(x, w, residual, norm) -> (residual + x w^T, rms_norm(that, norm))`, the norm over the whole row. Row-wise.
    MatMulAddRmsNorm {
        /// Added to the mean square.
        eps: f32,
    },
    /// Fused: `(q, k, v, frequencies[, q_norm, k_norm])`: attention over rotated queries and keys, which come with the
    /// norms of their heads or without.
    RotatedAttention {
        /// The attention.
        attention: AttentionSpec,
        /// The rotation of queries and keys.
        rope: RopeSpec,
        /// What the heads' norms add to the mean square, where there are norms.
        norm: Option<f32>,
    },
}

impl Op {
    /// The op's name in dumps and messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Embed => "embed",
            Self::MatMul => "matmul",
            Self::Add => "add",
            Self::Mul => "mul",
            Self::Div => "div",
            Self::Activate(Activation::Silu) => "silu",
            Self::Activate(Activation::Gelu) => "gelu",
            Self::SoftCap { .. } => "soft_cap",
            Self::Slice { .. } => "slice",
            Self::Activate(Activation::Sigmoid) => "sigmoid",
            Self::RmsNorm { .. } => "rms_norm",
            Self::Rope(_) => "rope",
            Self::Attention(_) => "attention",
            Self::ShortConv(_) => "short_conv",
            Self::GatedDelta(_) => "gated_delta",
            Self::SelectOutputs => "select_outputs",
            Self::Route { .. } => "route",
            Self::Experts(_) => "experts",
            Self::MatMulJoined => "matmul_joined",
            Self::MatMulGlu(Activation::Silu) => "matmul_swiglu",
            Self::MatMulGlu(Activation::Gelu) => "matmul_geglu",
            Self::MatMulGlu(Activation::Sigmoid) => "matmul_glu",
            Self::MatMulAdd => "matmul_add",
            Self::AddRmsNorm { .. } => "add_rms_norm",
            Self::MatMulAddRmsNorm { .. } => "matmul_add_rms_norm",
            Self::RotatedAttention { .. } => "rotated_attention",
        }
    }

    /// Whether each row of the results depends on the same row of the operands alone, wherever the row stands.
    pub fn is_row_wise(&self) -> bool {
        match self {
            Self::MatMul
            | Self::Add
            | Self::Mul
            | Self::Div
            | Self::Activate(_)
            | Self::SoftCap { .. }
            | Self::Slice { .. }
            | Self::RmsNorm { .. }
            | Self::Route { .. }
            | Self::Experts(_)
            | Self::MatMulJoined
            | Self::MatMulGlu(_)
            | Self::MatMulAdd
            | Self::AddRmsNorm { .. }
            | Self::MatMulAddRmsNorm { .. } => true,
            Self::Embed
            | Self::Rope(_)
            | Self::Attention(_)
            | Self::RotatedAttention { .. }
            | Self::ShortConv(_)
            | Self::GatedDelta(_)
            | Self::SelectOutputs => false,
        }
    }

    /// Whether the result depends on the operands alone and nothing else is changed, so that two equal nodes are one.
    pub fn is_pure(&self) -> bool {
        match self {
            Self::Attention(_) | Self::RotatedAttention { .. } | Self::ShortConv(_) | Self::GatedDelta(_) => false,
            Self::Embed
            | Self::MatMul
            | Self::Add
            | Self::Mul
            | Self::Div
            | Self::Activate(_)
            | Self::SoftCap { .. }
            | Self::Slice { .. }
            | Self::RmsNorm { .. }
            | Self::Rope(_)
            | Self::SelectOutputs
            | Self::Route { .. }
            | Self::Experts(_)
            | Self::MatMulJoined
            | Self::MatMulGlu(_)
            | Self::MatMulAdd
            | Self::AddRmsNorm { .. }
            | Self::MatMulAddRmsNorm { .. } => true,
        }
    }

    /// The operand whose memory the first result may take over, where nothing else reads that operand afterwards.
    pub fn in_place_operand(&self) -> Option<usize> {
        match self {
            Self::Add
            | Self::Mul
            | Self::Div
            | Self::Activate(_)
            | Self::SoftCap { .. }
            | Self::RmsNorm { .. }
            | Self::Rope(_)
            | Self::AddRmsNorm { .. } => Some(0),
            Self::MatMulAdd | Self::MatMulAddRmsNorm { .. } => Some(2),
            Self::Embed
            | Self::MatMul
            | Self::Slice { .. }
            | Self::Attention(_)
            | Self::RotatedAttention { .. }
            | Self::ShortConv(_)
            | Self::GatedDelta(_)
            | Self::SelectOutputs
            | Self::Route { .. }
            | Self::Experts(_)
            | Self::MatMulJoined
            | Self::MatMulGlu(_) => None,
        }
    }

    /// How many results the op makes of this many operands.
    pub(super) fn result_count(&self, operands: usize) -> usize {
        match self {
            Self::MatMulJoined => operands.saturating_sub(1),
            Self::AddRmsNorm { .. } | Self::MatMulAddRmsNorm { .. } => 2,
            Self::Embed
            | Self::MatMul
            | Self::Add
            | Self::Mul
            | Self::Div
            | Self::Activate(_)
            | Self::SoftCap { .. }
            | Self::Slice { .. }
            | Self::RmsNorm { .. }
            | Self::Rope(_)
            | Self::Attention(_)
            | Self::RotatedAttention { .. }
            | Self::ShortConv(_)
            | Self::GatedDelta(_)
            | Self::SelectOutputs
            | Self::Route { .. }
            | Self::Experts(_)
            | Self::MatMulGlu(_)
            | Self::MatMulAdd => 1,
        }
    }

    /// The shapes of the results for operands of these shapes, or what is wrong with the operands.
    pub fn infer(&self, inputs: &[Shape]) -> Result<Vec<Shape>, String> {
        match self {
            Self::Embed => match inputs {
                [Shape { rows: Rows::Fixed(_), width }, Shape { rows: Rows::Tokens, width: 1 }] => {
                    Ok(vec![Shape::new(Rows::Tokens, *width)])
                }
                _ => Err(mismatch("a table and the tokens", inputs)),
            },
            Self::MatMul => products(inputs, 1),
            Self::MatMulJoined => products(inputs, inputs.len().saturating_sub(1)),
            Self::MatMulGlu(_) => match products(inputs, 2)?.as_slice() {
                [gate, up] if gate == up => Ok(vec![*gate]),
                _ => Err(mismatch("a gate and an up matrix of one shape", inputs)),
            },
            Self::MatMulAdd => match inputs {
                [x, w, residual] if products(&[*x, *w], 1)? == [*residual] => Ok(vec![*residual]),
                _ => Err(mismatch("x, a matrix and a residual of the product's shape", inputs)),
            },
            Self::Add | Self::Mul | Self::Div => match inputs {
                [a, b] if a == b || (b.rows == Rows::Fixed(1) && [1, a.width].contains(&b.width)) => Ok(vec![*a]),
                _ => Err(mismatch("two of one shape, or the second one row or one number", inputs)),
            },
            Self::Slice { first, len, every } => match inputs {
                [x] if *every > 0 && x.width.is_multiple_of(*every) && *len > 0 && first + len <= *every => {
                    Ok(vec![Shape::new(x.rows, x.width / every * len)])
                }
                _ => Err(mismatch("whole groups that have what is taken of them", inputs)),
            },
            Self::Activate(_) | Self::SoftCap { .. } => match inputs {
                [x] => Ok(vec![*x]),
                _ => Err(mismatch("one operand", inputs)),
            },
            Self::RmsNorm { .. } => match inputs {
                [x, w] if w.rows == Rows::Fixed(1) && w.width > 0 && x.width.is_multiple_of(w.width) => Ok(vec![*x]),
                _ => Err(mismatch("x and a weight whose width divides that of x", inputs)),
            },
            Self::AddRmsNorm { .. } => match inputs {
                [a, b, w] if a == b && *w == Shape::new(Rows::Fixed(1), a.width) => Ok(vec![*a, *a]),
                _ => Err(mismatch("two of one shape and a weight of their width", inputs)),
            },
            Self::MatMulAddRmsNorm { .. } => match inputs {
                [x, w, residual, norm]
                    if products(&[*x, *w], 1)? == [*residual]
                        && *norm == Shape::new(Rows::Fixed(1), residual.width) =>
                {
                    Ok(vec![*residual, *residual])
                }
                _ => Err(mismatch("x, a matrix, a residual of the product's shape and a weight of its width", inputs)),
            },
            Self::RotatedAttention { attention, rope, norm } => {
                let head = Shape::new(Rows::Fixed(1), attention.head_dim);
                match (inputs, norm) {
                    ([q, k, v, f], None) => rotated(attention, rope, [*q, *k, *v], *f),
                    ([q, k, v, f, q_norm, k_norm], Some(_)) if *q_norm == head && *k_norm == head => {
                        rotated(attention, rope, [*q, *k, *v], *f)
                    }
                    _ => Err(mismatch("q, k, v, frequencies, and with norms one of a head's width each", inputs)),
                }
            }
            Self::Rope(spec) => spec.infer(inputs),
            Self::Attention(spec) => spec.infer(inputs),
            Self::ShortConv(spec) => spec.infer(inputs),
            Self::GatedDelta(spec) => spec.infer(inputs),
            Self::SelectOutputs => match inputs {
                [Shape { rows: Rows::Tokens, width }] => Ok(vec![Shape::new(Rows::Outputs, *width)]),
                _ => Err(mismatch("one operand with a row for each token", inputs)),
            },
            Self::Route { used } => match inputs {
                [logits] if (1..=logits.width).contains(used) => Ok(vec![*logits]),
                _ => Err(mismatch(&format!("one operand at least {used} wide, and a choice of one or more"), inputs)),
            },
            Self::Experts(spec) => spec.infer(inputs),
        }
    }
}

/// The shapes of the products of `inputs[0]` with each of the `n` matrices that follow.
fn products(inputs: &[Shape], n: usize) -> Result<Vec<Shape>, String> {
    let Some((x, matrices)) = inputs.split_first().filter(|(_, matrices)| n > 0 && matrices.len() == n) else {
        return Err(mismatch("x and its matrices", inputs));
    };
    matrices
        .iter()
        .map(|w| match w.rows {
            Rows::Fixed(rows) if w.width == x.width => Ok(Shape::new(x.rows, rows)),
            _ => Err(mismatch("matrices whose columns match x", inputs)),
        })
        .collect()
}

pub(super) fn mismatch(wanted: &str, inputs: &[Shape]) -> String {
    let shapes: Vec<_> = inputs.iter().map(Shape::to_string).collect();
    format!("wants {wanted}, got {}", shapes.join(" "))
}
