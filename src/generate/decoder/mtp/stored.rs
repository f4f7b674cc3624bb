//! Stores the head's part of a sequence, and restores it.

use super::{super::session::access, HeadRows, MtpHead};
use crate::{
    Result,
    kv_cache::{CachePart, SequenceId, SequencePart},
};

/// The head's rows of a sequence, apart from its cache.
pub struct StoredRows {
    /// Number of rows in the head's cache.
    pub done: usize,
    /// Number of tokens whose hidden rows are known, or were until the head had computed them.
    pub end: usize,
    /// Numbers of the tokens to which the sequence is likely to be truncated.
    pub kept: Vec<usize>,
    /// The hidden rows of tokens `done..end`, and of the tokens `kept`.
    pub rows: Vec<f32>,
}

impl MtpHead {
    /// Returns the number of elements in a hidden row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Makes the pending page copies, and allocates memory for the pages among `parts`.
    pub fn prepare_parts(&mut self, parts: &[CachePart]) -> Result<()> {
        let own: Vec<_> = parts.iter().copied().filter(is_of_head).collect();
        access(&mut *self.executable)?.prepare(&self.copies, &own)?;
        self.copies.clear();
        Ok(())
    }

    /// Returns the size of the head's layers in a part, in bytes.
    pub fn part_bytes(&mut self, part: CachePart) -> Result<usize> {
        let layout = access(&mut *self.executable)?.layout();
        Ok(if is_of_head(&part) { layout.stored_bytes(part) } else { 0 })
    }

    /// Reads the head's layers of a page. The head's cache has `len` positions of the sequence.
    pub fn read_part(&mut self, part: SequencePart, len: usize, bytes: &mut [u8]) -> Result<()> {
        let cache = access(&mut *self.executable)?;
        cache.read(part.part, bytes)?;
        cache.layout().clear_unused(part, len, bytes);
        Ok(())
    }

    /// Writes the head's layers of a page.
    pub fn write_part(&mut self, part: SequencePart, len: usize, bytes: &mut [u8]) -> Result<()> {
        let cache = access(&mut *self.executable)?;
        cache.layout().clear_unused(part, len, bytes);
        cache.write(part.part, bytes)
    }

    /// Returns the rows of a sequence.
    pub fn stored(&mut self, id: SequenceId) -> StoredRows {
        let width = self.width;
        let rows = self.sequences.entry(id).or_default();
        rows.drop_done(width);
        let kept = rows.kept.iter();
        let hidden = rows.hidden.iter().chain(kept.clone().flat_map(|(.., row)| row)).copied().collect();
        StoredRows { done: rows.done, end: rows.end(), kept: kept.map(|(number, ..)| *number).collect(), rows: hidden }
    }

    /// Sets the rows of a sequence of tokens `ids`.
    pub fn restore(&mut self, id: SequenceId, stored: &StoredRows, ids: &[u32]) {
        let StoredRows { done, end, kept, rows } = stored;
        let (hidden, of_kept) = rows.split_at((end - done) * self.width);
        let kept = kept.iter().zip(of_kept.chunks_exact(self.width.max(1)));
        let kept = kept.map(|(number, row)| (*number, ids[*number], row.to_vec())).collect();
        let (ids, hidden) = (ids[*done..*end].to_vec(), hidden.to_vec());
        self.sequences.insert(id, HeadRows { done: *done, first: *done, ids, hidden, images: vec![], kept });
    }
}

/// Returns whether a part has layers of the head, which are in the pages of the first group.
fn is_of_head(part: &CachePart) -> bool {
    matches!(part, CachePart::Page(page) if page.group() == 0)
}
