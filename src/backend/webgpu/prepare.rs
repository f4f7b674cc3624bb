//! Prepares a plan for its first step: places its weights, lays out the step's buffer, and
//! allocates the buffers of its values.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    context::{Context, Traits},
    kernel::Resource,
    lower::{GEMV_ROWS, MIX},
    program::{Buffers, GpuProgram, STORAGE},
    step::{AngleTable, Layout, SPLIT},
    tiles,
    weight_buffers::WeightBuffers,
};
use crate::{
    Error, Result,
    backend::{Bounds, Step},
    graph::{AttentionSpec, ExpertsSpec, Op, Rows, Sees, StepInput},
    kv_cache::CacheLayout,
    plan::{Operand, Plan, PlanStep},
    quant::{self, UNIT},
    weights::{TensorSlice, Weights},
};

/// Rows to whose multiple buffers of f16 are padded, because products of matrix units read whole
/// tiles.
const TILE: usize = 256;

/// Returns the vectors that a plan reads, by tensor.
pub(super) fn vectors(plan: &Plan, weights: &Weights) -> Result<HashMap<TensorSlice, Arc<[f32]>>> {
    let mut vectors = HashMap::new();
    for step in plan.steps() {
        let matrices = step.matrices();
        let others = step.inputs.iter().filter(|input| !matrices.contains(input));
        for input in others {
            let Operand::Weight { slice, shape, .. } = input else { continue };
            let Rows::Fixed(rows) = shape.rows else { continue };
            if vectors.contains_key(slice) {
                continue;
            }
            if matches!(step.op, Op::ShortConv(_) | Op::Interpolate { .. }) {
                vectors.insert(slice.clone(), dequantized(weights, slice, rows, shape.width)?);
            } else if step.op != Op::Embed && rows == 1 {
                vectors.insert(slice.clone(), Arc::from(weights.vector(slice, shape.width)?));
            }
        }
    }
    Ok(vectors)
}

/// Returns the elements of a small matrix, row by row.
fn dequantized(weights: &Weights, slice: &TensorSlice, rows: usize, columns: usize) -> Result<Arc<[f32]>> {
    let weight = weights.matrix(slice, rows, columns)?;
    let mut elements = vec![0.0; rows * columns];
    quant::dequantize_row(weight.dtype, &weight.read(0..weight.byte_len())?, &mut elements)?;
    Ok(elements.into())
}

/// Reserves a place for every matrix, and returns their tensors and shapes `[rows, columns]`.
pub(super) fn place_matrices(
    traits: &Traits,
    plan: &Plan,
    weights: &Weights,
    weight_buffers: &mut WeightBuffers,
) -> Result<Vec<(TensorSlice, [usize; 2])>> {
    let mut matrices: Vec<(TensorSlice, [usize; 2])> = vec![];
    for step in plan.steps() {
        let tables = if step.op == Op::Embed { &step.inputs[..1] } else { step.matrices() };
        for operand in tables {
            let Operand::Weight { slice, dtype, shape } = operand else {
                return Err(Error::internal("a product's matrix is no weight"));
            };
            let Rows::Fixed(rows) = shape.rows else {
                return Err(Error::internal("a weight's rows depend on the step"));
            };
            if weight_buffers.matrix(slice).is_some() {
                continue;
            }
            let weight = weights.matrix(slice, rows, shape.width)?;
            if weight.dtype != *dtype {
                return Err(Error::tensor(slice, format!("is stored as {}, but the graph has {dtype}", weight.dtype)));
            }
            weight_buffers.place_matrix(traits, &weight, rows, shape.width)?;
            matrices.push((slice.clone(), [rows, shape.width]));
        }
    }
    Ok(matrices)
}

