//! Defines the ops, as a closed list: the compiler names every `match` that lacks a new op.

use super::{AttentionSpec, ConvSpec, DeltaSpec, ExpertsSpec, FusedOp, RopeSpec, RouteSpec, ScanSpec};

/// A function applied to each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `x / (1 + exp(-x))`.
    Silu,
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`, the usual approximation
    /// ([Hendrycks and Gimpel 2016](https://arxiv.org/abs/1606.08415)).
    Gelu,
    /// `x / 2 * (1 + erf(x / sqrt(2)))`
    /// ([Hendrycks and Gimpel 2016](https://arxiv.org/abs/1606.08415)).
    GeluErf,
    /// `x / (1 + exp(-1.702 x))`, a coarser approximation of the same function.
    QuickGelu,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)^2` ([So et al. 2021](https://arxiv.org/abs/2109.08668)).
    SquaredRelu,
}

/// An op. Operands and results are `[rows, width]`. "Row-wise" means that each row of the result
/// depends only on the same row of the operands.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// `(table [vocabulary, n], tokens) -> [Tokens, n]`: the table's row for each token id.
    Embed,
    /// `(x [r, k], w [n, k]) -> [r, n]`: `y = x w^T`. Row-wise.
    MatMul,
    /// `(x [r, heads * k], w [heads * n, k]) -> [r, heads * n]`: `y = x w^T` for each head, with
    /// its own `k` elements of the row and `n` rows of the matrix. `k` is a multiple of
    /// [`HEAD_UNIT`](super::HEAD_UNIT). Row-wise.
    MatMulHeads {
        /// The number of heads.
        heads: usize,
    },
    /// `(a, b) -> a + b`; `b` has the shape of `a`, or is one row for all rows, or one number.
    /// Row-wise.
    Add,
    /// `(a, b) -> a * b` element by element, with `b` as for `Add`. Row-wise.
    Mul,
    /// `(a, b) -> a / b` element by element, with `b` as for `Add`. Row-wise.
    Div,
    /// `(x) -> f(x)` element by element. Row-wise.
    Activate(Activation),
    /// `(x) -> c tanh(x / c)` element by element. Row-wise.
    SoftCap {
        /// The limit of the elements' magnitude.
        cap: f32,
    },
    /// `(x [r, n], lower, upper [1, 1]) -> min(max(x, lower), upper)` element by element. Row-wise.
    Clamp,
    /// `(a [r, groups * m], b [r, groups * n], ..) -> [r, groups * (m + n + ..)]`: each group of
    /// the rows of all operands, joined. Row-wise.
    Concat {
        /// The number of groups in a row: 1 to join whole rows.
        groups: usize,
    },
    /// `(x [r, m * n], weights [r, outputs * m]) -> [r, outputs * n]`: each of `outputs` parts of a
    /// row is the sum of the `m` parts of the row of `x`, weighted with `m` numbers of its own.
    /// Row-wise.
    MixStreams {
        /// The number of parts in a row of the result.
        outputs: usize,
    },
    /// `(x [r, n]) -> [r, 1]`: `sqrt(mean((x - c)^2))`. Row-wise.
    Deviation {
        /// Whether `c` is the mean of the row; otherwise it is 0.
        centered: bool,
    },
    /// `(x [r, n]) -> [r, n / every * len]`: `len` elements, from `first` on, of each group of
    /// `every` elements. Row-wise.
    Slice {
        /// The position in the group of the first element of the result.
        first: usize,
        /// The number of elements of each group in the result.
        len: usize,
        /// The number of elements in a group.
        every: usize,
    },
    /// `(x [r, n], w [1, g]) -> [r, n]`: each group of `g` elements divided by
    /// `sqrt(mean(x^2) + eps)`, times `w`
    /// ([Zhang and Sennrich 2019](https://arxiv.org/abs/1910.07467)). A group is the row or one
    /// head; `g` divides `n`. Row-wise.
    RmsNorm {
        /// Added to the mean square.
        eps: f32,
    },
    /// `(x [r, n], w, b [1, n]) -> [r, n]`: `(x - mean(x)) / sqrt(variance(x) + eps) * w + b`
    /// ([Ba et al. 2016](https://arxiv.org/abs/1607.06450)), with the mean and the variance of each
    /// of `groups` groups of neighboring elements. Row-wise.
    LayerNorm {
        /// Added to the variance.
        eps: f32,
        /// The number of groups, a divisor of `n`: 1 for the whole row, or the number of heads.
        groups: usize,
    },
    /// `(x [Tokens, heads * head_dim], frequencies [1, pairs]) -> x` with each pair rotated by
    /// position times frequency, in radians.
    Rope(RopeSpec),
    /// `(q [Tokens, heads * head_dim], k, v [Tokens, kv_heads * head_dim])
    /// -> [Tokens, heads * head_dim]`: appends `k` and `v` to the layer's cache of each run's
    /// sequence, then computes attention over the positions that each token sees. A fourth operand
    /// `[1, heads]` are sinks: each head's softmax has this score too, of a value of 0
    /// ([Xiao et al. 2023](https://arxiv.org/abs/2309.17453)). With the operand `q` only, attention
    /// over the keys and values of an earlier attention. With `q` and `k` only, if the attributes
    /// say so, keys are values too.
    Attention(AttentionSpec),
    /// `(x [Tokens, channels], w [channels, kernel]) -> [Tokens, channels]`: a causal convolution
    /// of each channel with its row of `w`, whose last element is for the token itself, plus a
    /// third operand `[1, channels]` if there is one, then SiLU if the attributes say so.
    /// Zeros precede a sequence's first token.
    ShortConv(ConvSpec),
    /// `(q|k|v [Tokens, (2 key_heads + value_heads) head_dim], alpha, beta [Tokens, value_heads],
    /// a, dt [1, value_heads]) -> [Tokens, value_heads * head_dim]`: the gated delta rule
    /// ([Yang et al. 2024](https://arxiv.org/abs/2412.06464)).
    ///
    /// Each value head has a state `S [head_dim, head_dim]`, at first zero, and reads a key head.
    /// Queries and keys are divided by `sqrt(sum(x^2) + eps)`, queries also by `sqrt(head_dim)`.
    /// For each token `S` becomes `g S + k u^T` with `g = exp(a ln(1 + exp(alpha + dt)))` and
    /// `u = (v - g S^T k) / (1 + exp(-beta))`; the result is `S^T q`.
    GatedDelta(DeltaSpec),
    /// `(x|B|C [Tokens, heads head_dim + 2 groups size], dt [Tokens, heads], a, bias, d [1, heads])
    /// -> [Tokens, heads * head_dim]`: the state-space scan of Mamba-2 ([Dao and Gu
    /// 2024](https://arxiv.org/abs/2405.21060)).
    ///
    /// Each head has a state `S [head_dim, size]`, at first zero, and reads `B` and `C` of its
    /// group. For each token `S` becomes `exp(a t) S + t x B^T` with `t = ln(1 + exp(dt + bias))`;
    /// the result is `S C + d x`.
    StateScan(ScanSpec),
    /// `(x [Tokens, n]) -> [Outputs, n]`: the rows whose logits the step returns.
    SelectOutputs,
    /// `(x [Tokens, n]) -> [Outputs, count * n]`: for each output the rows of its token and of the
    /// tokens that follow it, `count` in all, joined.
    JoinRows {
        /// The number of rows that are joined.
        count: usize,
    },
    /// `() -> [Tokens, width]`: the rows that the step gives for tokens, and 0 for all other
    /// tokens.
    InputRows {
        /// The number of elements in a row.
        width: usize,
    },
    /// `(x [Tokens, n]) -> [Tokens, n]`: `x` with `n` elements of the rows that the step gives in
    /// the place of these tokens' rows.
    PlaceRows {
        /// The first of these elements.
        first: usize,
        /// Whether a row has a mark before them, and is only placed if the mark is not 0.
        marked: bool,
    },
    /// `(x [Tokens, n]) -> [Tokens, n]`: `x` plus `n` elements of the rows that the step gives for
    /// tokens.
    AddRows {
        /// The first of these elements.
        first: usize,
    },
    /// `(x [Tokens, n]) -> [Tokens, n]`: each row times
    /// `1 + scale ln(1 + floor((position + offset) / interval))`, which sharpens attention to long
    /// contexts
    /// ([Nakanishi 2025](https://arxiv.org/abs/2501.19399)).
    Temper {
        /// The factor of the logarithm.
        scale: f32,
        /// The number of positions with the same factor, at least 1.
        interval: usize,
        /// The number that is added to a position first.
        offset: usize,
    },
    /// `(table [rows, n]) -> [Tokens, n]`: the weighted sum of rows of the table that the step
    /// names for each token.
    Interpolate {
        /// The number of the step's set of [`Taps`](crate::backend::Taps).
        taps: usize,
    },
    /// `(logits [r, n]) -> [r, n]` or `(logits, bias [1, n]) -> [r, n]`: the weights of the `top_k`
    /// experts with the largest probabilities, plus `bias`, and 0 for all other experts; of equal
    /// ones the first are selected. [`RouteSpec`] describes probabilities and weights. Row-wise.
    Route(RouteSpec),
    /// `(x [r, n], weights [r, experts], gate [experts * m, n], up [experts * m, n],
    /// down [experts * n, m]) -> [r, n]`: the sum over experts of the expert's weight times
    /// `down glu(gate x, up x)`.
    ///
    /// The matrices are stacks: expert after expert, each with its `m` or `n` rows. `gate` and `up`
    /// may be joined in `[experts * 2m, n]`, each expert's gate before its up. An expert with a
    /// weight of 0 is skipped; if more than `top_k` weights are not 0, the first `top_k` count.
    /// Biases come before the matrices, `[1, experts * (2m + n)]`: those of all gates, all ups and
    /// all downs.
    /// Row-wise.
    Experts(ExpertsSpec),

    /// An op that a pass of `optimize` puts in the place of several ops.
    Fused(FusedOp),
}
