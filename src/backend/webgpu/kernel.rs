//! One dispatch of a program: which kernel with which parameters, over which buffers, in how many
//! workgroups.

use std::{borrow::Cow, sync::Arc};

use serde::Serialize;

use super::{
    arena::Range,
    kernels::{AnyTemplate, Template},
    templates::Templates,
};
use crate::{Result, graph::Rows};

/// The buffer of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Resource {
    /// The step's buffer, of which `step.rs` has the layout.
    Step,
    /// The tokens' ids, `[tokens]`.
    Ids,
    /// A slot of the plan, as f32.
    Slot(usize),
    /// A slot of the plan, as int8.
    Q8(usize),
    /// A slot of the plan, as f16.
    F16(usize),
    /// The factor of each row of [`Resource::F16`].
    F16Scale(usize),
    /// The list of each row's (expert, weight), `[rows, top_k]`: the slot of the weights, and
    /// `top_k`.
    Selected(usize, usize),
    /// The slot of each (row, expert), `[rows, top_k]`. Slots are numbered expert by expert.
    SlotOf,
    /// The row of each slot, `[slots]`.
    TokenOf,
    /// Tiles of the slots, one expert each: expert, first slot, slot after the last, 0.
    Tiles,
    /// A row of f32 for each slot within one op; the first or the second such buffer.
    Slots(usize),
    /// A row of int8 for each slot within one op.
    SlotQ8,
    /// A row of f16 for each slot within one op.
    SlotF16,
    /// The factor of each row of [`Resource::SlotF16`].
    SlotF16Scale,
    /// Rows of f32 that live within one op; the first or the second such buffer.
    Temp(usize),
    /// Weights: a buffer, its first byte and its bytes.
    Weight(usize, u64, u64),
    /// A layer's cache.
    Cache(usize),
    /// A recurrent op's part of all states.
    State(usize),
    /// For each split and head of attention its maximum, its total and its sums.
    Parts,
    /// The matrices by which the tokens of a chunk act on each other in a gated delta rule.
    Mixes,
    /// The largest logit of each share of the vocabulary, with its id.
    Finds,
    /// The id of the largest logit.
    Chosen,
    /// The largest logits after each round of keeping some.
    Best(usize),
}

impl From<Range> for Resource {
    fn from(range: Range) -> Self {
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

/// Returns a binding that the kernel only reads.
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

/// The workgroups of a kernel along one dimension.
#[derive(Clone, Copy, Debug)]
pub(super) enum Count {
    /// A number that no step changes.
    Fixed(usize),
    /// One for this many tokens.
    Tokens(usize),
    /// One for this many outputs.
    Outputs(usize),
    /// One for each (row, expert).
    Slots {
        /// Which rows.
        rows: Rows,
        /// Experts of a row.
        top_k: usize,
    },
    /// One for each tile of slots: a tile has one expert.
    Tiles {
        /// Which rows.
        rows: Rows,
        /// Experts of a row.
        top_k: usize,
        /// Slots of a tile.
        tile: usize,
        /// Experts of the layer.
        experts: usize,
    },
    /// One for each split of the longest sequence.
    Splits,
    /// One for each `PositionRange` that is appended.
    Quads,
    /// One for each `PositionRange` that attends together.
    Blocks,
    /// One for each run.
    Runs,
    /// One for each run that a recurrence takes in chunks.
    LongRuns,
    /// One for each other run.
    ShortRuns,
    /// One for each chunk of a run.
    Chunks,
    /// One for each chunk of a long run.
    LongChunks,
}

/// The sizes of a step, as far as dispatches depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub tokens: usize,
    pub outputs: usize,
    pub splits: usize,
    pub quads: usize,
    pub blocks: usize,
    pub runs: usize,
    pub long_runs: usize,
    pub chunks: usize,
    pub long_chunks: usize,
    /// Whether each run is one token.
    pub single: bool,
}

impl Sizes {
    fn rows(&self, rows: Rows) -> usize {
        match rows {
            Rows::Tokens => self.tokens,
            Rows::Outputs => self.outputs,
            Rows::Fixed(rows) => rows,
        }
    }
}

impl Count {
    pub fn of(self, sizes: &Sizes) -> u32 {
        let count = match self {
            Self::Fixed(count) => count,
            Self::Tokens(by) => sizes.tokens.div_ceil(by),
            Self::Outputs(by) => sizes.outputs.div_ceil(by),
            Self::Slots { rows, top_k } => sizes.rows(rows) * top_k,
            Self::Tiles { rows, top_k, tile, experts } => {
                let slots = sizes.rows(rows) * top_k;
                // At most one tile of each expert is not full.
                slots.div_ceil(tile) + slots.min(experts)
            }
            Self::Splits => sizes.splits,
            Self::Quads => sizes.quads,
            Self::Blocks => sizes.blocks,
            Self::Runs => sizes.runs,
            Self::LongRuns => sizes.long_runs,
            Self::ShortRuns => sizes.runs - sizes.long_runs,
            Self::Chunks => sizes.chunks,
            Self::LongChunks => sizes.long_chunks,
        };
        count as u32
    }
}

/// The steps that a dispatch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Always,
    /// Every run is one token, and no sequence is longer than a split.
    SingleWithinSplit,
    /// Every run is one token, and some sequence is longer than a split.
    SingleBeyondSplit,
    /// Some run is longer than a token.
    Several,
    SeveralWithinSplit,
    SeveralBeyondSplit,
    WithinSplit,
    BeyondSplit,
}

impl When {
    pub fn holds(self, sizes: &Sizes) -> bool {
        let beyond = sizes.splits > 1;
        match self {
            Self::Always => true,
            Self::SingleWithinSplit => sizes.single && !beyond,
            Self::SingleBeyondSplit => sizes.single && beyond,
            Self::Several => !sizes.single,
            Self::SeveralWithinSplit => !sizes.single && !beyond,
            Self::SeveralBeyondSplit => !sizes.single && beyond,
            Self::WithinSplit => !beyond,
            Self::BeyondSplit => beyond,
        }
    }
}

/// A template with its parameters, and the workgroups that run it.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    template: Arc<dyn AnyTemplate>,
    /// All buffers but the step's, which every kernel has first.
    pub bindings: Vec<Binding>,
    /// Workgroups.
    pub groups: [Count; 3],
}

impl Kernel {
    /// Makes a kernel of a template.
    pub fn new(template: impl Template + Send + Sync + 'static, groups: [Count; 3]) -> Self {
        let bindings = template.bindings();
        Self { template: Arc::new(template), bindings, groups }
    }

    /// Returns the name of the template.
    pub fn name(&self) -> &'static str {
        self.template.name()
    }

    /// Renders the source, in WGSL.
    ///
    /// # Errors
    /// [`Error::Internal`](crate::Error::Internal) if the template reads a variable that it is not given.
    pub fn source(&self, templates: &Templates) -> Result<String> {
        templates.render(self.name(), &self.template.variables(&self.bindings))
    }

    /// Returns, for each binding in order, whether the kernel writes it.
    pub fn writes(&self) -> Vec<bool> {
        std::iter::once(false).chain(self.bindings.iter().map(|binding| binding.writes)).collect()
    }
}