/// Returns the layout of the step's buffer.
pub(super) fn layout(
    traits: &Traits,
    plan: &Plan,
    vectors: &HashMap<TensorSlice, Arc<[f32]>>,
    bounds: &Bounds,
    cache: &CacheLayout,
) -> Result<Layout> {
    let mut angles: Vec<AngleTable> = vec![];
    let (mut query_block, mut taps) = (64, 0);
    let (mut has_spans, mut encodes) = (false, false);
    for step in plan.steps() {
        let properties = step.op.properties();
        let operand = properties.frequencies.map(|index| &step.inputs[index]);
        if let Some(spec) = properties.attention {
            query_block = query_block.min(tiles::prefill(traits, &spec, cache.cache_type).query_block());
            has_spans |= spec.scores.sees != Sees::Past;
            encodes |= spec.scores.sees.only_the_step();
        }
        if let Some(StepInput::Taps(set)) = properties.input {
            taps = taps.max(set + 1);
        }
        let row = match operand {
            Some(Operand::Constant(row)) => row.clone(),
            Some(Operand::Weight { slice, .. }) => {
                vectors.get(slice).cloned().ok_or_else(|| Error::tensor(slice, "is no row of numbers"))?
            }
            Some(Operand::Tokens | Operand::Slot(_)) => {
                return Err(Error::internal("frequencies depend on the step"));
            }
            None => continue,
        };
        let table = AngleTable { frequencies: row, axes: properties.axes };
        if !angles.contains(&table) {
            angles.push(table);
        }
    }
    let recurrent = plan.steps().iter().any(|step| step.op.properties().state.is_some());
    let unsplit_positions = tiles::unsplit_positions(traits, cache.cache_type);
    let (max_tokens, groups) = (bounds.max_tokens, cache.groups.clone());
    let input_width = bounds.input_width();
    Ok(Layout {
        max_tokens,
        angles,
        has_spans,
        encodes,
        input_width,
        taps,
        query_block,
        unsplit_positions,
        groups,
        recurrent,
    })
}

/// Checks that a workgroup has an invocation for each element of a head.
///
/// # Errors
/// [`Error::Unsupported`] if the heads of the model are wider.
pub(super) fn check_heads(context: &Context, plan: &Plan) -> Result<()> {
    let most = context.traits.workgroup as usize;
    let widest = attentions(plan).map(|spec| spec.head_dim.next_multiple_of(16)).max().unwrap_or(0);
    if widest <= most {
        return Ok(());
    }
    let what = format!("{} attends to heads of up to {most} elements, the model's have {widest}", context.name);
    Err(Error::Unsupported(what))
}

fn attentions(plan: &Plan) -> impl Iterator<Item = AttentionSpec> {
    plan.steps().iter().filter_map(|step| step.op.properties().attention)
}

/// Returns the words of the partial results of a split of one token, in the attention op that has
/// the most.
pub(super) fn widest_partials(plan: &Plan) -> usize {
    attentions(plan).map(|spec| spec.heads * (spec.head_dim.next_multiple_of(16) + 2)).max().unwrap_or(0)
}

/// The tokens and outputs of a step for which the buffers of its values have room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Capacity {
    pub tokens: usize,
    pub outputs: usize,
}

impl Capacity {
    /// Returns the capacity before the first step: for every step of a text model, and for small
    /// images of an encoder, whose largest step can take gigabytes; for few outputs, whose logits
    /// take half a megabyte each.
    pub fn at_first(bounds: &Bounds) -> Self {
        Self { tokens: bounds.max_tokens.min(2048), outputs: bounds.max_outputs.min(GEMV_ROWS) }
    }

    /// Returns the capacity for a step that exceeds this one, within the bounds; `None` if the step
    /// fits.
    pub fn grown(self, step: &Step<'_>, bounds: &Bounds) -> Option<Self> {
        let grown = |now: usize, needed: usize, unit: usize, most: usize| match needed > now {
            true => needed.next_multiple_of(unit).min(most),
            false => now,
        };
        let tokens = grown(self.tokens, step.tokens.len(), 512, bounds.max_tokens);
        let outputs = grown(self.outputs, step.outputs.len(), 64, bounds.max_outputs);
        Some(Self { tokens, outputs }).filter(|grown| *grown != self)
    }
}

