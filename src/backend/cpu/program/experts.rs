//! Divides a layer of experts into stages, each with its matrices.

use std::sync::Arc;

use super::{buffer::Buffer, expert_slots::ExpertSizes};
use crate::{
    Error, Result,
    backend::cpu::weights::{matrix::Matrix, prepare::PreparedWeights},
    graph::ExpertsSpec,
    plan::PlanStep,
};

/// A stage of a layer of experts. The threads do the stages in order, with barriers in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpertStage {
    /// Assigns slots to the tokens of each expert, on one thread.
    Group,
    /// Copies rows to their slots: quantized to int8 for quantized matrices, as f32 for float ones.
    Spread,
    /// Multiplies the slots of each expert with gate and up, activates and multiplies the results.
    GateUp,
    /// Quantizes these results to int8 if the down matrices are quantized.
    Quantize,
    /// Multiplies the slots of each expert with down, and by the weight of the slot.
    Down,
    /// Adds up the slots of each token.
    Sum,
}

impl ExpertStage {
    /// All stages in order, with their names in profiles.
    pub const ALL: [(&'static str, Self); 6] = [
        ("group", Self::Group),
        ("spread", Self::Spread),
        ("experts_gate_up", Self::GateUp),
        ("quantize", Self::Quantize),
        ("experts_down", Self::Down),
        ("sum", Self::Sum),
    ];
}

/// The matrices of one kind of all experts, within a stack.
pub(crate) struct ExpertMatrix {
    pub matrix: Arc<Matrix>,
    /// The number of expert 0's matrix in the stack.
    offset: usize,
    /// Matrices from one expert to the next.
    stride: usize,
}

impl ExpertMatrix {
    /// Returns the number of groups of sixteen rows of an expert.
    pub fn groups(&self) -> usize {
        self.matrix.stack().groups_per_matrix()
    }

    /// Returns whether the matrices are those of another stack, as those of experts without a gate
    /// are.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.matrix, &other.matrix) && self.offset == other.offset
    }

    /// Returns the number in the stack of an expert's group.
    pub fn group(&self, expert: usize, group: usize) -> usize {
        (self.offset + self.stride * expert) * self.groups() + group
    }
}

/// The biases of one kind of layer: `[2 experts, ffn]` of gate and up, then `[experts, hidden]`.
pub(crate) struct ExpertBiases {
    pub row: Arc<[f32]>,
    pub experts: usize,
    pub ffn: usize,
    pub hidden: usize,
}

impl ExpertBiases {
    /// Returns the biases of an expert's gate and up, from row `first` on.
    pub fn gate_up(&self, expert: usize, first: usize) -> [&[f32]; 2] {
        [expert, self.experts + expert].map(|number| &self.row[number * self.ffn + first..])
    }

    /// Returns the biases of an expert's down, from row `first` on.
    pub fn down(&self, expert: usize, first: usize) -> &[f32] {
        &self.row[2 * self.experts * self.ffn + expert * self.hidden + first..]
    }
}

/// A layer of experts.
pub(crate) struct ExpertsLayer {
    pub spec: ExpertsSpec,
    pub x: Buffer,
    /// `[rows, experts]`: the weight of each expert, 0 for experts that are not chosen.
    pub weights: Buffer,
    /// The biases of all gates, of all ups and of all downs, if there are biases.
    pub biases: Option<ExpertBiases>,
    pub gate: ExpertMatrix,
    pub up: ExpertMatrix,
    pub down: ExpertMatrix,
    pub out: Buffer,
    pub sizes: ExpertSizes,
}

impl ExpertsLayer {
    /// Collects the operands of a step, whose result goes to `out`.
    ///
    /// # Errors
    /// As [`PreparedWeights::matrix`].
    pub fn new(step: &PlanStep, spec: ExpertsSpec, prepared: &PreparedWeights, out: Buffer) -> Result<Self> {
        let matrix = |index: usize| prepared.matrix(&step.matrices()[index], step.stacked(index));
        let separate = |index| Ok(ExpertMatrix { matrix: matrix(index)?, offset: 0, stride: 1 });
        let [gate, up] = match step.matrices().len() {
            // Each expert's gate and up follow one another in a single stack.
            2 => {
                let both = matrix(0)?;
                [0, 1].map(|offset| ExpertMatrix { matrix: both.clone(), offset, stride: 2 })
            }
            _ => [separate(0)?, separate(1)?],
        };
        let down = separate(step.matrices().len() - 1)?;
        let [x, weights] = [Buffer::of(&step.inputs[0])?, Buffer::of(&step.inputs[1])?];
        let sizes = ExpertSizes::of(step).ok_or_else(|| Error::internal("a layer of experts has no matrices"))?;
        let biases = spec.biased.then(|| prepared.vector(&step.inputs[2])).transpose()?;
        let (experts, ffn, hidden) = (spec.experts, sizes.ffn, sizes.hidden);
        let biases = biases.map(|row| ExpertBiases { row, experts, ffn, hidden });
        Ok(Self { spec, x, weights, biases, gate, up, down, out, sizes })
    }

    /// Returns the bytes of weights that a stage reads for each expert that has tokens.
    pub fn bytes_per_expert(&self, stage: ExpertStage) -> usize {
        match stage {
            ExpertStage::GateUp if self.gate.is_same(&self.up) => self.up.matrix.bytes_per_matrix(),
            ExpertStage::GateUp => self.gate.matrix.bytes_per_matrix() + self.up.matrix.bytes_per_matrix(),
            ExpertStage::Down => self.down.matrix.bytes_per_matrix(),
            ExpertStage::Group | ExpertStage::Spread | ExpertStage::Quantize | ExpertStage::Sum => 0,
        }
    }
}
