//! The log-probabilities of tokens according to the model, before sampling.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::candidates::{Candidate, Candidates};

/// A token and the natural logarithm of its probability.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprob {
    /// The token's id.
    pub id: u32,
    /// The natural logarithm of the probability: at most 0, and negative infinity for probability
    /// 0. It is serialized as null if it is infinite, which JSON cannot express.
    #[serde(serialize_with = "finite_or_null", deserialize_with = "null_as_infinity")]
    pub logprob: f32,
}

/// The log-probability of a token, and the most probable tokens at its position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Logprobs {
    /// The token.
    pub token: TokenLogprob,
    /// The most probable tokens, best first; as many as were requested.
    pub top: Vec<TokenLogprob>,
}

impl Logprobs {
    /// Returns the log-probabilities of the token `id` and the `n` most probable tokens, given the
    /// logits of the whole vocabulary.
    pub(crate) fn new(logits: &[f32], id: u32, n: usize) -> Self {
        let maximum = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total = logits.iter().map(|&logit| f64::from(logit - maximum).exp()).sum::<f64>().ln();
        let of = |id: u32, logit: f32| TokenLogprob { id, logprob: (f64::from(logit - maximum) - total) as f32 };
        let mut candidates = Candidates::default();
        let top =
            if n == 0 { vec![] } else { candidates.best_of(logits, n).iter().map(|c| of(c.id, c.logit)).collect() };
        Self { token: of(id, logits[id as usize]), top }
    }

    /// Returns the same, given the largest logits, and the logarithm of the sum of the exponentials
    /// of all logits. Returns `None` if one of the tokens is not among the largest logits.
    pub(crate) fn of_best(best: &[Candidate], log_sum: f32, id: u32, n: usize) -> Option<Self> {
        let of = |candidate: &Candidate| TokenLogprob { id: candidate.id, logprob: candidate.logit - log_sum };
        let token = best.iter().find(|candidate| candidate.id == id)?;
        Some(Self { token: of(token), top: best.get(..n)?.iter().map(of).collect() })
    }
}

fn finite_or_null<S: Serializer>(logprob: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    logprob.is_finite().then_some(logprob).serialize(serializer)
}

fn null_as_infinity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f32, D::Error> {
    Option::deserialize(deserializer).map(|logprob| logprob.unwrap_or(f32::NEG_INFINITY))
}
