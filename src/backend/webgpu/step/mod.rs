//! Encodes a step for the kernels: sizes, positions, page tables and runs, in one buffer of 32-bit
//! words.
//!
//! | first word | content |
//! |---|---|
//! | 0 | a [`StepHeader`] |
//! | [`RECORDS`] | for each token a [`TokenRecord`], its angles (below), a [`SpanRecord`] and its taps |
//! | [`Layout::append_ranges_at`] | the [`PositionRange`]s that are appended together |
//! | [`Layout::query_blocks_at`] | the [`PositionRange`]s whose tokens attend together |
//! | [`Layout::runs_at`] | with recurrent ops, a [`RunRecord`] for each run, long runs first |
//! | [`Layout::chunks_at`] | with recurrent ops, a [`ChunkRecord`] for each chunk of these runs |
//! | [`Layout::tables_at`] | the page tables of the sequences |
//!
//! The angles of a token are, for each table of frequencies, the (cosine, sine) of each pair as
//! f32. The page tables of a sequence alternate: for each of its pages, the page of the first group
//! of layers, the page of the second group, and so on.
//!
//! `kernels/shared/bindings.wgsl` names the words of the fields; a test compares the two.

mod records;

use std::{mem::offset_of, sync::Arc};

use self::records::{CheckpointRecord, ChunkRecord, PositionRange, RunRecord, SpanRecord, StepHeader, TokenRecord};
use super::{kernel::StepSizes, lower::GEMV_ROWS};
use crate::{
    backend::{Run, Step, Taps},
    graph::RopeAxes,
    kv_cache::{PAGE_POSITIONS, PageGroup, RUN_CHECKPOINTS},
};

/// Returns the words of a struct whose fields are 32-bit.
const fn words_of<T>() -> usize {
    size_of::<T>() / 4
}

/// First word of the tokens' records.
pub(super) const RECORDS: usize = words_of::<StepHeader>();
/// Words of a [`RunRecord`].
pub(super) const RUN: usize = words_of::<RunRecord>();
/// The first word, in a [`RunRecord`], of its checkpoints.
pub(super) const RUN_CHECKPOINTS_AT: usize = offset_of!(RunRecord, checkpoints) / 4;
/// Words of a [`ChunkRecord`].
pub(super) const RUN_CHUNK: usize = words_of::<ChunkRecord>();
/// Words of a [`PositionRange`].
const RANGE: usize = words_of::<PositionRange>();
/// Largest number of tokens that a recurrence processes as one chunk. A run of at least this many
/// tokens is long.
pub(super) const CHUNK: usize = 32;
/// Largest number of positions that are appended together.
const APPEND_RANGE: usize = 4;
/// Positions of a split: the cached positions of a long sequence that one workgroup attends to for
/// a single token.
pub(super) const SPLIT: usize = 256;

/// The layout of the step's buffer.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    /// Largest number of tokens in a step.
    pub max_tokens: usize,
    /// The tables of frequencies; every token's record has their angles.
    pub angles: Vec<AngleTable>,
    /// Whether tokens have the positions of their span and run.
    pub has_spans: bool,
    /// Whether all steps are those of an encoder, whose tokens see only their step.
    pub encodes: bool,
    /// The width of the rows that steps give for tokens.
    pub input_width: usize,
    /// The number of sets of taps, which every token's record has.
    pub taps: usize,
    /// Largest number of tokens that attend together.
    pub query_block: usize,
    /// Largest number of positions of a sequence that is not split.
    pub unsplit_positions: usize,
    /// The groups of layers, each with a page table for every sequence.
    pub groups: Vec<PageGroup>,
    /// Whether sequences have recurrent states.
    pub recurrent: bool,
}

/// A table of frequencies, and the positions that turn its pairs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AngleTable {
    pub frequencies: Arc<[f32]>,
    pub axes: RopeAxes,
}

/// Words of the taps of a token in a set.
const TAPS: usize = words_of::<Taps>();

impl Layout {
    /// Returns the words of a token's record with its angles, spans and taps.
    pub fn record_words(&self) -> usize {
        self.taps_at(self.taps)
    }

    /// Returns the first word, in a token's record, of its [`SpanRecord`].
    pub fn spans_at(&self) -> usize {
        self.angles_at(self.angles.len())
    }

    /// Returns the first word, in a token's record, of its taps in a set: four pairs of a row and a
    /// weight.
    pub fn taps_at(&self, set: usize) -> usize {
        self.spans_at() + if self.has_spans { words_of::<SpanRecord>() } else { 0 } + TAPS * set
    }