/// Returns the buffers that the programs bind, whose sizes follow from the capacity.
pub(super) fn resources(plan: &Plan, programs: &[GpuProgram]) -> Vec<Resource> {
    let bound = programs.iter().flat_map(GpuProgram::commands).flat_map(|command| &command.variants);
    let results = [plan.logits()].into_iter().chain(plan.hidden());
    let results = results.map(|place| Resource::Slot(place.slot.index()));
    let bound = bound.flat_map(|kernel| kernel.bindings.iter().map(|bound| bound.resource));
    let mut resources: Vec<_> =
        bound.chain([Resource::Ids]).chain(results).filter(|resource| depends_on_step(*resource)).collect();
    let mut seen = HashSet::new();
    resources.retain(|resource| seen.insert(*resource));
    resources
}

/// Returns whether the size of a buffer follows from the capacity.
fn depends_on_step(resource: Resource) -> bool {
    match resource {
        Resource::Weight(..)
        | Resource::Cache(_)
        | Resource::State(_)
        | Resource::Step
        | Resource::Partials
        | Resource::ArgmaxCandidates
        | Resource::ArgmaxIds
        | Resource::Best(_) => false,
        Resource::Ids
        | Resource::Given
        | Resource::Slot(_)
        | Resource::Q8(_)
        | Resource::F16(_)
        | Resource::F16Scale(_)
        | Resource::Selected(..)
        | Resource::SlotOf
        | Resource::TokenOf
        | Resource::Tiles
        | Resource::Slots(_)
        | Resource::SlotQ8
        | Resource::SlotF16
        | Resource::SlotF16Scale
        | Resource::Temp(_)
        | Resource::Mixes => true,
    }
}

/// Allocates the buffers of a step's values, and the buffer in which the host reads its logits.
///
/// # Errors
/// [`Error::DeviceMemory`] if the device has too little memory.
pub(super) fn allocate(
    context: &Context,
    plan: &Plan,
    resources: &[Resource],
    input_width: usize,
    capacity: Capacity,
    buffers: &mut Buffers,
) -> Result<wgpu::Buffer> {
    for resource in resources {
        let bytes = bytes_of(*resource, plan, input_width, capacity);
        buffers.set(*resource, context.buffer("a step's values", bytes, STORAGE)?);
    }
    let logits_bytes = (capacity.outputs.max(1) * plan.logits().shape.width * 4) as u64;
    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
    context.buffer("the readback of logits", logits_bytes, usage)
}

/// Returns the bytes of a buffer of a step's values.
fn bytes_of(resource: Resource, plan: &Plan, input_width: usize, capacity: Capacity) -> u64 {
    let rows_and_width = |slot: usize| {
        let slot = plan.slots()[slot];
        let rows = match slot.rows {
            Rows::Fixed(rows) => rows,
            Rows::Tokens => capacity.tokens,
            Rows::Outputs => capacity.outputs.max(1),
        };
        (rows, slot.width.next_multiple_of(64))
    };
    let rows = capacity.tokens.max(capacity.outputs);
    let bytes = match resource {
        Resource::Ids => 4 * capacity.tokens,
        Resource::Given => 4 * capacity.tokens * input_width,
        Resource::Slot(slot) => {
            let (rows, width) = rows_and_width(slot);
            4 * rows * width
        }
        Resource::Q8(slot) => {
            let (rows, width) = rows_and_width(slot);
            48 * rows * width.div_ceil(32)
        }
        Resource::F16(slot) => {
            let (rows, width) = rows_and_width(slot);
            2 * rows.next_multiple_of(TILE) * width
        }
        Resource::Selected(slot, used) => 8 * used * rows_and_width(slot).0,
        Resource::SlotOf | Resource::TokenOf => 4 * slots(plan, rows),
        // An upper bound: a tile of 16 bytes for each slot, and a partial tile for each expert.
        Resource::Tiles => 32 * slots(plan, rows),
        Resource::Slots(_) => 4 * slots(plan, rows) * widest_slot(plan),
        Resource::SlotQ8 => 48 * slots(plan, rows) * widest_slot(plan) / UNIT,
        Resource::SlotF16 => 2 * slots(plan, rows).next_multiple_of(TILE) * widest_slot(plan),
        Resource::SlotF16Scale => 4 * slots(plan, rows).next_multiple_of(TILE),
        Resource::F16Scale(slot) => 4 * rows_and_width(slot).0.next_multiple_of(TILE),
        Resource::Temp(_) => {
            let widest = (0..plan.slots().len()).map(rows_and_width).map(|(rows, width)| 4 * rows * width);
            widest.filter(|bytes| *bytes > 0).max().unwrap_or(0)
        }
        Resource::Mixes => capacity.tokens * mix_bytes(plan),
        Resource::Step
        | Resource::Partials
        | Resource::ArgmaxCandidates
        | Resource::ArgmaxIds
        | Resource::Best(_)
        | Resource::Weight(..)
        | Resource::Cache(_)
        | Resource::State(_) => 0,
    };
    bytes as u64
}

