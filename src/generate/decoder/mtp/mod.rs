//! Drafts tokens with the model's head for multi-token prediction.
//!
//! Row `i` of the head has the model's hidden row `i` and token `i + 1`, and predicts token
//! `i + 2`. Its keys and values are at position `i` of the head's own cache layer, in the pages of
//! the sequence. The head computes its rows later than the model: with the next draft, or when some
//! have come together. Hidden rows of drafted tokens, which the head makes itself, are replaced by
//! the model's as soon as these exist.
//!
//! If the token of a row is one of an image, the head reads the image's row in the place of the
//! token's embedding, as the model does. The rotary position of row `i` is that of token `i`.

mod stored;

use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::Arc,
};

pub(super) use self::stored::StoredRows;
use super::{images::PlacedImage, sequence::RunImages, turns::Turns};
use crate::{
    Result,
    backend::{Executable, InputRows, Run, Step},
    generate::speculation::Drafter,
    kv_cache::{KvCache, PageId, SequenceId},
    sampler::largest,
};

/// Number of rows that the head computes together, when no draft needs them earlier.
const ROWS_TOGETHER: usize = 16;
/// Number of hidden rows that a sequence keeps for truncation.
pub(super) const KEPT_ROWS: usize = 16;

/// The head of a model, and its part of each sequence.
pub struct MtpHead {
    executable: Box<dyn Executable>,
    /// The number of elements in a hidden row.
    width: usize,
    /// Whether the executable reads the rows of images.
    reads_images: bool,
    /// The largest number of tokens in one step.
    max_tokens: usize,
    /// Page copies that the head's next step has to make.
    copies: Vec<(PageId, PageId)>,
    sequences: HashMap<SequenceId, HeadRows>,
}

/// The head's part of a sequence.
#[derive(Clone, Debug, Default)]
struct HeadRows {
    /// Number of rows in the head's cache.
    done: usize,
    /// The tokens from number `first` on, as far as the model has computed them.
    first: usize,
    ids: Vec<u32>,
    /// Their hidden rows, `[ids, width]`.
    hidden: Vec<f32>,
    images: Vec<PlacedImage>,
    /// Tokens to which the sequence is likely to be truncated: number, id and hidden row.
    kept: VecDeque<(usize, u32, Vec<f32>)>,
}

/// Rows of a sequence that the head is to compute.
struct RowsToCompute<'a> {
    range: Range<usize>,
    /// The next token of each row.
    ids: &'a [u32],
    /// The head's own hidden row, for a row that the model has not computed.
    own: Option<&'a [f32]>,
    /// The indices of the rows after which logits are computed.
    outputs: &'a [usize],
}

/// Tokens that the model has computed.
pub(super) struct ComputedTokens<'a> {
    /// The number of the first token in its sequence.
    pub start: usize,
    pub ids: &'a [u32],
    /// Their hidden rows.
    pub hidden: &'a [f32],
    /// The lengths of the sequence to which it is likely to be truncated.
    pub checkpoints: &'a [usize],
}

impl HeadRows {
    /// Returns the number of tokens whose hidden rows are known, or were until the head had
    /// computed them.
    fn end(&self) -> usize {
        self.first + self.ids.len()
    }

    fn append(&mut self, tokens: &ComputedTokens<'_>, width: usize) {
        let &ComputedTokens { start, ids, hidden, checkpoints } = tokens;
        let known = self.end().saturating_sub(start).min(ids.len());
        if start <= self.end() {
            self.ids.extend_from_slice(&ids[known..]);
            self.hidden.extend_from_slice(&hidden[known * width..]);
        }
        for len in checkpoints.iter().filter(|len| (start + 1..=start + ids.len()).contains(len)) {
            let index = len - 1 - start;
            if self.kept.len() == KEPT_ROWS {
                self.kept.pop_front();
            }
            self.kept.push_back((len - 1, ids[index], hidden[index * width..(index + 1) * width].to_vec()));
        }
    }

    /// Drops the hidden rows that the head has computed.
    fn drop_done(&mut self, width: usize) {
        let count = self.done.saturating_sub(self.first).min(self.ids.len());
        self.ids.drain(..count);
        self.hidden.drain(..count * width);
        self.first += count;
    }

    /// Shortens the sequence to `len` tokens, of which the model's cache has `cached`. Returns the
    /// number of tokens in the cache from which the model has to go on.
    fn truncate(&mut self, len: usize, cached: usize, width: usize) -> usize {
        self.kept.retain(|(number, ..)| *number < len);
        self.images.retain(|image| image.start < len);
        // A row has the next token, and its position has to be in the cache.
        self.done = self.done.min(len.saturating_sub(1)).min(cached);
        if self.first <= self.done {
            self.ids.truncate(len - self.first);
            self.hidden.truncate((len - self.first) * width);
        } else {
            self.first = self.done;
            self.ids.clear();
            self.hidden.clear();
            if let Some((_, id, row)) = self.kept.iter().find(|(number, ..)| *number == self.done && *number < cached) {
                self.ids.push(*id);
                self.hidden.extend_from_slice(row);
            }
        }
        cached.min(self.end())
    }
}

