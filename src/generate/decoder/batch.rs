//! What a call asks of its sequences, and how that is cut into steps.

use std::borrow::Cow;

use super::{Limits, Wanted};
use crate::kv_cache::{SequenceId, Stage};

/// What a call asks of one sequence.
pub(super) struct Part<'a> {
    pub sequence: SequenceId,
    /// All that is to be computed.
    pub tokens: Cow<'a, [u32]>,
    /// The position of the first.
    pub start: usize,
    /// Logits are wanted from this one on.
    pub wanted_from: usize,
    pub stage: Stage,
}

impl<'a> Part<'a> {
    /// What a run asks of a sequence that holds `held`, of which the cache has those before `start`.
    pub fn new(
        (sequence, new, wanted): (SequenceId, &'a [u32], Wanted),
        held: &[u32],
        start: usize,
        prompt_end: Option<usize>,
    ) -> Self {
        let missing = &held[start..];
        let tokens = if missing.is_empty() { Cow::Borrowed(new) } else { Cow::Owned([missing, new].concat()) };
        let wanted = match wanted {
            Wanted::None => 0,
            Wanted::Last => 1,
            Wanted::All => new.len(),
        };
        let end = Some(held.len() + new.len()).filter(|_| new.len() > 1 && wanted > 0);
        let stage = prompt_end.or(end).map_or(Stage::Within, |end| Stage::Prompt { end });
        Self { sequence, start, wanted_from: tokens.len() - wanted, tokens, stage }
    }
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