    /// Returns the first word, in a token's record, of the angles of a table.
    pub fn angles_at(&self, table: usize) -> usize {
        words_of::<TokenRecord>() + self.angles[..table].iter().map(|table| 2 * table.frequencies.len()).sum::<usize>()
    }

    /// Returns the first word of the ranges that are appended.
    pub fn append_ranges_at(&self) -> usize {
        RECORDS + self.max_tokens * self.record_words()
    }

    /// Returns the first word of the ranges that attend together.
    pub fn query_blocks_at(&self) -> usize {
        self.append_ranges_at() + RANGE * self.max_tokens
    }

    /// Returns the first word of the runs.
    pub fn runs_at(&self) -> usize {
        self.query_blocks_at() + RANGE * self.max_tokens
    }

    /// Returns the first word of the runs' chunks.
    pub fn chunks_at(&self) -> usize {
        self.runs_at() + if self.recurrent { RUN * self.max_tokens } else { 0 }
    }

    /// Returns the first word of the page tables.
    pub fn tables_at(&self) -> usize {
        self.chunks_at() + if self.recurrent { RUN_CHUNK * self.max_tokens } else { 0 }
    }
}

/// The parts of the step's buffer.
#[derive(Default)]
pub(super) struct EncodedStep {
    /// The header and the tokens' records.
    records: Vec<u32>,
    append_ranges: Vec<PositionRange>,
    query_blocks: Vec<PositionRange>,
    runs: Vec<RunRecord>,
    chunks: Vec<ChunkRecord>,
    /// The page tables.
    pub tables: Vec<u32>,
}

impl EncodedStep {
    /// Encodes a step; returns its sizes too.
    pub fn new(layout: &Layout, step: &Step<'_>) -> (Self, StepSizes) {
        let mut encoded = Self::default();
        encoded.records.resize(RECORDS, 0);
        let (mut token, mut shortest, mut longest) = (0, usize::MAX, 0);
        for run in step.runs {
            let table = layout.tables_at() + encoded.tables.len();
            encoded.add_tables(layout, run);
            encoded.add_records(layout, step, run, token, table);
            encoded.add_append_ranges(run, token, table);
            encoded.add_query_blocks(layout, run, token, table);
            shortest = shortest.min(run.start + 1);
            longest = longest.max(run.start + run.len);
            token += run.len;
        }
        let (long_runs, long_chunks) = encoded.add_states(step.runs);
        let sizes = StepSizes {
            tokens: step.tokens.len(),
            outputs: step.outputs.len(),
            has_unsplit: shortest <= layout.unsplit_positions,
            splits: if longest <= layout.unsplit_positions { 0 } else { longest.div_ceil(SPLIT) },
            append_ranges: encoded.append_ranges.len(),
            query_blocks: encoded.query_blocks.len(),
            runs: step.runs.len(),
            long_runs,
            chunks: encoded.chunks.len(),
            long_chunks,
            single: step.runs.iter().all(|run| run.len == 1 && run.spans.is_empty()),
            long: layout.encodes || step.tokens.len() > GEMV_ROWS || step.runs.iter().any(|run| !run.spans.is_empty()),
        };
        let header = StepHeader {
            tokens: sizes.tokens as u32,
            outputs: sizes.outputs as u32,
            splits: sizes.splits as u32,
            long_runs: long_runs as u32,
            unused: [0; 4],
        };
        encoded.records[..RECORDS].copy_from_slice(bytemuck::cast_slice(&[header]));
        (encoded, sizes)
    }

    /// Returns the bytes of the header and the tokens' records, which lie at the buffer's start.
    pub fn records(&self) -> &[u8] {
        bytemuck::cast_slice(&self.records)
    }

    /// Returns the bytes of the ranges that are appended.
    pub fn append_ranges(&self) -> &[u8] {
        bytemuck::cast_slice(&self.append_ranges)
    }

    /// Returns the bytes of the ranges that attend together.
    pub fn query_blocks(&self) -> &[u8] {
        bytemuck::cast_slice(&self.query_blocks)
    }

    /// Returns the bytes of the runs.
    pub fn runs(&self) -> &[u8] {
        bytemuck::cast_slice(&self.runs)
    }

    /// Returns the bytes of the runs' chunks.
    pub fn chunks(&self) -> &[u8] {
        bytemuck::cast_slice(&self.chunks)
    }

