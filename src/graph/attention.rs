//! Defines the attributes of attention and of rotary embedding, and infers the shapes of their
//! results.

use std::ops::Range;

use super::{Rows, Shape, infer::mismatch};

/// The pairs of a head's elements that are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopeStyle {
    /// Pairs `(2i, 2i + 1)`.
    Adjacent,
    /// Pairs `(i, i + n / 2)`, with `n` rotated elements.
    Halves,
    /// Pairs `(i, i + n / 4)` in the first half of the `n` rotated elements, then in the second.
    Quarters,
}

/// The positions that turn the pairs of a head's elements. A token of an image has three: of the
/// image in its sequence, of the token's row and of its column. A token of a text has one, in the
/// place of all three.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RopeAxes {
    /// The first position, for all pairs.
    #[default]
    First,
    /// The first position for this number of pairs, then the second, then the third
    /// ([Wang et al. 2024](https://arxiv.org/abs/2409.12191)).
    Sections([u16; 3]),
    /// The second position for every third pair from pair 1 on, as many as the second number; the
    /// third position likewise from pair 2 on; and the first position for all other pairs
    /// ([Qwen Team 2025](https://arxiv.org/abs/2511.21631)).
    Interleaved([u16; 3]),
}

impl RopeAxes {
    /// Returns the number of the position, from 0 to 2, that turns a pair.
    pub fn axis(self, pair: usize) -> usize {
        match self {
            Self::First => 0,
            Self::Sections(pairs) => {
                let [first, second, _] = pairs.map(usize::from);
                usize::from(pair >= first) + usize::from(pair >= first + second)
            }
            Self::Interleaved(pairs) => {
                let axis = pair % 3;
                if pair < 3 * usize::from(pairs[axis]) { axis } else { 0 }
            }
        }
    }
}

/// The attributes of rotary position embedding ([Su et al.
/// 2021](https://arxiv.org/abs/2104.09864)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeSpec {
    /// The elements that form a pair.
    pub style: RopeStyle,
    /// The number of elements in a head; the first `2 * frequencies` of them are rotated.
    pub head_dim: usize,
    /// The position that turns each pair.
    pub axes: RopeAxes,
}

/// The limit of the positions before a token that its attention sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// This number of positions, the token's own included ([Beltagy et al.
    /// 2020](https://arxiv.org/abs/2004.05150)).
    Sliding(usize),
    /// The positions of the token's chunk: chunks of this number of positions follow one another.
    Chunk(usize),
}

impl Window {
    /// Returns the largest number of positions that a token sees.
    pub fn size(self) -> usize {
        match self {
            Self::Sliding(size) | Self::Chunk(size) => size,
        }
    }

    /// Returns the narrowest window that reaches as far as both windows, or `None` if that is full
    /// attention.
    pub(super) fn joined(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Sliding(a), Self::Sliding(b)) => Some(Self::Sliding(a.max(b))),
            (Self::Chunk(a), Self::Chunk(b)) if a == b => Some(self),
            (Self::Sliding(_) | Self::Chunk(_), _) => None,
        }
    }

    /// Returns the first position that the token at `position` sees. It never decreases with the
    /// position.
    pub fn first_seen(self, position: usize) -> usize {
        match self {
            Self::Sliding(size) => (position + 1).saturating_sub(size),
            Self::Chunk(size) => position - position % size.max(1),
        }
    }
}

/// The positions that a token's attention sees, besides the limit of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sees {
    /// Its own position and all before it.
    #[default]
    Past,
    /// Its own position, all before it, and all of its span.
    PastAndSpan,
    /// All positions of its run.
    Run,
    /// All positions of its span.
    Span,
}

/// The scale, the cap and the mask of attention's scores before the softmax.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// The factor of the scores.
    pub scale: f32,
    /// The cap `c`, which turns a scaled score `s` into `c tanh(s / c)`
    /// ([Gemma Team 2024](https://arxiv.org/abs/2408.00118)).
    pub softcap: Option<f32>,
    /// The limit of the positions before the token; `None` for full attention.
    pub window: Option<Window>,
    /// The positions that a token sees.
    pub sees: Sees,
}

impl Scores {
    /// Returns the positions that a token sees. `run` has the positions of its run, and `span` the
    /// positions of its span, if it is in one.
    pub fn seen(&self, position: usize, run: Range<usize>, span: Option<Range<usize>>) -> Range<usize> {
        let first = self.window.map_or(0, |window| window.first_seen(position));
        let own = position..position + 1;
        match self.sees {
            Sees::Past => first..own.end,
            Sees::PastAndSpan => first..span.map_or(own.end, |span| span.end),
            Sees::Run => run,
            Sees::Span => span.unwrap_or(own),
        }
    }
}

impl Sees {
    /// Returns whether attention reads only keys and values of its own step.
    pub fn only_the_step(self) -> bool {
        match self {
            Self::Past | Self::PastAndSpan => false,
            Self::Run | Self::Span => true,
        }
    }
}

/// Scores with a scale only.
impl From<f32> for Scores {
    fn from(scale: f32) -> Self {
        Self { scale, softcap: None, window: None, sees: Sees::Past }
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
    /// Whether keys are values too ([Shazeer 2019](https://arxiv.org/abs/1911.02150) shares heads,
    /// [DeepSeek-AI 2024](https://arxiv.org/abs/2405.04434) keys and values).
    pub keys_only: bool,
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
                    && 2 * f.width <= self.head_dim
                    && (self.style != RopeStyle::Quarters || f.width.is_multiple_of(2)) =>
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
        if self.scores.window.is_some_and(|window| window.size() == 0) {
            return Err("has a window of 0 positions, but needs at least 1".into());
        }
        let sinks = Shape::new(Rows::Fixed(1), self.heads);
        let fits = match self.keys_only {
            true => inputs == [q, kv] || inputs == [q],
            false => inputs == [q, kv, kv] || inputs == [q] || inputs == [q, kv, kv, sinks],
        };
        if fits {
            Ok(vec![q])
        } else if self.keys_only {
            Err(mismatch("q of the heads' width, and k or nothing", inputs))
        } else {
            Err(mismatch("q of the heads' width, k and v or neither, and with these sinks or none", inputs))
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
    if attention.keys_only {
        return Err("rotates keys that are values too".into());
    }
    rope.infer(&[q, frequencies])?;
    attention.infer(&[q, k, v])
}
