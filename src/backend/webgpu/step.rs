//! What changes from step to step, as kernels read it: one buffer of words.
//!
//! | words | hold |
//! |---|---|
//! | 8 | tokens, outputs, splits of the longest sequence, long runs; the rest is free |
//! | a record for each token | nothing, its position, where its sequence's page table begins, the token of the output of the record's number; then for each table of frequencies the cosine and sine of each pair |
//! | 4 for each quad | first token, tokens, first position, where the page's entries begin |
//! | 4 for each block | first token, tokens, first position, where the page table begins |
//! | 11 for each run, with recurrent ops, long runs first | first token, tokens, the state before it plus 1 or 0 for none, the state after it, its first chunk; then for each checkpoint after how many tokens, and the state |
//! | 3 for each chunk of these | the run, the tokens of the run before the chunk, tokens |
//! | the rest | the page tables: for each page of a sequence the page of the first group of layers, of the second, and so on |

use std::sync::Arc;

use super::kernel::Sizes;
use crate::{
    backend::{Run, Step},
    kv_cache::{PAGE_POSITIONS, PageGroup, RUN_CHECKPOINTS},
};

/// Where records begin.
pub(super) const RECORDS: usize = 8;
/// Words of a record before its angles.
const RECORD: usize = 4;
/// Words of a run.
pub(super) const RUN: usize = 5 + 2 * RUN_CHECKPOINTS;
/// Words of a chunk.
pub(super) const RUN_CHUNK: usize = 3;
/// Tokens that a recurrence may take together. A run of as many is long.
pub(super) const CHUNK: usize = 32;
/// Positions that are appended together.
const QUAD: usize = 4;
/// Positions that a workgroup attends to for a single token where the sequence has more than one attends to alone.
pub(super) const SPLIT: usize = 256;

/// Where everything is.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub max_tokens: usize,
    /// The tables of frequencies, whose angles every record has.
    pub frequencies: Vec<Arc<[f32]>>,
    /// Tokens of a block.
    pub block: usize,
    /// Positions that one workgroup attends to alone.
    pub split_alone: usize,
    /// The groups of layers that have page tables.
    pub groups: Vec<PageGroup>,
    /// Whether runs have states.
    pub recurrent: bool,
}

impl Layout {
    pub fn record_words(&self) -> usize {
        self.angles_at(self.frequencies.len())
    }

    /// Where in a record the angles of a table begin.
    pub fn angles_at(&self, table: usize) -> usize {
        RECORD + self.frequencies[..table].iter().map(|row| 2 * row.len()).sum::<usize>()
    }

    pub fn quads_at(&self) -> usize {
        RECORDS + self.max_tokens * self.record_words()
    }

    pub fn blocks_at(&self) -> usize {
        self.quads_at() + 4 * self.max_tokens
    }

    pub fn runs_at(&self) -> usize {
        self.blocks_at() + 4 * self.max_tokens
    }

    pub fn chunks_at(&self) -> usize {
        self.runs_at() + if self.recurrent { RUN * self.max_tokens } else { 0 }
    }

    pub fn tables_at(&self) -> usize {
        self.chunks_at() + if self.recurrent { RUN_CHUNK * self.max_tokens } else { 0 }
    }
}

/// A step in words.
#[derive(Default)]
pub(super) struct Words {
    /// The header and the records.
    pub records: Vec<u32>,
    pub quads: Vec<u32>,
    pub blocks: Vec<u32>,
    pub runs: Vec<u32>,
    pub chunks: Vec<u32>,
    pub tables: Vec<u32>,
}