    /// Adds the records of a run whose first token has index `token` in the step, and whose page
    /// tables start at word `table`.
    fn add_records(&mut self, layout: &Layout, step: &Step<'_>, run: &Run<'_>, token: usize, table: usize) {
        let angles: Vec<_> = layout.angles.iter().map(|table| RunAngles::new(table, run)).collect();
        for i in 0..run.len {
            let row = step.rows.tokens.binary_search(&(token + i));
            let record = TokenRecord {
                input_row: row.map_or(0, |row| row as u32 + 1),
                position: (run.start + i) as u32,
                page_table: table as u32,
                output_token: step.outputs.get(token + i).map_or(0, |output| *output as u32),
            };
            self.records.extend_from_slice(bytemuck::cast_slice(&[record]));
            let positions = run.rotary.get(i).copied().unwrap_or([record.position; 3]);
            for angles in &angles {
                self.records.extend(angles.of(positions).flatten());
            }
            if layout.has_spans {
                self.records.extend_from_slice(bytemuck::cast_slice(&[span_of(run, i)]));
            }
            for (row, weight) in step.taps.iter().flat_map(|taps| taps[token + i]) {
                self.records.extend([row, weight.to_bits()]);
            }
        }
    }

    /// Adds the runs and their chunks; returns the numbers of long runs and of their chunks.
    fn add_states(&mut self, runs: &[Run<'_>]) -> (usize, usize) {
        let firsts = runs.iter().scan(0, |token, run| Some(std::mem::replace(token, *token + run.len)));
        let (long, short): (Vec<_>, Vec<_>) = runs.iter().zip(firsts).partition(|(run, _)| run.len >= CHUNK);
        long.iter().for_each(|(run, first)| self.add_state(run, *first));
        let counts = (long.len(), self.chunks.len());
        short.iter().for_each(|(run, first)| self.add_state(run, *first));
        counts
    }

    fn add_state(&mut self, run: &Run<'_>, token: usize) {
        let Some(state) = run.state else { return };
        let number = self.runs.len() as u32;
        let mut checkpoints = [CheckpointRecord::default(); RUN_CHECKPOINTS];
        for (checkpoint, (at, id)) in checkpoints.iter_mut().zip(&state.checkpoints) {
            *checkpoint = CheckpointRecord { tokens: (at - run.start) as u32, state: id.index() as u32 };
        }
        self.runs.push(RunRecord {
            first_token: token as u32,
            tokens: run.len as u32,
            state_before: state.from.map_or(0, |id| id.index() as u32 + 1),
            state_after: state.to.index() as u32,
            first_chunk: self.chunks.len() as u32,
            checkpoints,
        });
        // Chunks end at checkpoints.
        let ends = state.checkpoints.iter().map(|(at, _)| at - run.start).chain([run.len]);
        let mut start = 0;
        for end in ends {
            while start < end {
                let tokens = CHUNK.min(end - start);
                self.chunks.push(ChunkRecord { run: number, first_token: start as u32, tokens: tokens as u32 });
                start += tokens;
            }
        }
    }

    /// Adds the page tables of a run. The entry of a freed page names the first visible page:
    /// kernels may load from it, but the attention window masks its positions.
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

    /// Adds the ranges that are appended together: they end at multiples of [`APPEND_RANGE`]. Their
    /// number depends on the run's length alone, so that the commands of one step serve the next;
    /// unused ranges are empty.
    fn add_append_ranges(&mut self, run: &Run<'_>, token: usize, table: usize) {
        let (start, end) = (run.start, run.start + run.len);
        let first = self.append_ranges.len();
        let mut position = start;
        while position < end {
            let next = ((position / APPEND_RANGE + 1) * APPEND_RANGE).min(end);
            self.append_ranges.push(PositionRange {
                first_token: (token + position - start) as u32,
                tokens: (next - position) as u32,
                first_position: position as u32,
                pages: (table + position / PAGE_POSITIONS * run.pages.len()) as u32,
            });
            position = next;
        }
        let most = (run.len + APPEND_RANGE - 2) / APPEND_RANGE + 1;
        self.append_ranges.resize(first + most, PositionRange::default());
    }

    fn add_query_blocks(&mut self, layout: &Layout, run: &Run<'_>, token: usize, table: usize) {
        for first in (0..run.len).step_by(layout.query_block) {
            self.query_blocks.push(PositionRange {
                first_token: (token + first) as u32,
                tokens: layout.query_block.min(run.len - first) as u32,
                first_position: (run.start + first) as u32,
                pages: table as u32,
            });
        }
    }
}

/// The angles of a table for the tokens of a run.
struct RunAngles<'a> {
    table: &'a AngleTable,
    /// `[positions, pairs]`: the angles of the first positions, where tokens share positions, as
    /// the patches of a row or a column of a picture do.
    shared: Vec<[u32; 2]>,
}

