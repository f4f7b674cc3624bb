//! From a graph to steps over few buffers.
//!
//! In: a [`Graph`]. Out: a [`Plan`], the steps that a backend executes in order and the buffer slots that they read and
//! write. A value takes a slot when it is made and gives it back after its last use, so a model of any depth needs the
//! slots of one layer; an op that can update an operand in place takes that operand's slot over. Sizes stay symbolic:
//! one plan serves steps of every length, and [`Plan::bytes`] says what a given length needs.

use std::sync::Arc;

use crate::{
    DType, Error, Result,
    graph::{Graph, Op, Rows, Shape, Source, ValueId},
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
        /// Its name in the file.
        name: Arc<str>,
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
    /// [`Error::Graph`](crate::Error::Graph) where the graph breaks an invariant.
    pub fn new(graph: &Graph) -> Result<Self> {
        graph.verify()?;
        let mut slots = Slots::default();
        let mut places = vec![None; graph.values().len()];
        let last_reads = last_reads(graph);
        let steps = (0..graph.nodes().len())
            .map(|node| step(graph, node, &last_reads, &mut places, &mut slots))
            .collect::<Result<_>>()?;
        let logits = places[graph.logits().index()].ok_or_else(|| Error::Graph("no node makes the logits".into()))?;
        Ok(Self { steps, slots: slots.all, logits })
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

/// Places the results of a node, then frees what is read here for the last time: in this order, so that a result
/// never lies in the slot of an operand, but for the one that it takes over.
fn step(
    graph: &Graph,
    index: usize,
    last_reads: &[usize],
    places: &mut [Option<Place>],
    slots: &mut Slots,
) -> Result<PlanStep> {
    let node = &graph.nodes()[index];
    let inputs = node.inputs.iter().map(|id| operand(graph, *id, places)).collect::<Result<_>>()?;
    let mut outputs = Vec::with_capacity(node.outputs.len());
    for (output, id) in node.outputs.iter().enumerate() {
        let shape = graph.shape(*id);
        let overwritten = node.op.in_place_operand().filter(|_| output == 0).map(|operand| node.inputs[operand]);
        let place = overwritten
            .filter(|old| last_reads[old.index()] == index && graph.shape(*old) == shape)
            .filter(|old| node.inputs.iter().filter(|input| *input == old).count() == 1)
            .and_then(|old| places[old.index()].take())
            .unwrap_or_else(|| Place { slot: slots.take(shape), shape });
        places[id.index()] = Some(place);
        outputs.push(place);
    }
    for id in node.inputs.iter().chain(&node.outputs) {
        if last_reads[id.index()] == index
            && let Some(place) = places[id.index()].take()
        {
            slots.free.push(place.slot);
        }
    }
    Ok(PlanStep { op: node.op.clone(), inputs, outputs })
}

fn operand(graph: &Graph, id: ValueId, places: &[Option<Place>]) -> Result<Operand> {
    let value = graph.value(id);
    Ok(match (&value.source, places[id.index()]) {
        (_, Some(place)) => Operand::Slot(place),
        (Source::Weight { name, dtype }, None) => {
            Operand::Weight { name: name.clone(), dtype: *dtype, shape: value.shape }
        }
        (Source::Constant(row), None) => Operand::Constant(row.clone()),
        (Source::Tokens, None) => Operand::Tokens,
        (Source::Node { .. }, None) => return Err(Error::Graph(format!("nothing makes operand %{}", id.index()))),
    })
}

#[derive(Default)]
struct Slots {
    all: Vec<Slot>,
    free: Vec<SlotId>,
}

impl Slots {
    /// The free slot that wastes or grows least, or a new one.
    fn take(&mut self, shape: Shape) -> SlotId {
        let candidates = self.free.iter().enumerate().filter(|(_, id)| self.all[id.index()].rows == shape.rows);
        let best = candidates.min_by_key(|(_, id)| {
            let width = self.all[id.index()].width;
            (width < shape.width, width.abs_diff(shape.width))
        });
        let Some((position, &id)) = best else {
            self.all.push(Slot { rows: shape.rows, width: shape.width });
            return SlotId(self.all.len() as u32 - 1);
        };
        self.free.swap_remove(position);
        let slot = &mut self.all[id.index()];
        slot.width = slot.width.max(shape.width);
        id
    }
}
