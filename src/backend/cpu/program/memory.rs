//! The memory that a plan's steps work in.

use super::{buffer::row_stride, experts::Sizes, lower::Program};
use crate::{
    Error, Result,
    backend::cpu::{
        kernels::{attention, quantize::Activations},
        memory::aligned::AlignedBytes,
    },
    graph::{AttentionSpec, Op, Rows},
    plan::{Operand, Plan},
    quant::ROWS,
};

/// What steps work in; it grows to the largest step seen.
pub(crate) struct Memory {
    pub tokens: usize,
    pub outputs: usize,
    /// All slots.
    pub slots: AlignedBytes,
    /// Rows in 8 bits.
    pub activations: AlignedBytes,
    /// The tables of cosines and sines.
    pub angles: Vec<Vec<f32>>,
    /// One for each thread.
    pub scratch: Vec<AlignedBytes>,
    /// What layers of experts work in.
    pub experts: AlignedBytes,
    /// What sections of the cache come to until all of a unit have been attended to; it grows to the longest step seen.
    pub partials: AlignedBytes,
}

/// Where each slot lies: its offset in floats and the distance between its rows.
#[derive(Clone, Copy)]
pub(crate) struct SlotPlace {
    pub offset: usize,
    pub stride: usize,
}

impl Memory {
    pub fn new(
        plan: &Plan,
        program: &Program,
        widest: usize,
        threads: usize,
        [tokens, outputs]: [usize; 2],
    ) -> Result<Self> {
        let last = slot_places(plan, tokens, outputs);
        let floats = last.last().map_or(0, |end| end.offset);
        let rows = tokens.max(outputs);
        let scratch = (0..threads).map(|_| allocate(scratch_floats(plan, rows) * 4, "a thread's scratch"));
        Ok(Self {
            tokens,
            outputs,
            slots: allocate(floats * 4, "the activations")?,
            activations: allocate(Activations::bytes(rows, widest), "the activations in 8 bits")?,
            angles: program.angles.iter().map(|row| vec![0.0; 2 * row.len() * tokens]).collect(),
            scratch: scratch.collect::<Result<_>>()?,
            experts: allocate(experts_bytes(plan, rows), "the experts' activations")?,
            partials: allocate(0, "the results of sections of the cache")?,
        })
    }
}

/// The bytes that a plan's steps work in, over sequences of so many positions together.
pub(crate) fn scratch_bytes(
    plan: &Plan,
    widest: usize,
    threads: usize,
    [tokens, outputs]: [usize; 2],
    positions: usize,
) -> usize {
    let floats = slot_places(plan, tokens, outputs).last().map_or(0, |end| end.offset);
    let rows = tokens.max(outputs);
    let angles = 2 * frequencies(plan) * tokens;
    let partials = attentions(plan).map(|spec| attention::partials_bound(spec, tokens, positions)).max().unwrap_or(0);
    let fixed = 4 * (floats + angles) + Activations::bytes(rows, widest) + threads * 4 * scratch_floats(plan, rows);
    let fixed = fixed + experts_bytes(plan, rows);
    partials.saturating_mul(4).saturating_add(fixed)
}

/// The plan's attention ops.
pub(crate) fn attentions(plan: &Plan) -> impl Iterator<Item = AttentionSpec> {
    plan.steps().iter().filter_map(|step| step.op.attention().copied())
}

/// The bytes that layers of experts work in, one after the other.
fn experts_bytes(plan: &Plan, rows: usize) -> usize {
    plan.steps().iter().filter_map(Sizes::of).map(|sizes| sizes.bytes(rows)).max().unwrap_or(0)
}

/// The frequencies of all tables of angles.
fn frequencies(plan: &Plan) -> usize {
    let mut tables: Vec<&Operand> = Vec::new();
    for step in plan.steps() {
        match (&step.op, step.inputs.as_slice()) {
            (Op::Rope(_), [_, table]) if !tables.contains(&table) => tables.push(table),
            _ => {}
        }
    }
    let widths = tables.into_iter().map(|table| match table {
        Operand::Weight { shape, .. } => shape.width,
        Operand::Constant(row) => row.len(),
        Operand::Tokens | Operand::Slot(_) => 0,
    });
    widths.sum()
}

/// Floats of scratch that a thread needs for steps of up to `rows` rows.
fn scratch_floats(plan: &Plan, rows: usize) -> usize {
    attentions(plan).map(attention::scratch_len).max().unwrap_or(0).max(2 * ROWS * rows)
}

/// Where the slots lie; the last entry is the end of them all.
pub(crate) fn slot_places(plan: &Plan, tokens: usize, outputs: usize) -> Vec<SlotPlace> {
    let mut offset = 0;
    let mut places = Vec::with_capacity(plan.slots().len() + 1);
    for slot in plan.slots() {
        let rows = match slot.rows {
            Rows::Fixed(rows) => rows,
            Rows::Tokens => tokens,
            Rows::Outputs => outputs,
        };
        let stride = row_stride(slot.width);
        places.push(SlotPlace { offset, stride });
        offset += rows * stride;
    }
    places.push(SlotPlace { offset, stride: 0 });
    places
}

pub(crate) fn allocate(bytes: usize, what: &'static str) -> Result<AlignedBytes> {
    AlignedBytes::new(bytes).ok_or(Error::Memory { what, needed: bytes as u64, limit: 0 })
}