impl MtpHead {
    /// Returns the head of an executable that takes rows of `width` elements and up to `max_tokens`
    /// tokens in a step.
    pub fn new(executable: Box<dyn Executable>, width: usize, max_tokens: usize) -> Self {
        Self { executable, width, reads_images: false, max_tokens, copies: vec![], sequences: HashMap::new() }
    }

    /// Gives the executable the rows of images: after each hidden row an element that is not 0 for
    /// a token of an image, and the image's row.
    pub fn reading_images(self, reads_images: bool) -> Self {
        Self { reads_images, ..self }
    }

    /// Returns the device memory in use, in bytes.
    pub(super) fn device_bytes(&self) -> u64 {
        self.executable.usage().device_bytes
    }

    /// Adds page copies, which the head makes in its own cache layer.
    pub(super) fn add_copies(&mut self, copies: &[(PageId, PageId)]) {
        // Its layer has full attention, as the first group has.
        self.copies.extend(copies.iter().filter(|(from, _)| from.group() == 0));
    }

    pub(super) fn fork(&mut self, id: SequenceId, fork: SequenceId) {
        if let Some(rows) = self.sequences.get(&id).cloned() {
            self.sequences.insert(fork, rows);
        }
    }

    /// Replaces the rows of `id` by those of `source`.
    pub(super) fn replace(&mut self, id: SequenceId, source: SequenceId) {
        self.close(id);
        self.fork(source, id);
    }

    pub(super) fn close(&mut self, id: SequenceId) {
        self.sequences.remove(&id);
    }

    /// Forgets the images of a sequence until it grows again.
    pub(super) fn drop_images(&mut self, id: SequenceId) {
        self.sequences.entry(id).and_modify(|rows| rows.images.clear());
    }

    /// Returns the number of tokens that [`truncate`](Self::truncate) would return.
    pub(super) fn reach(&self, id: SequenceId, len: usize, cached: usize) -> usize {
        self.sequences.get(&id).map_or(cached, |rows| rows.clone().truncate(len, cached, self.width))
    }

    /// Shortens a sequence to `len` tokens, of which the cache has `cached`, and returns the number
    /// of tokens that the cache may have, so that all hidden rows that the head needs are known.
    pub(super) fn truncate(&mut self, id: SequenceId, len: usize, cached: usize) -> usize {
        let width = self.width;
        self.sequences.get_mut(&id).map_or(cached, |rows| rows.truncate(len, cached, width))
    }

    /// Takes tokens that the model has computed, with the images of the sequence, and computes
    /// their rows if there are many.
    pub(super) fn append(
        &mut self,
        cache: &KvCache,
        id: SequenceId,
        tokens: &ComputedTokens<'_>,
        images: &[PlacedImage],
    ) -> Result<()> {
        let width = self.width;
        let rows = self.sequences.entry(id).or_default();
        rows.append(tokens, width);
        rows.images = images.to_vec();
        loop {
            let rows = self.sequences.entry(id).or_default();
            // The row of the last token needs the next one.
            let end = rows.end().saturating_sub(1).min(cache.len(id)?);
            if end < rows.done + ROWS_TOGETHER.min(self.max_tokens) {
                return Ok(());
            }
            let range = rows.done..end.min(rows.done + self.max_tokens);
            let ids = rows.ids[range.start + 1 - rows.first..range.end + 1 - rows.first].to_vec();
            let rows = RowsToCompute { range: range.clone(), ids: &ids, own: None, outputs: &[] };
            self.with_step(cache, id, rows, |executable, step| executable.run(step).map(drop))?;
            if let Some(rows) = self.sequences.get_mut(&id) {
                rows.done = range.end;
                rows.drop_done(width);
            }
        }
    }

    /// Returns whether a sequence of `len` tokens is complete, so that tokens can be drafted after
    /// its next token.
    pub(super) fn can_draft(&self, id: SequenceId, len: usize) -> bool {
        len > 0 && self.sequences.get(&id).is_some_and(|rows| rows.end() == len && rows.done < len)
    }

