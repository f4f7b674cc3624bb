//! How probable the model finds tokens, before any stage of a sampler.

use super::candidates::Candidates;

/// A token and the natural logarithm of its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenLogprob {
    /// The token.
    pub id: u32,
    /// At most 0; negative infinity for one that cannot come.
    pub logprob: f32,
}

/// How probable a token was, and which ones were the most probable in its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// The token itself.
    pub token: TokenLogprob,
    /// As many of the most probable as were asked for, best first.
    pub top: Vec<TokenLogprob>,
}

impl Logprobs {
    /// Those of the token `id`, with the `n` most probable, by the logits of the whole vocabulary.
    pub(crate) fn new(logits: &[f32], id: u32, n: usize) -> Self {
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total = logits.iter().map(|&logit| f64::from(logit - most).exp()).sum::<f64>().ln();
        let of = |id: u32, logit: f32| TokenLogprob { id, logprob: (f64::from(logit - most) - total) as f32 };
        let mut candidates = Candidates::default();
        let top =
            if n == 0 { vec![] } else { candidates.best_of(logits, n).iter().map(|c| of(c.id, c.logit)).collect() };
        Self { token: of(id, logits[id as usize]), top }
    }
}
