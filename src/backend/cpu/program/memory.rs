//! Allocates the memory that the steps of a plan use.

use super::{buffer::row_stride, expert_slots::ExpertSizes, lower::CpuProgram};
use crate::{
    Error, Result,
    backend::{
        Step,
        cpu::{
            kernels::{attention, quantize::Q8Activations},
            memory::aligned::AlignedBytes,
        },
    },
    graph::{AttentionSpec, Rows},
    plan::{Operand, Plan},
    quant::ROWS,
};

/// The sizes of a step that its memory depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepSize {
    pub tokens: usize,
    pub outputs: usize,
}

impl StepSize {
    /// Returns the largest number of rows of a value.
    fn rows(self) -> usize {
        self.tokens.max(self.outputs)
    }

    /// Returns the number of rows of values with such rows.
    pub fn rows_of(self, rows: Rows) -> usize {
        match rows {
            Rows::Fixed(rows) => rows,
            Rows::Tokens => self.tokens,
            Rows::Outputs => self.outputs,
        }
    }
}

/// The memory of steps up to a size.
pub(crate) struct Memory {
    pub size: StepSize,
    /// All slots.
    pub slots: AlignedBytes,
    /// The activations of a product in int8.
    pub q8: AlignedBytes,
    /// Tables of angles, `[tokens, 2 * frequencies]`: cosines, then sines.
    pub angles: Vec<Vec<f32>>,
    /// Scratch of each thread.
    pub scratch: Vec<AlignedBytes>,
    /// The slots of layers of experts.
    pub experts: AlignedBytes,
    /// Partial results of attention, as large as the step with the most needs.
    pub partials: AlignedBytes,
}

/// The place of a slot: its offset, and the distance between its rows, both in floats.
#[derive(Clone, Copy)]
pub(crate) struct SlotPlace {
    pub offset: usize,
    pub stride: usize,
}

impl Memory {
    /// Allocates memory for steps up to `size`. `widest_q8` is the width of the widest int8
    /// activations.
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub fn new(plan: &Plan, program: &CpuProgram, widest_q8: usize, threads: usize, size: StepSize) -> Result<Self> {
        let floats = slot_places(plan, size).last().map_or(0, |end| end.offset);
        let rows = size.rows();
        let scratch = (0..threads).map(|_| allocate(scratch_floats(plan, rows) * 4, "a thread's scratch"));
        Ok(Self {
            size,
            slots: allocate(floats * 4, "the activations")?,
            q8: allocate(Q8Activations::bytes(rows, widest_q8), "the int8 activations")?,
            angles: program.angles.iter().map(|table| vec![0.0; 2 * table.frequencies.len() * size.tokens]).collect(),
            scratch: scratch.collect::<Result<_>>()?,
            experts: allocate(experts_bytes(plan, rows), "the activations of experts")?,
            partials: allocate(0, "partial results of attention")?,
        })
    }

    /// Grows the memory to the step's size, and to its partial results.
    ///
    /// # Errors
    /// As [`Memory::new`].
    pub fn grow(&mut self, plan: &Plan, program: &CpuProgram, widest_q8: usize, step: &Step<'_>) -> Result<()> {
        let (tokens, outputs) = (step.tokens.len(), step.outputs.len());
        let size = StepSize { tokens: tokens.max(self.size.tokens), outputs: outputs.max(self.size.outputs) };
        if size != self.size {
            // The old memory is freed before the new one is allocated, so that they never exist
            // together.
            for size in [StepSize { tokens: 1, outputs: 1 }, size] {
                *self = Self::new(plan, program, widest_q8, self.scratch.len(), size)?;
            }
        }
        let of_spec = |spec| step.runs.iter().map(|run| attention::partials_len(spec, run.start, run.len)).sum();
        let bytes = 4 * attention_specs(plan).map(of_spec).max().unwrap_or(0);
        if bytes > self.partials.len() {
            for bytes in [0, bytes] {
                self.partials = allocate(bytes, "partial results of attention")?;
            }
        }
        Ok(())
    }
}

/// Returns the bytes of memory for steps up to `size`, whose runs end at positions that add up to
/// `positions` at most.
pub(crate) fn scratch_bytes(plan: &Plan, widest_q8: usize, threads: usize, size: StepSize, positions: usize) -> usize {
    let floats = slot_places(plan, size).last().map_or(0, |end| end.offset);
    let rows = size.rows();
    let angles = 2 * frequencies(plan) * size.tokens;
    let bounds = attention_specs(plan).map(|spec| attention::partials_bound(spec, size.tokens, positions));
    let partials = bounds.max().unwrap_or(0);
    let fixed = 4 * (floats + angles)
        + Q8Activations::bytes(rows, widest_q8)
        + threads * 4 * scratch_floats(plan, rows)
        + experts_bytes(plan, rows);
    partials.saturating_mul(4).saturating_add(fixed)
}

/// Returns the places of the slots; the last entry is the end of all.
pub(crate) fn slot_places(plan: &Plan, size: StepSize) -> Vec<SlotPlace> {
    let mut offset = 0;
    let mut places = Vec::with_capacity(plan.slots().len() + 1);
    for slot in plan.slots() {
        let stride = row_stride(slot.width);
        places.push(SlotPlace { offset, stride });
        offset += size.rows_of(slot.rows) * stride;
    }
    places.push(SlotPlace { offset, stride: 0 });
    places
}

fn attention_specs(plan: &Plan) -> impl Iterator<Item = AttentionSpec> {
    plan.steps().iter().filter_map(|step| step.op.properties().attention)
}

/// Returns the bytes of the slots of the largest layer of experts.
fn experts_bytes(plan: &Plan, rows: usize) -> usize {
    plan.steps().iter().filter_map(ExpertSizes::of).map(|sizes| sizes.bytes(rows)).max().unwrap_or(0)
}

/// Returns the number of frequencies of all tables of angles.
fn frequencies(plan: &Plan) -> usize {
    let mut tables: Vec<&Operand> = Vec::new();
    for step in plan.steps() {
        let table = step.op.properties().frequencies.map(|index| &step.inputs[index]);
        tables.extend(table.filter(|table| !tables.contains(table)));
    }
    let widths = tables.into_iter().map(|table| match table {
        Operand::Weight { shape, .. } => shape.width,
        Operand::Constant(row) => row.len(),
        Operand::Tokens | Operand::Slot(_) => 0,
    });
    widths.sum()
}

/// Returns the floats of scratch of a thread for steps of up to `rows` rows.
fn scratch_floats(plan: &Plan, rows: usize) -> usize {
    // A product with an activation needs the results of two matrices.
    attention_specs(plan).map(attention::scratch_len).max().unwrap_or(0).max(2 * ROWS * rows)
}

fn allocate(bytes: usize, what: &'static str) -> Result<AlignedBytes> {
    AlignedBytes::new(bytes).ok_or_else(|| Error::out_of_memory(what, bytes))
}
