//! Chooses the token with the largest logit on the device. The next step reads its id there; the
//! host reads it one step later.

use std::{
    collections::VecDeque,
    sync::mpsc::{Receiver, channel},
};

use super::{
    context::Context,
    kernel::{Kernel, Resource, Workgroups},
    kernels::{Argmax, ArgmaxRound},
    lower::{Command, stride},
    program::{Buffers, GpuProgram},
};
use crate::{Error, Result, plan::Plan};

/// Logits of a workgroup.
const SHARE: usize = 2048;
const WORKGROUP: usize = 256;
/// The id that `argmax.wgsl` writes if a logit is NaN.
const NO_ID: u32 = u32::MAX;

/// The kernels that choose tokens, and the ids that the host has not read yet.
pub(super) struct ArgmaxQueue {
    pub program: GpuProgram,
    /// Unused buffers for readbacks; one for each step that was pending at the same time.
    free: Vec<wgpu::Buffer>,
    pending: VecDeque<PendingId>,
}

/// The id of a submitted step.
struct PendingId {
    staging: wgpu::Buffer,
    submission: wgpu::SubmissionIndex,
    mapped: Receiver<Result<(), wgpu::BufferAsyncError>>,
}

/// Returns the kernels for a plan's logits: one for shares of the logits, one for their results.
pub(super) fn kernels(plan: &Plan) -> [Kernel; 2] {
    let logits = plan.logits();
    let vocabulary = logits.shape.width;
    let groups = vocabulary.div_ceil(SHARE);
    let logits = ArgmaxRound::Shares { groups, stride: stride(&logits), logits: Resource::Slot(logits.slot.index()) };
    let first = Argmax { workgroup: WORKGROUP, count: vocabulary, share: SHARE, round: logits };
    let last = Argmax { workgroup: WORKGROUP, count: groups, share: groups, round: ArgmaxRound::Join };
    let shares = [Workgroups::Fixed(groups), Workgroups::Fixed(1), Workgroups::Fixed(1)];
    [Kernel::new(first, shares), Kernel::new(last, [Workgroups::Fixed(1); 3])]
}

impl ArgmaxQueue {
    pub fn new(context: &Context, plan: &Plan, buffers: &mut Buffers) -> Result<Self> {
        let groups = plan.logits().shape.width.div_ceil(SHARE);
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC;
        buffers.set(Resource::ArgmaxCandidates, context.buffer("argmax candidates", 8 * groups as u64, usage)?);
        buffers.set(Resource::ArgmaxId, context.buffer("the argmax id", 4, usage)?);
        let program = GpuProgram::new(kernels(plan).map(|kernel| Command::always("argmax", kernel)).into());
        Ok(Self { program, free: vec![], pending: VecDeque::new() })
    }

    /// Submits a step that ends with the program, after copies of its id to the ids of the next
    /// step and to a buffer that the host reads.
    pub fn submit(&mut self, context: &Context, buffers: &Buffers, mut encoder: wgpu::CommandEncoder) -> Result<()> {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let staging = match self.free.pop() {
            Some(buffer) => buffer,
            None => context.buffer("the readback of an id", 4, usage)?,
        };
        let id = buffers.get(Resource::ArgmaxId)?;
        encoder.copy_buffer_to_buffer(id, 0, buffers.get(Resource::Ids)?, 0, 4);
        encoder.copy_buffer_to_buffer(id, 0, &staging, 0, 4);
        let submission = context.queue.submit([encoder.finish()]);
        let (sender, mapped) = channel();
        staging.map_async(wgpu::MapMode::Read, 0..4, move |result| {
            // Sending fails if the queue was dropped meanwhile.
            let _ = sender.send(result);
        });
        self.pending.push_back(PendingId { staging, submission, mapped });
        Ok(())
    }

    /// Waits for the earliest pending step, and returns its id, or `None` if a logit is NaN.
    ///
    /// # Errors
    /// [`Error::Argument`] if no step is pending.
    pub fn wait(&mut self, context: &Context) -> Result<Option<u32>> {
        let none_pending = || Error::argument("step", "none is pending: start one first");
        let PendingId { staging, submission, mapped } = self.pending.pop_front().ok_or_else(none_pending)?;
        let wait = wgpu::PollType::Wait { submission_index: Some(submission), timeout: None };
        context.device.poll(wait).map_err(|error| context.error(error.to_string()))?;
        context.check()?;
        context.finish_mapping(&mapped)?;
        let view = staging.slice(..4).get_mapped_range().map_err(|error| context.error(error.to_string()))?;
        let id = u32::from_le_bytes(std::array::from_fn(|i| view[i]));
        drop(view);
        staging.unmap();
        self.free.push(staging);
        Ok((id != NO_ID).then_some(id))
    }
}
