//! Appends a token to each of several texts in one step, and chooses their next tokens.

use super::{Decoder, continuation::Continuation};
use crate::{Result, backend::TopLogits, kv_cache::SequenceId, sampler::Candidate};

/// A text whose last token is not in its sequence yet.
pub(super) struct DecodingText<'a> {
    pub continuation: &'a mut Continuation,
    pub sequence: SequenceId,
    /// The last token.
    pub token: u32,
}

/// Appends the last token of each text to its sequence, in one step, and chooses the next tokens.
/// The device chooses them, or selects the largest logits, if it can and these suffice.
///
/// # Errors
/// Errors of the step. The result of a text is an error if its token cannot be chosen.
pub(super) fn decode(decoder: &mut Decoder, texts: &mut [DecodingText<'_>]) -> Result<Vec<Result<u32>>> {
    let tokens: Vec<_> = texts.iter().map(|text| (text.sequence, text.token)).collect();
    if texts.iter().all(|text| text.continuation.is_greedy()) {
        return Ok(decoder.greedy_many(&tokens)?.into_iter().map(Ok).collect());
    }
    let count = texts.iter().filter_map(|text| text.continuation.top_count()).max().unwrap_or(0);
    let top = decoder.best(&tokens, count)?.map(<[TopLogits]>::to_vec);
    let Some(top) = top else {
        let vocab_size = decoder.limits().vocab_size;
        let rows = texts.iter_mut().zip(decoder.logits_mut().chunks_exact_mut(vocab_size));
        return Ok(rows.map(|(text, row)| text.continuation.sample(row)).collect());
    };
    let mut row = vec![];
    let chosen = texts.iter_mut().zip(top).enumerate().map(|(index, (text, top))| {
        let best: Vec<_> = top.best.iter().map(|token| Candidate { logit: token.logit, id: token.id }).collect();
        match text.continuation.sample_top(&best, top.log_sum, &mut row)? {
            Some(id) => Ok(id),
            None => text.continuation.sample(decoder.all_logits(text.sequence, index)?),
        }
    });
    Ok(chosen.collect())
}
