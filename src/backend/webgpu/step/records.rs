//! Declares the records of the step's buffer. Kernels read their fields as 32-bit words.

use bytemuck::{Pod, Zeroable};

use crate::kv_cache::RUN_CHECKPOINTS;

/// The sizes of a step.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepHeader {
    pub tokens: u32,
    /// Number of tokens whose logits are computed.
    pub outputs: u32,
    /// Splits of the longest sequence.
    pub splits: u32,
    /// Runs of [`CHUNK`](super::CHUNK) tokens or more.
    pub long_runs: u32,
    pub unused: [u32; 4],
}

/// A token.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenRecord {
    /// The number of the token's row among the rows that the step gives, plus 1; 0 without a row.
    pub input_row: u32,
    /// The token's position in its sequence.
    pub position: u32,
    /// The first word of the sequence's page tables.
    pub page_table: u32,
    /// The token of the output that has this record's number; 0 if there are fewer outputs.
    pub output_token: u32,
}

/// The positions of a token's span and of its run, in steps of graphs whose tokens see more than
/// the past.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct SpanRecord {
    pub first: u32,
    pub end: u32,
    pub run_first: u32,
    pub run_end: u32,
}

/// Consecutive positions of a sequence, whose tokens are consecutive in the step.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PositionRange {
    /// The index in the step of the first token.
    pub first_token: u32,
    /// Number of tokens.
    pub tokens: u32,
    /// The position of the first token.
    pub first_position: u32,
    /// The first word of the sequence's page tables; in a range that is appended, the first word of
    /// the entries of its page.
    pub pages: u32,
}

/// A run whose sequence has a recurrent state.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct RunRecord {
    /// The index in the step of the first token.
    pub first_token: u32,
    /// Number of tokens.
    pub tokens: u32,
    /// The index of the state before the run, plus 1; 0 at the start of a sequence.
    pub state_before: u32,
    /// The index of the state after the run.
    pub state_after: u32,
    /// The index of the first chunk.
    pub first_chunk: u32,
    /// The states within the run that are stored.
    pub checkpoints: [CheckpointRecord; RUN_CHECKPOINTS],
}

/// A state within a run that is stored.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CheckpointRecord {
    /// Number of the run's tokens before the checkpoint; 0 marks an unused record.
    pub tokens: u32,
    /// The index of the state.
    pub state: u32,
}

/// Tokens of a run that a recurrence processes together.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkRecord {
    /// The index of the run.
    pub run: u32,
    /// Number of the run's tokens before the chunk.
    pub first_token: u32,
    /// Number of tokens.
    pub tokens: u32,
}

macro_rules! plain {
    ($($record:ty),*) => {
        $(
            // SAFETY: the record is `repr(C)` with fields of `u32` alone, so it has no padding, and
            // every bit pattern is valid, including zeros.
            unsafe impl Zeroable for $record {}
            // SAFETY: as above.
            unsafe impl Pod for $record {}
        )*
    };
}

plain!(StepHeader, TokenRecord, SpanRecord, PositionRange, RunRecord, CheckpointRecord, ChunkRecord);
