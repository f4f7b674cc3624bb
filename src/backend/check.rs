//! Checks steps against the bounds of a compilation. Kernels rely on these checks for memory
//! safety.

use super::{Run, Step};
use crate::{
    Error, Result,
    graph::{Graph, Op, Rows, Shape, StepInput},
    kv_cache::{CacheLayout, PAGE_POSITIONS, PageGroup, PageId, PageTable, RUN_CHECKPOINTS, StateId},
    plan::{Operand, Plan, PlanStep},
};

/// The bounds of every step of a compiled graph.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    pub max_tokens: usize,
    pub max_outputs: usize,
    /// The end of token ids: the rows of the smallest embedding table.
    vocabulary: usize,
    /// The groups of layers with pages.
    groups: Vec<PageGroup>,
    /// Whether the graph has recurrent ops, and each run a state.
    recurrent: bool,
    /// The width of the rows that the step gives, and the sets of taps with the rows of their
    /// tables.
    inputs: InputBounds,
}

/// The bounds of the rows and taps that a step gives, and of its outputs.
#[derive(Clone, Debug, Default)]
struct InputBounds {
    row_width: usize,
    /// The rows of the smallest table that each set of taps names.
    tables: Vec<usize>,
    /// The number of tokens whose rows are joined for an output.
    following: usize,
}

impl Bounds {
    /// Returns `cache`, after a check that it is the layout for `graph`.
    ///
    /// # Errors
    /// [`Error::Argument`] if it is for other layers than the graph's.
    pub fn layout_for(graph: &Graph, cache: &CacheLayout) -> Result<CacheLayout> {
        let layout = CacheLayout::new(graph, cache.cache_type)?;
        if *cache != layout {
            let what = "is laid out for other layers than the graph's: make it with `CacheLayout::new(graph, ..)`";
            return Err(Error::argument("cache", what));
        }
        Ok(layout)
    }

    /// Collects the bounds of a plan's steps.
    pub fn new(plan: &Plan, cache: &CacheLayout, max_tokens: usize, max_outputs: usize) -> Self {
        let tables = plan.steps().iter().filter(|step| step.op == Op::Embed).filter_map(|step| step.inputs.first());
        let recurrent = plan.steps().iter().any(|step| step.op.properties().state.is_some());
        let (vocabulary, groups) = (tables.map(table_rows).min().unwrap_or(usize::MAX), cache.groups.clone());
        Self { max_tokens, max_outputs, vocabulary, groups, recurrent, inputs: InputBounds::new(plan) }
    }

    /// Returns the width of the rows that steps give for tokens; 0 if the graph reads none.
    #[cfg(any(feature = "wgpu", feature = "metal"))]
    pub fn input_width(&self) -> usize {
        self.inputs.row_width
    }

    /// Checks a step.
    ///
    /// # Errors
    /// [`Error::Argument`] that names the broken rule.
    pub fn check(&self, step: &Step<'_>) -> Result<()> {
        let wrong = |what: String| Err(Error::argument("step", what));
        let [tokens, outputs] = [step.tokens.len(), step.outputs.len()];
        if tokens == 0 || tokens > self.max_tokens || outputs > self.max_outputs {
            let Self { max_tokens, max_outputs, .. } = self;
            return wrong(format!(
                "has {tokens} tokens and {outputs} outputs: 1 to {max_tokens} and up to {max_outputs} fit"
            ));
        }
        if let Some(token) = step.tokens.iter().find(|token| **token as usize >= self.vocabulary) {
            return wrong(format!("has the token id {token}, the vocabulary ends at {}", self.vocabulary - 1));
        }
        if step.runs.iter().try_fold(0usize, |sum, run| sum.checked_add(run.len)) != Some(tokens) {
            return wrong(format!("has runs whose lengths do not add up to its {tokens} tokens"));
        }
        if !step.outputs.is_sorted_by(|a, b| a < b) || step.outputs.last().is_some_and(|last| *last >= tokens) {
            return wrong(format!("has outputs that are not ascending indices below {tokens}"));
        }
        if let Some(run) = step.runs.iter().find(|run| run.state.is_some() != self.recurrent) {
            let [has, ops] = if run.state.is_some() { ["a", "no"] } else { ["no", "a"] };
            return wrong(format!("has a run with {has} state, and the graph has {ops} recurrent op"));
        }
        self.inputs.check(step)?;
        step.runs.iter().try_for_each(check_rotary_and_spans)?;
        self.check_pages(step)?;
        check_states(step.runs)
    }

