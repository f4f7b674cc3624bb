//! Describes one dispatch: a kernel with its parameters, the buffers that it binds, and the number
//! of its workgroups, which depends on the sizes of the step.

use std::{borrow::Cow, sync::Arc};

use serde::Serialize;

use super::{
    kernels::{AnyTemplate, Template},
    templates::Templates,
    weight_buffers::BufferRange,
};
use crate::{Result, graph::Rows};

/// The buffer of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Resource {
    /// The step's buffer, whose layout is in `step/`.
    Step,
    /// The tokens' ids, `[tokens]`.
    Ids,
    /// The rows that the step gives for tokens, f32.
    Given,
    /// A slot of the plan, as f32.
    Slot(usize),
    /// A slot of the plan, as int8.
    Q8(usize),
    /// A slot of the plan, as f16.
    F16(usize),
    /// `[rows]` f32: the scale of each row of [`Resource::F16`].
    F16Scale(usize),
    /// `[rows, top_k]` (expert, weight): the active experts of each row. The fields are the slot of
    /// the router's weights and `top_k`.
    Selected(usize, usize),
    /// `[rows, top_k]` u32: the expert slot of each (row, expert). Expert slots are numbered expert
    /// by expert.
    SlotOf,
    /// `[slots]` u32: the row of each expert slot.
    TokenOf,
    /// `[tiles]` vec4 of u32: tiles of the expert slots, one expert each. A tile is the expert, its
    /// first slot, the slot after its last, and 0.
    Tiles,
    /// A row of f32 for each expert slot within one op; the first or the second such buffer.
    Slots(usize),
    /// A row of int8 for each expert slot within one op.
    SlotQ8,
    /// A row of f16 for each expert slot within one op.
    SlotF16,
    /// `[slots]` f32: the scale of each row of [`Resource::SlotF16`].
    SlotF16Scale,
    /// Rows of f32 that live within one op; the first or the second such buffer.
    Temp(usize),
    /// A range of the weights: the number of the buffer, the first byte and the size in bytes.
    Weight(usize, u64, u64),
    /// The pages of a layer's KV cache.
    Cache(usize),
    /// The states of a recurrent op, for all sequences.
    State(usize),
    /// The partial results of attention: for each split and head its maximum score, the sum of its
    /// weights, and the weighted sum of its values.
    Partials,
    /// The matrices of a gated delta rule with which the tokens of a chunk affect each other.
    Mixes,
    /// The largest logit of each workgroup's share of the vocabulary, with its id.
    ArgmaxCandidates,
    /// The ids of the largest logits.
    ArgmaxIds,
    /// The largest logits after a round of selection.
    Best(usize),
}

impl From<BufferRange> for Resource {
    fn from(range: BufferRange) -> Self {
        Self::Weight(range.buffer, range.offset, range.size)
    }
}

/// A buffer that a kernel binds, and how the kernel declares it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Binding {
    /// The name.
    pub name: Cow<'static, str>,
    /// The type of the elements.
    pub element: &'static str,
    /// Whether the kernel writes the buffer.
    pub writes: bool,
    /// The buffer.
    #[serde(skip)]
    pub resource: Resource,
}

/// Returns a binding that the kernel reads and does not write.
pub(super) fn reads(
    name: impl Into<Cow<'static, str>>,
    element: &'static str,
    resource: impl Into<Resource>,
) -> Binding {
    Binding { name: name.into(), element, writes: false, resource: resource.into() }
}

/// Returns a binding that the kernel writes.
pub(super) fn writes(
    name: impl Into<Cow<'static, str>>,
    element: &'static str,
    resource: impl Into<Resource>,
) -> Binding {
    Binding { name: name.into(), element, writes: true, resource: resource.into() }
}

/// The number of a kernel's workgroups along one dimension.
#[derive(Clone, Copy, Debug)]
pub(super) enum Workgroups {
    /// The same number in every step.
    Fixed(usize),
    /// One for each group of this many tokens.
    Tokens(usize),
    /// One for each group of this many outputs.
    Outputs(usize),
    /// One for each expert slot.
    Slots {
        rows: Rows,
        /// Active experts of a row.
        top_k: usize,
    },
    /// One for each tile of expert slots; a tile has slots of one expert.
    Tiles {
        rows: Rows,
        /// Active experts of a row.
        top_k: usize,
        /// Slots of a tile.
        tile: usize,
        /// Experts of the layer.
        experts: usize,
    },
    /// One for each split of the longest sequence.
    Splits,
    /// One for each `PositionRange` whose keys and values are appended together.
    AppendRanges,
    /// One for each `PositionRange` whose queries attend together.
    QueryBlocks,
    /// One for each run.
    Runs,
    /// One for each run of at least one full chunk, which a recurrence processes by chunks.
    LongRuns,
    /// One for each run that is shorter than a chunk.
    ShortRuns,
    /// One for each chunk of a run.
    Chunks,
    /// One for each chunk of a long run.
    LongChunks,
}

