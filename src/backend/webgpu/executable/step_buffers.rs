//! Writes the inputs of a step, and grows the buffers that are too small for it.

use super::{
    super::{
        kernel::{Resource, StepSizes},
        prepare::{self, Capacity},
        program::{GpuProgram, STORAGE},
        step::EncodedStep,
    },
    GpuExecutable,
};
use crate::{
    Result,
    backend::Step,
    kv_cache::{PageId, StateUpdate},
};

impl GpuExecutable {
    /// Writes the step's buffer and the token ids `ids`, and grows the buffers that are too small.
    pub(super) fn prepare(&mut self, step: &Step<'_>, ids: &[u32]) -> Result<StepSizes> {
        let (encoded, sizes) = EncodedStep::new(&self.layout, step);
        self.grow(step, &sizes)?;
        let bytes = |words: usize| 4 * words as u64;
        let needed = bytes(self.layout.tables_at() + encoded.tables.len());
        if self.buffers.get(Resource::Step)?.size() < needed {
            self.unbind();
            self.buffers.set(Resource::Step, self.context.buffer("step", 2 * needed, STORAGE)?);
            self.tables.clear();
        }
        let buffer = self.buffers.get(Resource::Step)?;
        let queue = &self.context.queue;
        queue.write_buffer(buffer, 0, encoded.records());
        if !ids.is_empty() {
            queue.write_buffer(self.buffers.get(Resource::Ids)?, 0, bytemuck::cast_slice(ids));
        }
        if !step.rows.elements.is_empty() {
            queue.write_buffer(self.buffers.get(Resource::Given)?, 0, bytemuck::cast_slice(step.rows.elements));
        }
        if !(self.fuses_append && sizes.single && !sizes.long) {
            queue.write_buffer(buffer, bytes(self.layout.append_ranges_at()), encoded.append_ranges());
            queue.write_buffer(buffer, bytes(self.layout.query_blocks_at()), encoded.query_blocks());
        }
        if !encoded.runs().is_empty() {
            queue.write_buffer(buffer, bytes(self.layout.runs_at()), encoded.runs());
        }
        if !encoded.chunks().is_empty() && sizes.long {
            queue.write_buffer(buffer, bytes(self.layout.chunks_at()), encoded.chunks());
        }
        if self.tables != encoded.tables {
            queue.write_buffer(buffer, bytes(self.layout.tables_at()), bytemuck::cast_slice(&encoded.tables));
            self.tables = encoded.tables;
        }
        Ok(sizes)
    }

    /// Grows the buffers of values, pages, states and attention's partial results to the step's
    /// needs.
    fn grow(&mut self, step: &Step<'_>, sizes: &StepSizes) -> Result<()> {
        if let Some(capacity) = self.capacity.grown(step, &self.bounds) {
            self.unbind();
            // The old buffers are freed before the new ones are allocated. If that fails, the next
            // step allocates again.
            self.capacity = Capacity { tokens: 0, outputs: 0 };
            let Self { context, plan, values, bounds, buffers, .. } = self;
            self.staging.destroy();
            values.iter().for_each(|resource| buffers.free(*resource));
            self.staging = prepare::allocate(context, plan, values, bounds.input_width(), capacity, buffers)?;
            self.capacity = capacity;
        }
        let states = step.runs.iter().filter_map(|run| run.state).flat_map(StateUpdate::ids);
        let counts: Vec<_> = (0..self.pages.len()).map(|group| step.page_count(group)).collect();
        self.grow_cache(&counts, states.map(|id| id.index() + 1).max().unwrap_or(0))?;
        if (sizes.single || !sizes.long) && sizes.splits > 0 {
            let words = (sizes.tokens * sizes.splits * prepare::widest_partials(&self.plan)) as u64;
            if 4 * words > self.partials_bytes {
                self.unbind();
                self.partials_bytes = 4 * words.next_power_of_two();
                let buffer = self.context.buffer("attention's partial results", self.partials_bytes, STORAGE)?;
                self.buffers.set(Resource::Partials, buffer);
            }
        }
        Ok(())
    }

    /// Grows the buffers of pages to `counts` pages of each group, and the buffers of states.
    pub(super) fn grow_cache(&mut self, counts: &[usize], states: usize) -> Result<()> {
        for (group, count) in counts.iter().enumerate() {
            if self.pages[group].must_grow(*count) {
                self.unbind();
                self.pages[group].grow(&self.context, &mut self.buffers, *count)?;
            }
        }
        if self.states.must_grow(states) {
            self.unbind();
            self.states.grow(&self.context, &mut self.buffers, states)?;
        }
        Ok(())
    }

    pub(super) fn copy_pages(&mut self, copies: &[(PageId, PageId)]) -> Result<()> {
        for (group, pages) in self.pages.iter_mut().enumerate() {
            let of_group = copies.iter().filter(|(from, _)| from.group() == group);
            let numbers: Vec<_> = of_group.map(|(from, to)| (from.index(), to.index())).collect();
            pages.copy(&self.context, &self.buffers, &numbers)?;
        }
        Ok(())
    }

    /// Drops all bind groups and encoded commands, so that a replaced buffer is freed at once.
    pub(super) fn unbind(&mut self) {
        self.programs.iter_mut().for_each(GpuProgram::unbind);
        self.argmax.program.unbind();
        self.best.program.unbind();
        self.next_commands = None;
    }
}
