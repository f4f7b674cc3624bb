//! Splits the requests of a call into steps.

use std::{
    borrow::{Borrow, Cow},
    ops::Range,
};

use super::{Limits, LogitsFor, call::Role, images::PlacedImage, sequence::whole_images};
use crate::kv_cache::{SequenceId, Stage};

/// The tokens that a call appends to one sequence.
pub(super) struct Request<'a> {
    pub sequence: SequenceId,
    /// The tokens to compute: those that the cache lacks, and the new ones.
    pub tokens: Cow<'a, [u32]>,
    /// Position of the first token.
    pub start: usize,
    /// Number of tokens in the sequence before the new ones.
    pub held: usize,
    /// The images of the sequence.
    pub images: &'a [PlacedImage],
    /// Index of the first token with logits.
    pub first_output: usize,
    pub stage: Stage,
}

impl<'a> Request<'a> {
    /// Returns the request of a sequence with the tokens `held`; the cache has the first `start` of
    /// them.
    pub fn new(
        (sequence, new, logits_for): (SequenceId, &'a [u32], LogitsFor),
        held: &[u32],
        images: &'a [PlacedImage],
        start: usize,
        role: Role,
    ) -> Self {
        let missing = &held[start..];
        let tokens = if missing.is_empty() { Cow::Borrowed(new) } else { Cow::Owned([missing, new].concat()) };
        let outputs = match logits_for {
            LogitsFor::None => 0,
            LogitsFor::Last => 1,
            LogitsFor::All => new.len(),
        };
        let stage = match role {
            Role::Given if new.len() > 1 && outputs > 0 => Stage::Prompt { end: held.len() + new.len() },
            Role::Given => Stage::Within,
            Role::PromptUntil(end) => Stage::Prompt { end },
            Role::Drafted => Stage::Tentative { kept: held.len() + 1 },
        };
        let first_output = tokens.len() - outputs;
        Self { sequence, start, held: held.len(), images, first_output, tokens, stage }
    }
}

/// Consecutive tokens of a request that one step computes.
pub(super) struct TokenSpan {
    /// Index of the request.
    pub request: usize,
    /// Index of the first token in the request.
    pub from: usize,
    pub len: usize,
}

impl TokenSpan {
    /// Returns the span's tokens in the sequence of its request.
    pub fn range(&self, request: &Request) -> Range<usize> {
        let first = request.start + self.from;
        first..first + self.len
    }
}

/// The next token to compute.
#[derive(Clone, Copy, Default)]
pub(super) struct BatchPosition {
    /// Index of the request.
    pub request: usize,
    /// Index of the token in the request.
    pub token: usize,
}

/// Returns the spans of the next step, as many tokens and outputs as the limits allow, and advances
/// `next`.
pub(super) fn take_spans<'a>(
    requests: &[impl Borrow<Request<'a>>],
    next: &mut BatchPosition,
    limits: Limits,
) -> Vec<TokenSpan> {
    let (mut tokens, mut outputs) = (limits.max_tokens, limits.max_outputs);
    let mut spans = vec![];
    while let Some(request) = requests.get(next.request).map(Borrow::borrow) {
        let from = next.token;
        let without_logits = request.first_output.saturating_sub(from);
        let room = (request.tokens.len() - from).min(tokens).min(without_logits + outputs);
        let first = request.start + from;
        let len = whole_images(request.images, first + room).saturating_sub(first);
        if len == 0 {
            break;
        }
        spans.push(TokenSpan { request: next.request, from, len });
        tokens -= len;
        outputs -= len.saturating_sub(without_logits);
        *next = if from + len == request.tokens.len() {
            BatchPosition { request: next.request + 1, token: 0 }
        } else {
            BatchPosition { request: next.request, token: from + len }
        };
    }
    spans
}
