//! One dispatch of a program: which kernel, for which values, over which buffers, how often.

use serde_json::{Value, json};

use super::{arena::Range, templates::Templates};
use crate::{Result, graph::Rows};

/// What a kernel's binding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Resource {
    /// What changes from step to step: `step.rs` has the layout.
    Step,
    /// The tokens' ids.
    Ids,
    /// A slot of the plan, in single precision.
    Slot(usize),
    /// The same rows in 8 bits.
    Codes(usize),
    /// The same rows in half precision, and what each is to be multiplied by.
    Half(usize),
    HalfScale(usize),
    /// The experts that take the rows of a slot of weights, so many for each at most, with their weights.
    Taken(usize, usize),
    /// Where each of these lies among those of its expert; whose they are; and the tiles that they are cut into.
    SlotOf,
    TokenOf,
    Tiles,
    /// Rows for each of these within one op, and in the other forms.
    Slots(usize),
    SlotCodes,
    SlotHalf,
    SlotHalfScale,
    /// Rows that live within one op.
    Temp(usize),
    /// Weights.
    Weight(usize, u64, u64),
    /// A layer's cache.
    Cache(usize),
    /// A recurrent op's part of all states.
    State(usize),
    /// What spans of the cache come to.
    Parts,
    /// What the tokens of a chunk do to each other.
    Mixes,
    /// The largest logits of shares of the vocabulary, and the ids chosen of them.
    Finds,
    Chosen,
    /// The largest logits after so many rounds of keeping some.
    Best(usize),
}

impl From<Range> for Resource {
    fn from(range: Range) -> Self {
        Self::Weight(range.buffer, range.offset, range.size)
    }
}

/// A binding, by the name that the kernel knows it by.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub name: String,
    pub element: &'static str,
    pub writes: bool,
    pub resource: Resource,
}

pub(super) fn reads(name: &str, element: &'static str, resource: impl Into<Resource>) -> Bound {
    Bound { name: name.into(), element, writes: false, resource: resource.into() }
}

pub(super) fn writes(name: &str, element: &'static str, resource: impl Into<Resource>) -> Bound {
    Bound { name: name.into(), element, writes: true, resource: resource.into() }
}

/// How often a kernel runs along one dimension.
#[derive(Clone, Copy, Debug)]
pub(super) enum Count {
    Fixed(usize),
    /// For every so many tokens.
    Tokens(usize),
    /// For every so many outputs.
    Outputs(usize),
    /// For each expert that a token or an output may have.
    Slots(Rows, usize),
    /// For every so many of these, and at most one more for each expert.
    Tiles(Rows, usize, usize, usize),
    /// Spans of the longest sequence.
    Spans,
    /// Fours of positions to append.
    Quads,
    /// Blocks of a run's tokens that attend together.
    Blocks,
    Runs,
    /// Runs that a recurrence takes in chunks, and the others.
    LongRuns,
    ShortRuns,
    /// Chunks of all runs, and of the long ones.
    Chunks,
    LongChunks,
}

/// The sizes of a step, as far as dispatches depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub tokens: usize,
    pub outputs: usize,
    pub spans: usize,
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
            Self::Slots(rows, used) => sizes.rows(rows) * used,
            Self::Tiles(rows, used, by, experts) => {
                let slots = sizes.rows(rows) * used;
                slots.div_ceil(by) + slots.min(experts)
            }
            Self::Spans => sizes.spans,
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
    /// Every run is one token, and no sequence is longer than a span.
    SingleWithinSpan,
    /// Every run is one token, and some sequence is longer than a span.
    SingleBeyondSpan,
    /// Some run is longer than a token.
    Several,
    SeveralWithinSpan,
    SeveralBeyondSpan,
    WithinSpan,
    BeyondSpan,
}

impl When {
    pub fn holds(self, sizes: &Sizes) -> bool {
        let beyond = sizes.spans > 1;
        match self {
            Self::Always => true,
            Self::SingleWithinSpan => sizes.single && !beyond,
            Self::SingleBeyondSpan => sizes.single && beyond,
            Self::Several => !sizes.single,
            Self::SeveralWithinSpan => !sizes.single && !beyond,
            Self::SeveralBeyondSpan => !sizes.single && beyond,
            Self::WithinSpan => !beyond,
            Self::BeyondSpan => beyond,
        }
    }
}

/// A kernel with everything that it is made for.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    pub template: &'static str,
    /// The template's variables.
    pub values: Value,
    /// All but the step, which every kernel has first.
    pub bindings: Vec<Bound>,
    pub groups: [Count; 3],
}

impl Kernel {
    /// The source, in WGSL.
    pub fn source(&self, templates: &Templates) -> Result<String> {
        let mut values = self.values.clone();
        let step = reads("step", "u32", Resource::Step);
        let declared: Vec<_> = std::iter::once(&step).chain(&self.bindings).enumerate().map(declaration).collect();
        values["bindings"] = declared.join("\n").into();
        values["prelude"] = templates.render("prelude", &json!({}))?.into();
        if let Some(reduced) = values.get("reduced").cloned() {
            let reduce = json!({
                "reduced": reduced,
                "workgroup": values["workgroup"],
                "subgroup": values["subgroup"],
            });
            values["reduce"] = templates.render("reduce", &reduce)?.into();
        }
        if values.get("out_blocks").is_some() {
            values["codes"] = templates.render("codes", &values)?.into();
        }
        if let Some(parts) = values["parts"].as_array_mut() {
            parts.iter_mut().try_for_each(|part| render_decoder(templates, part))?;
        }
        if values.get("decoder").is_some() {
            render_decoder(templates, &mut values)?;
        }
        if let Some(cap) = values.get("capped") {
            values["soft_cap"] = templates.render("soft_cap", cap)?.into();
        }
        if values.get("cache").is_some() {
            values["cached"] = templates.render("cached", &values)?.into();
        }
        templates.render(self.template, &values)
    }

    /// Which bindings it writes, in order.
    pub fn writes(&self) -> Vec<bool> {
        std::iter::once(false).chain(self.bindings.iter().map(|bound| bound.writes)).collect()
    }
}

/// Replaces a format's decoder, a template, with what it comes to for these values.
fn render_decoder(templates: &Templates, values: &mut Value) -> Result<()> {
    let rendered = values["decoder"].as_str().map(|text| templates.render_text(text, values)).transpose()?;
    values["decoder"] = rendered.into();
    Ok(())
}

fn declaration((index, bound): (usize, &Bound)) -> String {
    let access = if bound.writes { "read_write" } else { "read" };
    let Bound { name, element, .. } = bound;
    format!("@group(0) @binding({index}) var<storage, {access}> {name}: array<{element}>;")
}
