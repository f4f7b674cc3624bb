//! Orders the nodes of a graph as steps, and gives their values buffers.
//!
//! The input is a [`Graph`]; the output is a [`Plan`]: the steps that a backend executes in order,
//! and the slots (buffers) that they read and write. A value occupies its slot from the node that
//! makes it to its last use, so a model of any depth needs the slots of one layer. An op that can
//! update an operand in place takes over the operand's slot. Sizes stay symbolic: one plan serves
//! steps of every length, and [`Plan::bytes`] returns the memory for a given length.

use std::{cmp::Reverse, sync::Arc};

use crate::{
    DType, Error, Result,
    graph::{Graph, Op, Rows, Shape, Source, ValueId},
    weights::TensorSlice,
};

/// The id of a slot of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(u32);

impl SlotId {
    /// Returns the slot's position in [`Plan::slots`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A buffer of f32 elements that holds several values, one after the other in time.
///
/// All values of a slot have the same kind of rows, so the size of the slot is a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The number of rows.
    pub rows: Rows,
    /// The width of the widest value. A narrower value is packed at the start, its rows without
    /// gaps.
    pub width: usize,
}

/// The place of a value in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The slot, at whose start the value lies.
    pub slot: SlotId,
    /// The value's shape; its rows are `width` elements apart.
    pub shape: Shape,
}

/// The source of an operand.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// The step's token ids.
    Tokens,
    /// A tensor of the model.
    Weight {
        /// Its name in the file, and the rows.
        slice: TensorSlice,
        /// The format of the elements.
        dtype: DType,
        /// `[rows, columns]`.
        shape: Shape,
    },
    /// A constant row.
    Constant(Arc<[f32]>),
    /// The result of an earlier step.
    Slot(Place),
}

/// An op with the places of its operands and results.
#[derive(Clone, Debug)]
pub struct PlanStep {
    /// The op.
    pub op: Op,
    /// The operands, in the op's order.
    pub inputs: Vec<Operand>,
    /// The results, in the op's order. No two results share a slot, and no result shares a slot
    /// with an operand, except that the first may have the slot of the operand that the op updates
    /// in place.
    pub outputs: Vec<Place>,
}

impl PlanStep {
    /// Returns the operands that are matrices to multiply with.
    pub fn matrices(&self) -> &[Operand] {
        &self.inputs[self.op.properties().matrices_of(self.inputs.len())]
    }

    /// Returns the number of matrices stacked in operand `index` of [`matrices`](Self::matrices):
    /// one or two for each expert, one for each head, and 1 for any other op.
    pub fn stacked(&self, index: usize) -> usize {
        if let Op::MatMulHeads { heads } = self.op {
            return heads;
        }
        let Op::Experts(spec) = &self.op else { return 1 };
        let gate_and_up_joined = self.matrices().len() == 2 && index == 0;
        if gate_and_up_joined { 2 * spec.experts } else { spec.experts }
    }

    /// Returns the position of the operand that the first result overwrites, if any.
    pub fn in_place(&self) -> Option<usize> {
        let result = self.outputs.first()?;
        self.inputs.iter().position(|input| matches!(input, Operand::Slot(place) if place.slot == result.slot))
    }
}

/// The steps of a graph's computation, in order, and the slots of their values.
#[derive(Clone, Debug)]
pub struct Plan {
    steps: Vec<PlanStep>,
    slots: Vec<Slot>,
    logits: Place,
    hidden: Option<Place>,
}

impl Plan {
    /// Makes a step of each node of `graph`, in the same order, and gives every result a slot.
    ///
    /// # Errors
    /// [`Error::Internal`] if the graph is not valid.
    pub fn new(graph: &Graph) -> Result<Self> {
        graph.verify()?;
        let Lifetimes { lifetimes, by_value } = Lifetimes::new(graph);
        let SlotAssignment { slots, by_lifetime } = SlotAssignment::new(&lifetimes);
        let place = |id: ValueId| {
            let lifetime = by_value[id.index()]?;
            Some(Place { slot: by_lifetime[lifetime], shape: graph.shape(id) })
        };
        let missing = |id: ValueId| Error::internal(format!("no node makes %{}", id.index()));
        let placed = |id: &ValueId| place(*id).ok_or_else(|| missing(*id));
        let mut steps = Vec::with_capacity(graph.nodes().len());
        for node in graph.nodes() {
            let inputs = node.inputs.iter().map(|id| operand(graph, *id, place(*id)).ok_or_else(|| missing(*id)));
            steps.push(PlanStep {
                op: node.op.clone(),
                inputs: inputs.collect::<Result<_>>()?,
                outputs: node.outputs.iter().map(placed).collect::<Result<_>>()?,
            });
        }
        let hidden = graph.hidden().as_ref().map(placed).transpose()?;
        Ok(Self { steps, slots, logits: placed(&graph.logits())?, hidden })
    }

    /// Returns the steps, in order of execution.
    pub fn steps(&self) -> &[PlanStep] {
        &self.steps
    }

    /// Returns the slots, by [`SlotId`].
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Returns the place of the logits after the last step, `[Outputs, vocabulary]`.
    pub fn logits(&self) -> Place {
        self.logits
    }

