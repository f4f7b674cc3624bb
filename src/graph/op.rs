//! The ops: a closed list, so that the compiler names every place that a new one still lacks.

use super::{AttentionSpec, ConvSpec, DeltaSpec, ExpertsSpec, FusedOp, RopeSpec};

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

    /// An op that a pass of [`optimize`](crate::optimize) put in the place of several.
    Fused(FusedOp),
}
