//! From a graph to steps over few buffers.
//!
//! In: a [`Graph`]. Out: a [`Plan`], the steps that a backend executes in order and the buffer slots that they read and
//! write. A value has its slot from the node that makes it to its last use, so a model of any depth needs the slots of
//! one layer; an op that can update an operand in place takes that operand's slot over. Sizes stay symbolic:
//! one plan serves steps of every length, and [`Plan::bytes`] says what a given length needs.

use std::{cmp::Reverse, sync::Arc};

use crate::{
    DType, Error, Result,
    graph::{Graph, Op, Rows, Shape, Source, ValueId},
    weights::TensorSlice,
};

/// Names a slot of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(u32);

impl SlotId {
    /// Its position in [`Plan::slots`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A buffer of f32 elements that values take turns in.
///
/// Values of different kinds of rows never share one, so that its size is a product and needs no maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// What its number of rows is.
    pub rows: Rows,
    /// The width of its widest value. A narrower value lies packed at its start, its rows without gaps.
    pub width: usize,
}

/// A value in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where it lies.
    pub slot: SlotId,
    /// Its own shape; the width is the distance between its rows.
    pub shape: Shape,
}

/// Where a step reads an operand.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// The step's token ids.
    Tokens,
    /// A tensor of the model.
    Weight {
        /// Its name in the file, and the rows.
        slice: TensorSlice,
        /// The format of its elements.
        dtype: DType,
        /// `[rows, columns]`.
        shape: Shape,
    },
    /// One row of numbers.
    Constant(Arc<[f32]>),
    /// The result of an earlier step.
    Slot(Place),
}

/// An op with the places of its operands and results.
#[derive(Clone, Debug)]
pub struct PlanStep {
    /// What is computed.
    pub op: Op,
    /// Its operands, in the op's order.
    pub inputs: Vec<Operand>,
    /// Its results, in the op's order. They share no slot with each other, nor with an operand, except that the first
    /// may lie in the slot of the operand that the op updates in place.
    pub outputs: Vec<Place>,
}

impl PlanStep {
    /// Returns the operands that are matrices to multiply with.
    pub fn matrices(&self) -> &[Operand] {
        &self.inputs[self.op.properties().matrices_of(self.inputs.len())]
    }

    /// How many matrices lie one after the other in number `index` of [`matrices`](Self::matrices): those of experts, or
    /// one.
    pub fn stacked(&self, index: usize) -> usize {
        let Op::Experts(spec) = &self.op else { return 1 };
        let gate_and_up_joined = self.matrices().len() == 2 && index == 0;
        if gate_and_up_joined { 2 * spec.experts } else { spec.experts }
    }

    /// The operand that the first result overwrites, if any.
    pub fn in_place(&self) -> Option<usize> {
        let result = self.outputs.first()?;
        self.inputs.iter().position(|input| matches!(input, Operand::Slot(place) if place.slot == result.slot))
    }
}

/// The steps of a graph's computation, in order, and the slots that they work in.
#[derive(Clone, Debug)]
pub struct Plan {
    steps: Vec<PlanStep>,
    slots: Vec<Slot>,
    logits: Place,
}

impl Plan {
    /// Orders the nodes of `graph` as they stand and gives every result a slot.
    ///
    /// # Errors
    /// [`Error::Graph`] where the graph breaks an invariant.
    pub fn new(graph: &Graph) -> Result<Self> {
        graph.verify()?;
        let (tenancies, of_value) = tenancies(graph);
        let (slots, of_tenancy) = assign(&tenancies);
        let place = |id: ValueId| {
            let tenancy = of_value[id.index()]?;
            Some(Place { slot: of_tenancy[tenancy], shape: graph.shape(id) })
        };
        let missing = |id: ValueId| Error::Graph(format!("no node makes %{}", id.index()));
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
        Ok(Self { steps, slots, logits: placed(&graph.logits())? })
    }

    /// The steps, in order of execution.
    pub fn steps(&self) -> &[PlanStep] {
        &self.steps
    }

