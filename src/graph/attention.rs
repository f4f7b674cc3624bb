//! What attention and the rotation of its queries and keys are made of, and the operands that they take.

use super::{Rows, Shape, infer::mismatch};

/// Which elements of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopeStyle {
    /// Pairs `(2i, 2i + 1)`.
    Adjacent,
    /// Pairs `(i, i + n / 2)`, with `n` rotated elements.
    Halves,
}

/// How rotary position embedding is applied ([Su et al. 2021](https://arxiv.org/abs/2104.09864)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeSpec {
    /// Which elements form a pair.
    pub style: RopeStyle,
    /// Elements in a head; of these the first `2 x frequencies` are rotated.
    pub head_dim: usize,
}

/// What becomes of attention's scores before the softmax.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// What they are multiplied by.
    pub scale: f32,
    /// A score `s`, once scaled, becomes `c tanh(s / c)`, where there is such a `c`
    /// ([Gemma Team 2024](https://arxiv.org/abs/2408.00118)).
    pub softcap: Option<f32>,
    /// How many positions a token sees, the last of them its own; all up to it where there is no such number.
    pub window: Option<usize>,
}

/// Scores that are scaled and nothing else.
impl From<f32> for Scores {
    fn from(scale: f32) -> Self {
        Self { scale, softcap: None, window: None }
    }
}

/// The sizes of an attention layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionSpec {
    /// The layer's number in [`Graph::caches`](super::Graph::caches).
    pub layer: usize,
    /// Query heads; query head `h` reads key-value head `h / (heads / kv_heads)`.
    pub heads: usize,
    /// Key-value heads, a divisor of `heads`.
    pub kv_heads: usize,
    /// Elements in a head.
    pub head_dim: usize,
    /// What becomes of the scores before the softmax.
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
            return Err("a window of no positions".into());
        }
        match inputs == [q, kv, kv] || inputs == [q] {
            true => Ok(vec![q]),
            false => Err(mismatch("q of the heads' width, and k and v or neither", inputs)),
        }
    }
}

/// The shape of what attention over rotated queries and keys comes to.
pub(super) fn rotated(
    attention: &AttentionSpec,
    rope: &RopeSpec,
    [q, k, v]: [Shape; 3],
    frequencies: Shape,
) -> Result<Vec<Shape>, String> {
    if rope.head_dim != attention.head_dim {
        return Err(format!("rotates heads of {} elements, attends to {}", rope.head_dim, attention.head_dim));
    }
    rope.infer(&[q, frequencies])?;
    attention.infer(&[q, k, v])
}