impl Words {
    pub fn new(layout: &Layout, step: &Step<'_>) -> (Self, Sizes) {
        let mut words = Self::default();
        words.records.resize(RECORDS, 0);
        let (mut token, mut longest) = (0, 0);
        for run in step.runs {
            let table = (layout.tables_at() + words.tables.len()) as u32;
            words.add_tables(layout, run);
            for i in 0..run.len {
                let output = step.outputs.get(token + i).map_or(0, |output| *output as u32);
                words.records.extend([0, (run.start + i) as u32, table, output]);
                for frequencies in &layout.frequencies {
                    words.records.extend(frequencies.iter().flat_map(|frequency| angle(run.start + i, *frequency)));
                }
            }
            words.add_quads(run, token, table as usize);
            for first in (0..run.len).step_by(layout.block) {
                let len = layout.block.min(run.len - first);
                words.blocks.extend([(token + first) as u32, len as u32, (run.start + first) as u32, table]);
            }
            longest = longest.max(run.start + run.len);
            token += run.len;
        }
        let [long_runs, long_chunks] = words.add_states(step.runs);
        let splits = if longest <= layout.split_alone { 1 } else { longest.div_ceil(SPLIT) };
        let [tokens, outputs] = [step.tokens.len(), step.outputs.len()];
        let header = [tokens, outputs, splits, long_runs].map(|count| count as u32);
        words.records[..header.len()].copy_from_slice(&header);
        let single = step.runs.iter().all(|run| run.len == 1);
        let sizes = Sizes {
            tokens,
            outputs,
            splits,
            quads: words.quads.len() / 4,
            blocks: words.blocks.len() / 4,
            runs: step.runs.len(),
            long_runs,
            chunks: words.chunks.len() / RUN_CHUNK,
            long_chunks,
            single,
        };
        (words, sizes)
    }

    /// Runs and their chunks; how many of each are of long runs.
    fn add_states(&mut self, runs: &[Run<'_>]) -> [usize; 2] {
        let firsts = runs.iter().scan(0, |token, run| Some(std::mem::replace(token, *token + run.len)));
        let (long, short): (Vec<_>, Vec<_>) = runs.iter().zip(firsts).partition(|(run, _)| run.len >= CHUNK);
        long.iter().for_each(|(run, first)| self.add_state(run, *first));
        let counts = [long.len(), self.chunks.len() / RUN_CHUNK];
        short.iter().for_each(|(run, first)| self.add_state(run, *first));
        counts
    }

    fn add_state(&mut self, run: &Run<'_>, token: usize) {
        let Some(state) = run.state else { return };
        let from = state.from.map_or(0, |id| id.index() + 1);
        let mut words = [0; RUN];
        words[..5].copy_from_slice(&[token, run.len, from, state.to.index(), self.chunks.len() / RUN_CHUNK]);
        for (words, (at, id)) in words[5..].chunks_exact_mut(2).zip(&state.checkpoints) {
            words.copy_from_slice(&[at - run.start, id.index()]);
        }
        let number = self.runs.len() / RUN;
        self.runs.extend(words.map(|word| word as u32));
        // Checkpoints stand where chunks end.
        let ends = state.checkpoints.iter().map(|(at, _)| at - run.start).chain([run.len]);
        let mut start = 0;
        for end in ends {
            while start < end {
                let len = CHUNK.min(end - start);
                self.chunks.extend([number, start, len].map(|word| word as u32));
                start += len;
            }
        }
    }

    /// Where a page was given back stands the first that is seen: kernels may read it, and do not count what they find.
    fn add_tables(&mut self, layout: &Layout, run: &Run<'_>) {
        let seen: Vec<_> = run
            .pages
            .iter()
            .zip(&layout.groups)
            .map(|(table, group)| table.page(group.first_seen(run.start)))
            .collect();
        for entry in 0..run.pages.iter().map(|table| table.entries().len()).min().unwrap_or(0) {
            let pages = run.pages.iter().zip(&seen).map(|(table, seen)| table.entries()[entry].or(*seen));
            self.tables.extend(pages.map(|page| page.map_or(0, |page| page.index() as u32)));
        }
    }

    fn add_quads(&mut self, run: &Run<'_>, token: usize, table: usize) {
        let (start, end) = (run.start, run.start + run.len);
        let mut position = start;
        while position < end {
            let next = ((position / QUAD + 1) * QUAD).min(end);
            let entries = table + position / PAGE_POSITIONS * run.pages.len();
            self.quads.extend([token + position - start, next - position, position, entries].map(|word| word as u32));
            position = next;
        }
    }
}

/// The cosine and the sine of `position * frequency`, in double precision up to the last turn because positions are
/// large.
fn angle(position: usize, frequency: f32) -> [u32; 2] {
    let turns = (position as f64 * f64::from(frequency)) % std::f64::consts::TAU;
    let (sine, cosine) = (turns as f32).sin_cos();
    [cosine.to_bits(), sine.to_bits()]
}