    /// The slots, by [`SlotId`].
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Where the logits lie after the last step, `[Outputs, vocabulary]`.
    pub fn logits(&self) -> Place {
        self.logits
    }

    /// The bytes of all slots for a step of `tokens` tokens that wants the logits of `outputs` of them; `usize::MAX`
    /// where that many cannot be counted.
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

/// The time that a value needs a slot for, with those that update it in place one after the other.
struct Tenancy {
    shape: Shape,
    /// The node that makes the first value.
    first: usize,
    /// The node that reads the last value for the last time.
    last: usize,
}

impl Tenancy {
    /// Both need a slot at some node. The bounds count, so that no result lies in the slot of another's operand.
    fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// All tenancies, and by value which one it is part of: none for weights, constants and the tokens.
fn tenancies(graph: &Graph) -> (Vec<Tenancy>, Vec<Option<usize>>) {
    let last_reads = last_reads(graph);
    let mut tenancies: Vec<Tenancy> = Vec::new();
    let mut of_value: Vec<Option<usize>> = vec![None; graph.values().len()];
    for (index, node) in graph.nodes().iter().enumerate() {
        for (output, id) in node.outputs.iter().enumerate() {
            let (shape, last) = (graph.shape(*id), last_reads[id.index()]);
            let overwritten = node.op.properties().in_place.filter(|_| output == 0).map(|operand| node.inputs[operand]);
            let taken_over = overwritten
                .filter(|old| last_reads[old.index()] == index && graph.shape(*old) == shape)
                .filter(|old| node.inputs.iter().filter(|input| *input == old).count() == 1)
                .and_then(|old| of_value[old.index()]);
            let tenancy = taken_over.unwrap_or_else(|| {
                tenancies.push(Tenancy { shape, first: index, last });
                tenancies.len() - 1
            });
            tenancies[tenancy].last = last;
            of_value[id.index()] = Some(tenancy);
        }
    }
    (tenancies, of_value)
}

/// The last node that reads each value, by value: its own node for one that nothing reads, none for the logits.
fn last_reads(graph: &Graph) -> Vec<usize> {
    let mut last = vec![0; graph.values().len()];
    for (index, node) in graph.nodes().iter().enumerate() {
        for id in node.inputs.iter().chain(&node.outputs) {
            last[id.index()] = index;
        }
    }
    last[graph.logits().index()] = usize::MAX;
    last
}

/// The slots, and by tenancy which one it has. The widest choose first, so that a slot never has to grow, and each
/// takes the narrowest that is free: greedy by size, after [Pisarchyk and Lee 2020](https://arxiv.org/abs/2001.03288).
/// Among the equally wide the longest are first, since short ones fit the gaps that those leave.
fn assign(tenancies: &[Tenancy]) -> (Vec<Slot>, Vec<SlotId>) {
    let mut order: Vec<usize> = (0..tenancies.len()).collect();
    order.sort_by_key(|index| {
        let Tenancy { shape, first, last } = tenancies[*index];
        Reverse((shape.width, last - first))
    });
    let mut slots: Vec<Slot> = Vec::new();
    let mut tenants: Vec<Vec<&Tenancy>> = Vec::new();
    let mut of_tenancy = vec![SlotId(0); tenancies.len()];
    for index in order {
        let tenancy = &tenancies[index];
        let is_free = |slot: &usize| {
            slots[*slot].rows == tenancy.shape.rows && !tenants[*slot].iter().any(|tenant| tenant.overlaps(tenancy))
        };
        let free = (0..slots.len()).filter(is_free).min_by_key(|slot| slots[*slot].width);
        let slot = free.unwrap_or_else(|| {
            slots.push(Slot { rows: tenancy.shape.rows, width: tenancy.shape.width });
            tenants.push(Vec::new());
            slots.len() - 1
        });
        tenants[slot].push(tenancy);
        of_tenancy[index] = SlotId(slot as u32);
    }
    (slots, of_tenancy)
}
