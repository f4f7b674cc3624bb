//! The batch of tokens that an executable computes at a time.

use std::ops::Range;

#[cfg(any(feature = "cpu", feature = "wgpu", feature = "metal"))]
use crate::graph::Window;
use crate::kv_cache::{PageId, PageTable, StateUpdate};

/// Consecutive tokens of one sequence within a step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Run<'a> {
    /// Number of tokens. Runs follow one another in the order of the step's tokens.
    pub len: usize,
    /// The position of the first token in its sequence.
    pub start: usize,
    /// The sequence's page tables, `[groups of layers]`, with room for `start + len` positions.
    pub pages: &'a [PageTable],
    /// The states that the run reads and writes, for graphs with recurrent ops. No other run of the
    /// step reads or writes a state that this run writes.
    pub state: Option<&'a StateUpdate>,
    /// The rotary positions of each token: see [`RopeAxes`](crate::graph::RopeAxes). If there are
    /// none, they are the token's position in its sequence.
    pub rotary: &'a [[u32; 3]],
    /// Tokens that may see each other, as ranges of the run's tokens: ascending, without overlap.
    pub spans: &'a [Range<usize>],
}

/// A ragged batch: runs of tokens of several sequences.
#[derive(Clone, Copy, Debug, Default)]
pub struct Step<'a> {
    /// The token ids of all runs, run after run.
    pub tokens: &'a [u32],
    /// The runs. Their lengths add up to the number of tokens, and no two runs write the same
    /// position of a page.
    pub runs: &'a [Run<'a>],
    /// The tokens whose logits the step returns: strictly ascending indices into `tokens`.
    pub outputs: &'a [usize],
    /// Pages to copy, `(from, to)`, in order, before the step writes to any page.
    pub copies: &'a [(PageId, PageId)],
    /// Rows for ops that take them, such as the embeddings of an image.
    pub rows: InputRows<'a>,
    /// The sets of taps of all [`Op::Interpolate`](crate::graph::Op::Interpolate), by number.
    pub taps: &'a [Vec<Taps>],
}

/// Rows that a step gives for some of its tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct InputRows<'a> {
    /// The tokens: strictly ascending indices into the step's tokens.
    pub tokens: &'a [usize],
    /// `[tokens, width]`, row-major, with the width that the graph reads.
    pub elements: &'a [f32],
}

impl<'a> InputRows<'a> {
    /// Returns the row of a token of the step, if it has one.
    pub fn row(&self, token: usize) -> Option<&'a [f32]> {
        let index = self.tokens.binary_search(&token).ok()?;
        let width = self.elements.len() / self.tokens.len();
        self.elements.get(index * width..(index + 1) * width)
    }
}

/// Rows of a table with their weights, whose sum
/// [`Op::Interpolate`](crate::graph::Op::Interpolate) computes for a token.
pub type Taps = [(u32, f32); 4];

#[cfg(any(feature = "cpu", feature = "wgpu", feature = "metal"))]
impl Run<'_> {
    /// Returns the number of positions that the run's tokens see through an attention window.
    pub(super) fn sees(&self, window: Option<Window>) -> usize {
        self.start + self.len - window.map_or(0, |window| window.first_seen(self.start))
    }
}

#[cfg(any(feature = "cpu", feature = "wgpu", feature = "metal"))]
impl Step<'_> {
    /// Returns the number of pages that a group needs to have all pages that the step names.
    pub(super) fn page_count(&self, group: usize) -> usize {
        let in_runs = self.runs.iter().filter_map(|run| run.pages.get(group)).flat_map(PageTable::pages);
        let in_copies = self.copies.iter().flat_map(|(from, to)| [*from, *to]).filter(|page| page.group() == group);
        in_runs.chain(in_copies).map(|page| page.index() + 1).max().unwrap_or(0)
    }
}
