//! The most probable token, chosen on the device: the next step reads it there, and the host a step later.

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

/// Ids that a workgroup looks at.
const SHARE: usize = 2048;
const WORKGROUP: usize = 256;
/// What stands for no id.
const NONE: u32 = u32::MAX;

/// Chooses, and keeps what was chosen until it is asked for.
pub(super) struct ArgmaxQueue {
    pub program: GpuProgram,
    /// Buffers for ids on their way; there come to be as many as steps that were under way at once.
    free: Vec<wgpu::Buffer>,
    under_way: VecDeque<UnderWay>,
}

struct UnderWay {
    staging: wgpu::Buffer,
    submission: wgpu::SubmissionIndex,
    mapped: Receiver<Result<(), wgpu::BufferAsyncError>>,
}

/// The kernels for a plan's logits: one for shares of them, and one for what those come to.
pub(super) fn kernels(plan: &Plan) -> [Kernel; 2] {
    let logits = plan.logits();
    let vocabulary = logits.shape.width;
    let groups = vocabulary.div_ceil(SHARE);
    let logits = ArgmaxRound::Shares { groups, stride: stride(&logits), logits: Resource::Slot(logits.slot.index()) };
    let finds = Argmax { workgroup: WORKGROUP, count: vocabulary, share: SHARE, round: logits };
    let last = Argmax { workgroup: WORKGROUP, count: groups, share: groups, round: ArgmaxRound::Join };
    let shares = [Workgroups::Fixed(groups), Workgroups::Fixed(1), Workgroups::Fixed(1)];
    [Kernel::new(finds, shares), Kernel::new(last, [Workgroups::Fixed(1); 3])]
}

impl ArgmaxQueue {
    pub fn new(context: &Context, plan: &Plan, buffers: &mut Buffers) -> Result<Self> {
        let groups = plan.logits().shape.width.div_ceil(SHARE);
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC;
        buffers.set(Resource::Finds, context.buffer("finds", 8 * groups as u64, usage)?);
        buffers.set(Resource::ArgmaxQueue, context.buffer("chosen ids", 4, usage)?);
        let program = GpuProgram::new(kernels(plan).map(|kernel| Command::always("argmax", kernel)).into());
        Ok(Self { program, free: vec![], under_way: VecDeque::new() })
    }

    /// Submits a step that chooses: its id goes to the next step, and on its way here.
    pub fn send(&mut self, context: &Context, buffers: &Buffers, mut encoder: wgpu::CommandEncoder) -> Result<()> {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let staging = match self.free.pop() {
            Some(buffer) => buffer,
            None => context.buffer("a chosen id on its way", 4, usage)?,
        };
        let chosen = buffers.get(Resource::ArgmaxQueue)?;
        encoder.copy_buffer_to_buffer(chosen, 0, buffers.get(Resource::Ids)?, 0, 4);
        encoder.copy_buffer_to_buffer(chosen, 0, &staging, 0, 4);
        let submission = context.queue.submit([encoder.finish()]);
        let (sender, mapped) = channel();
        staging.map_async(wgpu::MapMode::Read, 0..4, move |result| {
            // Nobody waits for it where the step has failed by then.
            let _ = sender.send(result);
        });
        self.under_way.push_back(UnderWay { staging, submission, mapped });
        Ok(())
    }

    /// The id of the earliest step under way.
    pub fn take(&mut self, context: &Context) -> Result<Option<u32>> {
        let nothing = || Error::argument("step", "none is under way: start one first");
        let UnderWay { staging, submission, mapped } = self.under_way.pop_front().ok_or_else(nothing)?;
        let wait = wgpu::PollType::Wait { submission_index: Some(submission), timeout: None };
        context.device.poll(wait).map_err(|error| context.error(error.to_string()))?;
        context.check()?;
        match mapped.try_recv() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(context.error(error.to_string())),
            Err(error) => return Err(context.error(error.to_string())),
        }
        let view = staging.slice(..4).get_mapped_range().map_err(|error| context.error(error.to_string()))?;
        let id = u32::from_le_bytes(std::array::from_fn(|i| view[i]));
        drop(view);
        staging.unmap();
        self.free.push(staging);
        Ok((id != NONE).then_some(id))
    }
}