/// Returns the steps that are layers of experts.
fn mixtures(plan: &Plan) -> impl Iterator<Item = (&PlanStep, &ExpertsSpec)> {
    plan.steps().iter().filter_map(|step| if let Op::Experts(spec) = &step.op { Some((step, spec)) } else { None })
}

/// Returns the largest number of expert slots of a layer for this many rows.
fn slots(plan: &Plan, rows: usize) -> usize {
    rows.saturating_mul(mixtures(plan).map(|(_, spec)| spec.top_k).max().unwrap_or(0))
}

/// Returns the elements of the widest row of an expert slot.
fn widest_slot(plan: &Plan) -> usize {
    let widths = mixtures(plan).flat_map(|(step, _)| {
        let down = step.matrices().last().map_or(0, |down| match down {
            Operand::Weight { shape, .. } => shape.width,
            Operand::Tokens | Operand::Constant(_) | Operand::Slot(_) => 0,
        });
        [down, step.outputs[0].shape.width]
    });
    widths.max().unwrap_or(0).next_multiple_of(64)
}

/// Returns the bytes of [`Resource::Mixes`] for each token.
fn mix_bytes(plan: &Plan) -> usize {
    let heads = plan
        .steps()
        .iter()
        .filter_map(|step| if let Op::GatedDelta(spec) = &step.op { Some(spec.value_heads) } else { None });
    heads.max().unwrap_or(0).saturating_mul(4 * MIX)
}

/// Returns an upper bound of the bytes of a plan's buffers, without weights, cache and states.
pub(super) fn scratch_bytes(plan: &Plan, max_tokens: usize, max_outputs: usize, max_positions: usize) -> usize {
    let slots = plan.bytes(max_tokens, max_outputs);
    // Steps of more than 16 tokens split attention too if each of their sequences has one token.
    let split_tokens = max_tokens.min(GEMV_ROWS.max(max_outputs));
    let splits = max_positions.div_ceil(SPLIT).saturating_mul(split_tokens);
    // The buffer grows by powers of two.
    let partials = splits.saturating_mul(4 * widest_partials(plan));
    let partials = partials.checked_next_power_of_two().unwrap_or(usize::MAX);
    // 14 bytes for an element of a slot: two f32 and one f16 with its scale, or less as int8.
    let experts = self::slots(plan, max_tokens.max(max_outputs)).saturating_mul(widest_slot(plan)).saturating_mul(14);
    let mixes = max_tokens.saturating_mul(mix_bytes(plan));
    // Twice the slots: values also have int8 or f16 forms, and two temporary buffers.
    slots.saturating_mul(2).saturating_add(partials).saturating_add(experts).saturating_add(mixes)
}
