//! Defines the attributes of attention and of rotary embedding, and infers the shapes of their
//! results.

use super::{Rows, Shape, infer::mismatch};

/// The pairs of a head's elements that are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopeStyle {
    /// Pairs `(2i, 2i + 1)`.
    Adjacent,
    /// Pairs `(i, i + n / 2)`, with `n` rotated elements.
    Halves,
}

/// The attributes of rotary position embedding ([Su et al.
/// 2021](https://arxiv.org/abs/2104.09864)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeSpec {
    /// The elements that form a pair.
    pub style: RopeStyle,
    /// The number of elements in a head; the first `2 * frequencies` of them are rotated.
    pub head_dim: usize,
}

/// The scale, the cap and the mask of attention's scores before the softmax.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// The factor of the scores.
    pub scale: f32,
    /// The cap `c`, which turns a scaled score `s` into `c tanh(s / c)`
    /// ([Gemma Team 2024](https://arxiv.org/abs/2408.00118)).
    pub softcap: Option<f32>,
    /// The size of the sliding window in positions, the token's own included; `None` for full
    /// attention.
    pub window: Option<usize>,
}

/// Scores with a scale only.
impl From<f32> for Scores {
    fn from(scale: f32) -> Self {
        Self { scale, softcap: None, window: None }
    }
}

/// The attributes of an attention layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionSpec {
    /// The layer's number in [`Graph::caches`](super::Graph::caches).
    pub layer: usize,
    /// The number of query heads; query head `h` reads key-value head `h / (heads / kv_heads)`.
    pub heads: usize,
    /// The number of key-value heads, a divisor of `heads`.
    pub kv_heads: usize,
    /// The number of elements in a head.
    pub head_dim: usize,
    /// The scale, the cap and the mask of the scores.
    pub scores: Scores,
}

impl RopeSpec {
    pub(super) fn infer(&self, inputs: &[Shape]) -> Result<Vec<Shape>, String> {
        match inputs {
            [x, f]
                if x.rows == Rows::Tokens
                    && self.head_dim > 0
                    && x.width.is_multiple_of(self.head_dim)
                    && f.rows == Rows::Fixed(1)
                    && 2 * f.width <= self.head_dim =>
            {
                Ok(vec![*x])
            }
            _ => Err(mismatch("whole heads and at most half as many frequencies as a head has elements", inputs)),
        }
    }
}

impl AttentionSpec {
    pub(super) fn infer(&self, inputs: &[Shape]) -> Result<Vec<Shape>, String> {
        let q = Shape::new(Rows::Tokens, self.heads.saturating_mul(self.head_dim));
        let kv = Shape::new(Rows::Tokens, self.kv_heads.saturating_mul(self.head_dim));
        if self.kv_heads == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            return Err(format!("{} query heads do not divide among {} key-value heads", self.heads, self.kv_heads));
        }
        if self.scores.window == Some(0) {
            return Err("has a window of 0 positions, but needs at least 1".into());
        }
        if inputs == [q, kv, kv] || inputs == [q] {
            Ok(vec![q])
        } else {
            Err(mismatch("q of the heads' width, and k and v or neither", inputs))
        }
    }
}

/// Infers the shapes of attention over rotated queries and keys.
pub(super) fn infer_rotated(
    attention: &AttentionSpec,
    rope: &RopeSpec,
    [q, k, v]: [Shape; 3],
    frequencies: Shape,
) -> Result<Vec<Shape>, String> {
    if rope.head_dim != attention.head_dim {
        return Err(format!(
            "rotates heads of {} elements, but attends to heads of {}",
            rope.head_dim, attention.head_dim
        ));
    }
    rope.infer(&[q, frequencies])?;
    attention.infer(&[q, k, v])
}