    /// Returns the place of the graph's second result after the last step, if it has one.
    pub fn hidden(&self) -> Option<Place> {
        self.hidden
    }

    /// Returns the bytes of all slots for a step of `tokens` tokens that returns the logits of
    /// `outputs` of them, or `usize::MAX` if the number overflows.
    pub fn bytes(&self, tokens: usize, outputs: usize) -> usize {
        let sizes = self.slots.iter().map(|slot| {
            let rows = match slot.rows {
                Rows::Fixed(rows) => rows,
                Rows::Tokens => tokens,
                Rows::Outputs => outputs,
            };
            rows.saturating_mul(slot.width).saturating_mul(size_of::<f32>())
        });
        sizes.fold(0, usize::saturating_add)
    }
}

fn operand(graph: &Graph, id: ValueId, place: Option<Place>) -> Option<Operand> {
    let value = graph.value(id);
    match &value.source {
        Source::Tokens => Some(Operand::Tokens),
        Source::Weight { slice, dtype } => {
            Some(Operand::Weight { slice: slice.clone(), dtype: *dtype, shape: value.shape })
        }
        Source::Constant(row) => Some(Operand::Constant(row.clone())),
        Source::Node { .. } => place.map(Operand::Slot),
    }
}

/// The nodes from the first to the last that need a slot: for a value, and for the values that
/// update it in place one after the other.
struct Lifetime {
    shape: Shape,
    /// The node that makes the first value.
    first: usize,
    /// The last node that reads the last value.
    last: usize,
}

impl Lifetime {
    /// Returns whether some node needs both. Both ends are inclusive, so no result has the slot of
    /// an operand of the same node.
    fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

struct Lifetimes {
    lifetimes: Vec<Lifetime>,
    /// The position of each value's lifetime; `None` for weights, constants and tokens.
    by_value: Vec<Option<usize>>,
}

impl Lifetimes {
    fn new(graph: &Graph) -> Self {
        let last_reads = last_reads(graph);
        let mut lifetimes: Vec<Lifetime> = Vec::new();
        let mut by_value: Vec<Option<usize>> = vec![None; graph.values().len()];
        for (index, node) in graph.nodes().iter().enumerate() {
            for (output, id) in node.outputs.iter().enumerate() {
                let (shape, last) = (graph.shape(*id), last_reads[id.index()]);
                let in_place = node.op.properties().in_place.filter(|_| output == 0);
                let overwritten = in_place
                    .map(|operand| node.inputs[operand])
                    .filter(|old| last_reads[old.index()] == index && graph.shape(*old) == shape)
                    .filter(|old| node.inputs.iter().filter(|input| *input == old).count() == 1);
                let lifetime = overwritten.and_then(|old| by_value[old.index()]).unwrap_or_else(|| {
                    lifetimes.push(Lifetime { shape, first: index, last });
                    lifetimes.len() - 1
                });
                lifetimes[lifetime].last = last;
                by_value[id.index()] = Some(lifetime);
            }
        }
        Self { lifetimes, by_value }
    }
}

/// Returns the last node that reads each value, by value: the node that makes it if no node reads
/// it, and `usize::MAX` for a result.
fn last_reads(graph: &Graph) -> Vec<usize> {
    let mut last = vec![0; graph.values().len()];
    for (index, node) in graph.nodes().iter().enumerate() {
        for id in node.inputs.iter().chain(&node.outputs) {
            last[id.index()] = index;
        }
    }
    graph.results().for_each(|id| last[id.index()] = usize::MAX);
    last
}

struct SlotAssignment {
    slots: Vec<Slot>,
    by_lifetime: Vec<SlotId>,
}

impl SlotAssignment {
    /// Assigns a slot to each lifetime, greedily by size, after [Pisarchyk and Lee
    /// 2020](https://arxiv.org/abs/2001.03288). Wide lifetimes come first, so that a slot never has
    /// to grow, and each gets the narrowest free slot. Among equally wide lifetimes the longest
    /// come first, since short ones fit the gaps between them.
    fn new(lifetimes: &[Lifetime]) -> Self {
        let mut order: Vec<usize> = (0..lifetimes.len()).collect();
        order.sort_by_key(|index| {
            let Lifetime { shape, first, last } = lifetimes[*index];
            Reverse((shape.width, last - first))
        });
        let mut slots: Vec<Slot> = Vec::new();
        let mut occupants: Vec<Vec<&Lifetime>> = Vec::new();
        let mut by_lifetime = vec![SlotId(0); lifetimes.len()];
        for index in order {
            let lifetime = &lifetimes[index];
            let is_free = |slot: &usize| {
                slots[*slot].rows == lifetime.shape.rows
                    && !occupants[*slot].iter().any(|occupant| occupant.overlaps(lifetime))
            };
            let free = (0..slots.len()).filter(is_free).min_by_key(|slot| slots[*slot].width);
            let slot = free.unwrap_or_else(|| {
                slots.push(Slot { rows: lifetime.shape.rows, width: lifetime.shape.width });
                occupants.push(Vec::new());
                slots.len() - 1
            });
            occupants[slot].push(lifetime);
            by_lifetime[index] = SlotId(slot as u32);
        }
        Self { slots, by_lifetime }
    }
}
