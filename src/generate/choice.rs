//! Appends tokens to each of several texts in one step, and chooses the tokens that follow.

use super::{
    Decoder,
    continuation::Continuation,
    decoder::{ChoiceAt, Choices},
};
use crate::{Result, kv_cache::SequenceId, sampler::Candidate};

/// A text whose last token is not in its sequence yet.
pub(super) struct DecodingText<'a> {
    pub continuation: &'a Continuation,
    pub sequence: SequenceId,
    /// The last token, and drafts of the tokens after it.
    pub tokens: &'a [u32],
}

/// Appends the tokens of each text to its sequence, in one step. The device chooses the next
/// tokens, or selects the largest logits, if it can and these suffice.
///
/// # Errors
/// Errors of the step.
pub(super) fn step(decoder: &mut Decoder, texts: &[DecodingText<'_>]) -> Result<Choices> {
    let runs: Vec<_> = texts.iter().map(|text| (text.sequence, text.tokens)).collect();
    let count = if texts.iter().all(|text| text.continuation.is_greedy()) {
        None
    } else {
        Some(texts.iter().filter_map(|text| text.continuation.top_count()).max().unwrap_or(0))
    };
    decoder.choose(&runs, count)
}

/// Chooses the token after one of the tokens of a step.
pub(super) fn choose(
    decoder: &mut Decoder,
    choices: &Choices,
    at: ChoiceAt,
    continuation: &mut Continuation,
) -> Result<u32> {
    let vocab_size = decoder.limits().vocab_size;
    match choices {
        Choices::MostProbable(ids) => Ok(ids[at.output]),
        Choices::Logits => {
            let row = at.output * vocab_size..(at.output + 1) * vocab_size;
            continuation.sample(&mut decoder.logits_mut()[row])
        }
        Choices::Top(top) => {
            let top = &top[at.output];
            let best: Vec<_> = top.best.iter().map(|token| Candidate { logit: token.logit, id: token.id }).collect();
            match continuation.sample_top(&best, top.log_sum)? {
                Some(id) => Ok(id),
                None => continuation.sample(decoder.all_logits(at)?),
            }
        }
    }
}