    /// Checks that every position that a run sees has a page, and that no position is written
    /// twice.
    fn check_pages(&self, step: &Step<'_>) -> Result<()> {
        let known = |page: &PageId| page.group() < self.groups.len();
        if step.copies.iter().any(|(from, to)| from.group() != to.group() || !known(from)) {
            return Err(Error::argument("step", "has copies between pages of different groups"));
        }
        let mut written: Vec<(PageId, usize, usize)> = Vec::new();
        for run in step.runs {
            self.check_tables(run)?;
            for first in (run.start / PAGE_POSITIONS * PAGE_POSITIONS..run.start + run.len).step_by(PAGE_POSITIONS) {
                let (from, to) = (run.start.max(first) - first, (run.start + run.len - first).min(PAGE_POSITIONS));
                written.extend(run.pages.iter().filter_map(|table| Some((table.page(first)?, from, to))));
            }
        }
        written.sort_unstable_by_key(|(page, from, _)| (*page, *from));
        match written.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[1].1 < pair[0].2) {
            Some(_) => Err(Error::argument("step", "has runs that write one position of a cache page twice")),
            None => Ok(()),
        }
    }

    /// Checks that a run has the pages of all positions that it sees, in each group.
    fn check_tables(&self, run: &Run<'_>) -> Result<()> {
        let wrong = |what: String| Err(Error::argument("step", what));
        let [tables, groups] = [run.pages.len(), self.groups.len()];
        if tables != groups {
            return wrong(format!("has a run with {tables} page tables, and the cache has {groups} groups of layers"));
        }
        let room = run.pages.iter().map(PageTable::room).min().unwrap_or(usize::MAX);
        let Some(end) = run.start.checked_add(run.len).filter(|end| *end <= room) else {
            return wrong(format!("has a run of {} tokens from {} on, with pages for {room}", run.len, run.start));
        };
        for (number, (table, group)) in run.pages.iter().zip(&self.groups).enumerate() {
            if !table.holds(group.first_seen(run.start)..end) {
                return wrong(format!(
                    "has a run from {} on that sees positions whose pages were given back",
                    run.start
                ));
            }
            if table.pages().any(|page| page.group() != number) {
                return wrong(format!("has pages of another group in table {number}"));
            }
        }
        Ok(())
    }
}

impl InputBounds {
    fn new(plan: &Plan) -> Self {
        let mut bounds = Self::default();
        for PlanStep { op, inputs, outputs } in plan.steps() {
            match op.properties().input {
                Some(StepInput::Rows { first }) => {
                    let width = outputs.first().map_or(0, |place| place.shape.width);
                    bounds.row_width = bounds.row_width.max(first + width);
                }
                Some(StepInput::Taps(taps)) => {
                    let len = bounds.tables.len().max(taps + 1);
                    bounds.tables.resize(len, usize::MAX);
                    let rows = inputs.first().map_or(0, table_rows);
                    bounds.tables[taps] = bounds.tables[taps].min(rows);
                }
                Some(StepInput::Following(count)) => bounds.following = bounds.following.max(count),
                None => {}
            }
        }
        bounds
    }

