//! What a call asks of its sequences, and how that is cut into steps.

use std::borrow::Cow;

use super::Limits;
use crate::kv_cache::{SequenceId, Stage};

/// What a call asks of one sequence.
pub(super) struct Part<'a> {
    pub sequence: SequenceId,
    /// All that is to be computed.
    pub tokens: Cow<'a, [u32]>,
    /// How many of them, at the end, the caller gave.
    pub new: usize,
    /// The position of the first.
    pub start: usize,
    /// Logits are wanted from this one on.
    pub wanted_from: usize,
    pub stage: Stage,
}

/// Consecutive tokens of a part that one step computes.
pub(super) struct Span {
    pub part: usize,
    pub from: usize,
    pub len: usize,
}

/// The next step's spans, from token `next.1` of part `next.0` on, as many as the limits let in.
pub(super) fn take_spans(parts: &[Part], next: &mut (usize, usize), limits: Limits) -> Vec<Span> {
    let (mut tokens, mut outputs) = (limits.max_tokens, limits.max_outputs);
    let mut spans = vec![];
    while let Some(part) = parts.get(next.0) {
        let from = next.1;
        let unwanted = part.wanted_from.saturating_sub(from);
        let len = (part.tokens.len() - from).min(tokens).min(unwanted + outputs);
        if len == 0 {
            break;
        }
        spans.push(Span { part: next.0, from, len });
        tokens -= len;
        outputs -= len.saturating_sub(unwanted);
        *next = if from + len == part.tokens.len() { (next.0 + 1, 0) } else { (next.0, from + len) };
    }
    spans
}