impl<'a> RunAngles<'a> {
    fn new(table: &'a AngleTable, run: &Run<'_>) -> Self {
        let positions = run.rotary.iter().flatten().max().map_or(0, |last| *last as usize + 1);
        let computed = if positions < run.len { 0..positions as u32 } else { 0..0 };
        let pairs = |position| table.frequencies.iter().map(move |frequency| angle(position, *frequency));
        Self { table, shared: computed.flat_map(pairs).collect() }
    }

    /// Returns the angles of the pairs of a token with these rotary positions.
    fn of(&self, positions: [u32; 3]) -> impl Iterator<Item = [u32; 2]> {
        let AngleTable { frequencies, axes } = self.table;
        frequencies.iter().enumerate().map(move |(pair, frequency)| {
            let position = positions[axes.axis(pair)];
            let shared = self.shared.get(position as usize * frequencies.len() + pair);
            shared.copied().unwrap_or_else(|| angle(position, *frequency))
        })
    }
}

/// Returns the positions of the span of a run's token, and of its run.
fn span_of(run: &Run<'_>, token: usize) -> SpanRecord {
    let next = run.spans.partition_point(|span| span.end <= token);
    let span = run.spans.get(next).filter(|span| span.contains(&token)).cloned().unwrap_or(token..token + 1);
    let [first, end, run_end] = [span.start, span.end, run.len].map(|token| (run.start + token) as u32);
    SpanRecord { first, end, run_first: run.start as u32, run_end }
}

/// Returns the cosine and the sine of `position * frequency`. The angle is computed in f64 up to
/// the last turn, because positions are large.
fn angle(position: u32, frequency: f32) -> [u32; 2] {
    let turns = (f64::from(position) * f64::from(frequency)) % std::f64::consts::TAU;
    let (sine, cosine) = (turns as f32).sin_cos();
    [cosine.to_bits(), sine.to_bits()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_name_the_words_of_the_step() {
        macro_rules! words {
            ($($name:literal: $record:ident.$field:ident),* $(,)?) => {
                vec![$(($name, offset_of!($record, $field) / 4)),*]
            };
        }
        let mut expected = words! {
            "TOKENS": StepHeader.tokens,
            "OUTPUTS": StepHeader.outputs,
            "SPLITS": StepHeader.splits,
            "LONG_RUNS": StepHeader.long_runs,
            "TOKEN_INPUT_ROW": TokenRecord.input_row,
            "TOKEN_POSITION": TokenRecord.position,
            "TOKEN_PAGE_TABLE": TokenRecord.page_table,
            "TOKEN_OF_OUTPUT": TokenRecord.output_token,
            "RANGE_FIRST_TOKEN": PositionRange.first_token,
            "RANGE_TOKENS": PositionRange.tokens,
            "RANGE_FIRST_POSITION": PositionRange.first_position,
            "RANGE_PAGES": PositionRange.pages,
            "RUN_FIRST_TOKEN": RunRecord.first_token,
            "RUN_TOKENS": RunRecord.tokens,
            "RUN_STATE_BEFORE": RunRecord.state_before,
            "RUN_STATE_AFTER": RunRecord.state_after,
            "RUN_FIRST_CHUNK": RunRecord.first_chunk,
            "CHUNK_RUN": ChunkRecord.run,
            "CHUNK_FIRST_TOKEN": ChunkRecord.first_token,
            "CHUNK_TOKENS": ChunkRecord.tokens,
        };
        expected.push(("RANGE_WORDS", RANGE));
        expected.sort_unstable();
        let text = include_str!("../../../../kernels/shared/bindings.wgsl");
        let constants =
            text.lines().filter_map(|line| line.strip_prefix("const ")?.strip_suffix("u;")?.split_once(" = "));
        let mut named: Vec<_> = constants.map(|(name, word)| (name, word.parse().unwrap())).collect();
        named.sort_unstable();
        assert_eq!(named, expected);
    }
}