    fn check(&self, step: &Step<'_>) -> Result<()> {
        let wrong = |what: String| Err(Error::argument("step", what));
        let following = self.following.max(1);
        if step.outputs.last().is_some_and(|last| last + following > step.tokens.len()) {
            return wrong(format!("has an output whose token does not have {} others after it", following - 1));
        }
        let (tokens, given) = (step.tokens.len(), step.rows.tokens);
        if !given.is_sorted_by(|a, b| a < b) || given.last().is_some_and(|last| *last >= tokens) {
            return wrong(format!("has rows for tokens that are not ascending indices below {tokens}"));
        }
        if given.len().checked_mul(self.row_width) != Some(step.rows.elements.len()) {
            let (count, width) = (step.rows.elements.len(), self.row_width);
            return wrong(format!("has {count} elements of rows for {} tokens, each of {width}", given.len()));
        }
        if step.taps.len() != self.tables.len() {
            return wrong(format!("has {} sets of taps, the graph reads {}", step.taps.len(), self.tables.len()));
        }
        for (number, (taps, rows)) in step.taps.iter().zip(&self.tables).enumerate() {
            if taps.len() != tokens || taps.iter().flatten().any(|(row, _)| *row as usize >= *rows) {
                return wrong(format!("has taps {number} that do not name rows below {rows} for {tokens} tokens"));
            }
        }
        Ok(())
    }
}

/// Returns the number of rows of a table.
fn table_rows(table: &Operand) -> usize {
    match table {
        Operand::Weight { shape: Shape { rows: Rows::Fixed(rows), .. }, .. } => *rows,
        Operand::Weight { .. } | Operand::Tokens | Operand::Constant(_) | Operand::Slot(_) => 0,
    }
}

/// Checks that a run has rotary positions for all its tokens or for none, and that its spans are
/// ascending ranges of its tokens.
fn check_rotary_and_spans(run: &Run<'_>) -> Result<()> {
    if ![0, run.len].contains(&run.rotary.len()) {
        let what = format!("has a run of {} tokens with {} rotary positions", run.len, run.rotary.len());
        return Err(Error::argument("step", what));
    }
    let bounds: Vec<_> = run.spans.iter().flat_map(|span| [span.start, span.end]).collect();
    let nonempty = run.spans.iter().all(|span| span.start < span.end);
    if !nonempty || !bounds.is_sorted() || bounds.last().is_some_and(|last| *last > run.len) {
        return Err(Error::argument("step", "has spans that are not ascending ranges of their run's tokens"));
    }
    Ok(())
}

/// Checks that checkpoints lie within their run, in order; that no state is written twice; and that
/// a state which a run writes is read by that run alone.
fn check_states(runs: &[Run<'_>]) -> Result<()> {
    let mut written: Vec<(StateId, usize)> = Vec::new();
    for (number, (run, state)) in runs.iter().filter_map(|run| Some((run, run.state?))).enumerate() {
        let within = state.checkpoints.iter().all(|(at, _)| (run.start + 1..run.start + run.len).contains(at));
        if state.checkpoints.len() > RUN_CHECKPOINTS
            || !within
            || !state.checkpoints.is_sorted_by(|(a, _), (b, _)| a < b)
        {
            return Err(Error::argument(
                "step",
                "has a run with checkpoints that are not a few ascending positions within it",
            ));
        }
        written.push((state.to, number));
        written.extend(state.checkpoints.iter().map(|(_, id)| (*id, number)));
    }
    written.sort_unstable_by_key(|(id, _)| id.index());
    if written.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err(Error::argument("step", "has runs that write one state twice"));
    }
    let writer = |id: StateId| written.binary_search_by_key(&id.index(), |(id, _)| id.index()).ok();
    for (number, state) in runs.iter().filter_map(|run| run.state).enumerate() {
        let reader = state.from.and_then(writer).map(|index| written[index]);
        if reader.is_some_and(|(id, other)| other != number || id != state.to) {
            return Err(Error::argument("step", "has a run that reads a state which is a checkpoint or another run's"));
        }
    }
    Ok(())
}
