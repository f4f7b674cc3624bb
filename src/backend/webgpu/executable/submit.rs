//! Encodes and submits steps, and reads their logits.

use std::{ops::Range, time::Instant};

use super::{
    super::{
        kernel::{Resource, StepSizes},
        lower::{StepKind, stride},
        profile,
        program::read_buffer,
    },
    GpuExecutable,
};
use crate::{Result, backend::Step, kv_cache::LayerPlace};

/// The result of a step that the host reads.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Readback {
    Logits,
    Best,
    MostProbable,
}

/// The commands of the most probable next step, encoded while the device runs the current step.
pub(super) struct NextCommands {
    sizes: StepSizes,
    readback: Readback,
    commands: wgpu::CommandBuffer,
}

impl GpuExecutable {
    /// Encodes the dispatches of a step; with profiling, runs and times them one by one instead.
    pub(super) fn encode(
        &mut self,
        mut encoder: wgpu::CommandEncoder,
        step: &Step<'_>,
        sizes: &StepSizes,
    ) -> Result<wgpu::CommandEncoder> {
        let Self { context, programs, buffers, weight_buffers, cache, dispatches, profile, .. } = self;
        let program = &mut programs[StepKind::of(sizes) as usize];
        if let Some(profile) = profile {
            let seen = |layer: &LayerPlace| -> usize {
                let window = cache.groups[layer.group].window;
                step.runs.iter().map(|run| layer.position_bytes() * run.sees(window)).sum()
            };
            let cached: Vec<_> = cache.layers.iter().map(|layer| seen(layer) as u64).collect();
            profile::run(profile, encoder, context, buffers, weight_buffers, program, sizes, &cached)?;
            return Ok(context.device.create_command_encoder(&Default::default()));
        }
        *dispatches = program.encode(&mut encoder, context, buffers, weight_buffers, sizes)?;
        Ok(encoder)
    }

    /// Encodes a step with its readback.
    fn commands(&mut self, step: &Step<'_>, sizes: &StepSizes, readback: Readback) -> Result<wgpu::CommandBuffer> {
        let encoder = self.context.device.create_command_encoder(&Default::default());
        let mut encoder = self.encode(encoder, step, sizes)?;
        match readback {
            Readback::Logits => self.read_logits(&mut encoder, 0..sizes.outputs)?,
            Readback::Best => {
                let Self { context, buffers, weight_buffers, best, dispatches, .. } = self;
                *dispatches += best.program.encode(&mut encoder, context, buffers, weight_buffers, sizes)?;
                best.encode_readback(buffers, &mut encoder, sizes.outputs)?;
            }
            Readback::MostProbable => {
                let Self { context, buffers, weight_buffers, argmax, dispatches, staging, .. } = self;
                *dispatches += argmax.program.encode(&mut encoder, context, buffers, weight_buffers, sizes)?;
                argmax.encode_readback(buffers, &mut encoder, staging, sizes.outputs)?;
            }
        }
        self.hidden.encode_copy(&self.buffers, &mut encoder, sizes)?;
        Ok(encoder.finish())
    }

    /// Submits a step. While the device runs it, the host encodes another step of the same sizes,
    /// because the next step usually has them.
    pub(super) fn submit(&mut self, step: &Step<'_>, readback: Readback) -> Result<StepSizes> {
        self.bounds.check(step)?;
        let start = Instant::now();
        if readback == Readback::Best && self.best.must_grow(step.outputs.len()) {
            self.unbind();
            self.best.grow(&self.context, &mut self.buffers, step.outputs.len())?;
        }
        let sizes = self.prepare(step, step.tokens)?;
        self.copy_pages(step.copies)?;
        self.hidden.start_step(&sizes);
        let commands = match self.next_commands.take() {
            Some(next) if next.sizes == sizes && next.readback == readback => next.commands,
            _ => self.commands(step, &sizes, readback)?,
        };
        self.context.queue.submit([commands]);
        self.encoding = start.elapsed();
        if !sizes.long && self.profile.is_none() {
            let commands = self.commands(step, &sizes, readback)?;
            self.next_commands = Some(NextCommands { sizes, readback, commands });
        }
        Ok(sizes)
    }

    /// Encodes the copy of the logits of some outputs to the buffer that the host reads.
    pub(super) fn read_logits(&self, encoder: &mut wgpu::CommandEncoder, outputs: Range<usize>) -> Result<()> {
        let place = self.plan.logits();
        let (width, stride) = (place.shape.width as u64 * 4, stride(&place) as u64 * 4);
        let from = self.buffers.get(Resource::Slot(place.slot.index()))?;
        let rows_in_copy = if width == stride { outputs.len() } else { 1 };
        for (copy, row) in outputs.clone().step_by(rows_in_copy.max(1)).enumerate() {
            let bytes = rows_in_copy as u64 * width;
            encoder.copy_buffer_to_buffer(from, row as u64 * stride, &self.staging, copy as u64 * bytes, bytes);
        }
        Ok(())
    }

    /// Waits for the submitted copy of the logits of this number of outputs, and calls `read` with
    /// them.
    pub(super) fn read_copied(&self, outputs: usize, mut read: impl FnMut(&[f32])) -> Result<()> {
        let bytes = (outputs * self.plan.logits().shape.width * 4) as u64;
        if bytes > 0 {
            return read_buffer(&self.context, &self.staging, bytes, |found| read(bytemuck::cast_slice(found)));
        }
        read(&[]);
        Ok(())
    }

    /// Waits for the submitted copy of the logits of this number of outputs.
    pub(super) fn wait_for_logits(&mut self, outputs: usize) -> Result<&[f32]> {
        let mut logits = std::mem::take(&mut self.logits);
        logits.clear();
        let result = self.read_copied(outputs, |found| logits.extend_from_slice(found));
        self.logits = logits;
        result.map(|()| self.logits.as_slice())
    }
}