/// The sizes of a step that dispatches depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StepSizes {
    pub tokens: usize,
    pub outputs: usize,
    /// Whether a token's positions are not split.
    pub has_unsplit: bool,
    /// Splits of the longest sequence; 0 if no token's positions are split.
    pub splits: usize,
    pub append_ranges: usize,
    pub query_blocks: usize,
    pub runs: usize,
    pub long_runs: usize,
    pub chunks: usize,
    pub long_chunks: usize,
    /// Whether each run is one token.
    pub single: bool,
    /// Whether the program of long steps runs.
    pub long: bool,
}

impl StepSizes {
    fn rows(&self, rows: Rows) -> usize {
        match rows {
            Rows::Tokens => self.tokens,
            Rows::Outputs => self.outputs,
            Rows::Fixed(rows) => rows,
        }
    }
}

impl Workgroups {
    /// Returns the number of workgroups in a step of these sizes.
    pub fn of(self, sizes: &StepSizes) -> u32 {
        let count = match self {
            Self::Fixed(count) => count,
            Self::Tokens(group) => sizes.tokens.div_ceil(group),
            Self::Outputs(group) => sizes.outputs.div_ceil(group),
            Self::Slots { rows, top_k } => sizes.rows(rows) * top_k,
            Self::Tiles { rows, top_k, tile, experts } => {
                let slots = sizes.rows(rows) * top_k;
                // Each expert has at most one partial tile.
                slots.div_ceil(tile) + slots.min(experts)
            }
            Self::Splits => sizes.splits,
            Self::AppendRanges => sizes.append_ranges,
            Self::QueryBlocks => sizes.query_blocks,
            Self::Runs => sizes.runs,
            Self::LongRuns => sizes.long_runs,
            Self::ShortRuns => sizes.runs - sizes.long_runs,
            Self::Chunks => sizes.chunks,
            Self::LongChunks => sizes.long_chunks,
        };
        count as u32
    }
}

/// The steps in which a command is dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepCondition {
    Always,
    /// Every run has one token, and the positions of a token are not split.
    SingleUnsplit,
    /// Every run has one token, and the positions of a token are split.
    SingleSplit,
    /// A run has several tokens.
    Several,
    /// A run has several tokens, and the positions of a token are not split.
    SeveralUnsplit,
    /// A run has several tokens, and the positions of a token are split.
    SeveralSplit,
    /// The positions of a token are not split.
    Unsplit,
    /// The positions of a token are split.
    Split,
}

impl StepCondition {
    /// Returns whether a step of these sizes meets the condition.
    pub fn holds(self, sizes: &StepSizes) -> bool {
        let split = sizes.splits > 0;
        match self {
            Self::Always => true,
            Self::SingleUnsplit => sizes.single && sizes.has_unsplit,
            Self::SingleSplit => sizes.single && split,
            Self::Several => !sizes.single,
            Self::SeveralUnsplit => !sizes.single && sizes.has_unsplit,
            Self::SeveralSplit => !sizes.single && split,
            Self::Unsplit => sizes.has_unsplit,
            Self::Split => split,
        }
    }
}

/// A template with its parameters, and the workgroups that run it.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    template: Arc<dyn AnyTemplate>,
    /// The bindings after the step's buffer, which every kernel binds first.
    pub bindings: Vec<Binding>,
    /// The workgroups along x, y and z.
    pub workgroups: [Workgroups; 3],
}

impl Kernel {
    /// Returns the kernel of a template with its parameters.
    pub fn new(template: impl Template + Send + Sync + 'static, workgroups: [Workgroups; 3]) -> Self {
        let bindings = template.bindings();
        Self { template: Arc::new(template), bindings, workgroups }
    }

    /// Returns the name of the template.
    pub fn name(&self) -> &'static str {
        self.template.name()
    }

    /// Renders the source in WGSL.
    ///
    /// # Errors
    /// [`Error::Internal`](crate::Error::Internal) if the template reads an undefined variable.
    pub fn source(&self, templates: &Templates) -> Result<String> {
        templates.render(self.name(), &self.template.variables(&self.bindings))
    }

    /// Returns, for each binding in order, whether the kernel writes it.
    pub fn writes(&self) -> Vec<bool> {
        std::iter::once(false).chain(self.bindings.iter().map(|binding| binding.writes)).collect()
    }
}