    /// Drafts up to `max` tokens after `token`, which follows the sequence's `len` tokens. The
    /// cache has pages for `len + max - 1` positions, of which `cached` are to stay.
    pub(super) fn draft(
        &mut self,
        cache: &KvCache,
        id: SequenceId,
        token: u32,
        [max, cached]: [usize; 2],
        draft: &mut Vec<u32>,
    ) -> Result<()> {
        let rows = self.sequences.entry(id).or_default();
        let (mut number, mut own) = (rows.end() - 1, None);
        let mut ids = rows.ids[rows.done + 1 - rows.first..].to_vec();
        ids.push(token);
        let mut from = rows.done;
        while draft.len() < max {
            let next = self.run(cache, id, from..number + 1, &ids, own.as_deref())?;
            draft.push(next);
            own = Some(self.executable.hidden()?.to_vec());
            number += 1;
            (from, ids) = (number, vec![next]);
        }
        let width = self.width;
        if let Some(rows) = self.sequences.get_mut(&id) {
            rows.done = rows.end().min(cached);
            rows.drop_done(width);
        }
        Ok(())
    }

    /// Returns the logits of the head after `token`, which follows the sequence's tokens.
    pub(super) fn logits(&mut self, cache: &KvCache, id: SequenceId, token: u32) -> Result<Vec<f32>> {
        let rows = self.sequences.entry(id).or_default();
        let range = rows.done..rows.end();
        let ids = [&rows.ids[range.start + 1 - rows.first..], &[token]].concat();
        let rows = RowsToCompute { range, ids: &ids, own: None, outputs: &[ids.len() - 1] };
        self.with_step(cache, id, rows, |executable, step| Ok(executable.run(step)?.to_vec()))
    }

    /// Computes rows of a sequence, and returns the most probable token after the last one.
    fn run(
        &mut self,
        cache: &KvCache,
        id: SequenceId,
        range: Range<usize>,
        ids: &[u32],
        own: Option<&[f32]>,
    ) -> Result<u32> {
        let rows = RowsToCompute { range, ids, own, outputs: &[ids.len() - 1] };
        self.with_step(cache, id, rows, |executable, step| {
            if let Some(top) = executable.best(step, 1)? {
                let first = top.first().and_then(|top| top.best.first());
                return first.map_or(Ok(0), |first| largest(&[first.logit]).map(|_| first.id));
            }
            Ok(largest(executable.run(step)?)?.id)
        })
    }

    fn with_step<T>(
        &mut self,
        cache: &KvCache,
        id: SequenceId,
        computed: RowsToCompute<'_>,
        run: impl FnOnce(&mut dyn Executable, &Step<'_>) -> Result<T>,
    ) -> Result<T> {
        let RowsToCompute { range, ids, own, outputs } = computed;
        let rows = self.sequences.entry(id).or_default();
        let hidden = own.unwrap_or_else(|| {
            let of = |number: usize| (number - rows.first) * self.width;
            &rows.hidden[of(range.start)..of(range.end)]
        });
        let elements = match self.reads_images {
            true => Cow::Owned(with_images(hidden, &rows.images, range.start, self.width)?),
            false => Cow::Borrowed(hidden),
        };
        let images = RunImages::new(&rows.images, range.clone());
        let tokens: Vec<_> = (0..ids.len()).collect();
        let run_of_rows = Run {
            len: ids.len(),
            start: range.start,
            pages: &cache.pages(id)?[..1],
            rotary: &images.rotary,
            ..Run::default()
        };
        let step = Step {
            tokens: ids,
            runs: &[run_of_rows],
            outputs,
            copies: &self.copies,
            rows: InputRows { tokens: &tokens, elements: &elements },
            ..Step::default()
        };
        let result = run(&mut *self.executable, &step)?;
        self.copies.clear();
        Ok(result)
    }
}

/// Returns the hidden rows from number `first` on, each with an element that is not 0 if its token,
/// the next one, is one of an image, and the image's row.
fn with_images(hidden: &[f32], images: &[PlacedImage], first: usize, width: usize) -> Result<Vec<f32>> {
    let mut elements = Vec::with_capacity(hidden.len() * 2 + hidden.len() / width);
    for (token, hidden) in (first + 1..).zip(hidden.chunks_exact(width)) {
        elements.extend_from_slice(hidden);
        match images.iter().find_map(|image| image.row(token).transpose()).transpose()? {
            Some(row) => {
                elements.push(1.0);
                elements.extend_from_slice(&row[..width]);
            }
            None => elements.resize(elements.len() + 1 + width, 0.0),
        }
    }
    Ok(elements)
}

/// Drafts the tokens of a sequence.
pub(in crate::generate) struct MtpDrafter {
    pub(super) turns: Arc<Turns>,
    pub(super) sequence: SequenceId,
}

impl Drafter for MtpDrafter {
    fn draft(&mut self, ids: &[u32], max: usize, draft: &mut Vec<u32>) -> Result<()> {
        let Self { turns, sequence } = self;
        turns.with_engine(|engine| engine.draft(*sequence, ids, max, draft))
    }
}
