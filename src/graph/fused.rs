//! Defines the fused ops: each computes several plain ops at once, with the same result.

use super::{Activation, AttentionSpec, Op, RopeSpec};

/// An op that a pass of `optimize` puts in the place of several plain ops.
///
/// A backend says which of them it has kernels for
/// ([`Backend::supports`](crate::backend::Backend::supports)); models never write them. Operands
/// and results are `[rows, width]`, and "row-wise" is as for [`Op`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FusedOp {
    /// `(x, w1, w2, ..) -> (x w1^T, x w2^T, ..)`. Row-wise.
    MatMulJoined,
    /// `(x, gate, up) -> f(x gate^T) * (x up^T)`. Row-wise.
    MatMulGlu(Activation),
    /// `(x, w, residual) -> residual + x w^T`. Row-wise.
    MatMulAdd,
    /// `(a, b, w) -> (a + b, rms_norm(a + b, w))`, the norm over the whole row. Row-wise.
    AddRmsNorm {
        /// Added to the mean square.
        eps: f32,
    },
    /// `(x, w, residual, norm) -> (residual + x w^T, rms_norm(that, norm))`, the norm over the
    /// whole row. Row-wise.
    MatMulAddRmsNorm {
        /// Added to the mean square.
        eps: f32,
    },
    /// `(x, gate[, w]) -> n(x) f(gate)`, where `n` is the RMS norm of each group of as many
    /// elements as `w` has. Row-wise.
    Gated {
        /// The function `f`.
        activation: Activation,
        /// The number added to the mean square of a group; `None` without a norm.
        norm: Option<f32>,
    },
    /// `(q, k, v, frequencies[, q_norm, k_norm])`: attention over rotated queries and keys, whose
    /// heads may be normed before.
    RotatedAttention {
        /// The attention.
        attention: AttentionSpec,
        /// The rotation of queries and keys.
        rope: RopeSpec,
        /// The number added to the mean square in the norms of heads; `None` without norms.
        norm: Option<f32>,
    },
}

impl From<FusedOp> for Op {
    fn from(op: FusedOp) -> Self {
        Self::Fused(op)
    }
}
