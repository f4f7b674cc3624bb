//! Chooses the tokens with the largest logits on the device. The next step reads their ids there;
//! the host reads them, and the hidden rows of the step, one step later.

use std::{
    collections::VecDeque,
    sync::mpsc::{Receiver, channel},
};

use super::{
    context::Context,
    hidden,
    kernel::{Kernel, Resource, Workgroups},
    kernels::{Argmax, ArgmaxRound},
    lower::{Command, stride},
    program::{Buffers, GpuProgram, STORAGE},
};
use crate::{
    Error, Result,
    backend::{ChosenTokens, NextToken},
    plan::{Place, Plan},
};

/// Logits of a workgroup.
const SHARE: usize = 2048;
const WORKGROUP: usize = 256;
/// The id that `argmax.wgsl` writes if a logit is NaN.
const NO_ID: u32 = u32::MAX;

/// The kernels that choose tokens, and the ids that the host has not read yet.
pub(super) struct ArgmaxQueue {
    pub program: GpuProgram,
    /// The hidden rows of a step, if the plan has such a result.
    hidden: Option<Place>,
    /// The largest number of outputs of a step.
    max_outputs: usize,
    /// Unused buffers for readbacks; one for each step that was pending at the same time.
    free: Vec<wgpu::Buffer>,
    pending: VecDeque<PendingStep>,
}

/// The ids and the hidden rows of a submitted step.
struct PendingStep {
    count: usize,
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
    let of_rows = |groups| [Workgroups::Fixed(groups), Workgroups::Outputs(1), Workgroups::Fixed(1)];
    [Kernel::new(first, of_rows(groups)), Kernel::new(last, of_rows(1))]
}

impl ArgmaxQueue {
    /// Allocates the buffers for steps of up to `max_outputs` rows of logits.
    pub fn new(context: &Context, plan: &Plan, max_outputs: usize, buffers: &mut Buffers) -> Result<Self> {
        let candidates = plan.logits().shape.width.div_ceil(SHARE) * max_outputs.max(1);
        let max_outputs = max_outputs.max(1);
        buffers.set(Resource::ArgmaxCandidates, context.buffer("argmax candidates", 8 * candidates as u64, STORAGE)?);
        buffers.set(Resource::ArgmaxIds, context.buffer("the argmax ids", bytes(max_outputs), STORAGE)?);
        let program = GpuProgram::new(kernels(plan).map(|kernel| Command::always("argmax", kernel)).into());
        Ok(Self { program, hidden: plan.hidden(), max_outputs, free: vec![], pending: VecDeque::new() })
    }

    /// Encodes the copies of the ids that the last step chose to the ids of the next step, where
    /// `tokens` names them.
    pub fn encode_ids(
        &self,
        buffers: &Buffers,
        encoder: &mut wgpu::CommandEncoder,
        tokens: &[NextToken],
    ) -> Result<()> {
        let (chosen, ids) = (buffers.get(Resource::ArgmaxIds)?, buffers.get(Resource::Ids)?);
        let mut row = 0;
        for copied in tokens.chunk_by(|a, b| follows(*a, *b)) {
            if let NextToken::Chosen(first) = copied[0] {
                encoder.copy_buffer_to_buffer(chosen, 4 * first as u64, ids, 4 * row as u64, 4 * copied.len() as u64);
            }
            row += copied.len();
        }
        Ok(())
    }

    /// Encodes the copy of the ids of `count` outputs to a buffer that the host reads.
    pub fn encode_readback(
        &self,
        buffers: &Buffers,
        encoder: &mut wgpu::CommandEncoder,
        to: &wgpu::Buffer,
        count: usize,
    ) -> Result<()> {
        encoder.copy_buffer_to_buffer(buffers.get(Resource::ArgmaxIds)?, 0, to, 0, bytes(count));
        Ok(())
    }

    /// Submits a step of `count` tokens with logits that ends with the program, after a copy of the
    /// ids and the hidden rows to a buffer that the host reads.
    pub fn submit(
        &mut self,
        context: &Context,
        buffers: &Buffers,
        mut encoder: wgpu::CommandEncoder,
        count: usize,
    ) -> Result<()> {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let staging = match self.free.pop() {
            Some(buffer) => buffer,
            None => context.buffer("the readback of ids", self.readback_bytes(self.max_outputs), usage)?,
        };
        self.encode_readback(buffers, &mut encoder, &staging, count)?;
        if let Some(place) = &self.hidden {
            hidden::encode_copy(place, buffers, &mut encoder, (&staging, bytes(count)), count)?;
        }
        let submission = context.queue.submit([encoder.finish()]);
        let (sender, mapped) = channel();
        staging.map_async(wgpu::MapMode::Read, 0..self.readback_bytes(count), move |result| {
            // Sending fails if the queue was dropped meanwhile.
            let _ = sender.send(result);
        });
        self.pending.push_back(PendingStep { count, staging, submission, mapped });
        Ok(())
    }

    /// Returns the bytes of the ids and the hidden rows of a step.
    fn readback_bytes(&self, count: usize) -> u64 {
        bytes(count) + self.hidden.as_ref().map_or(0, |place| hidden::bytes(place, count))
    }

    /// Waits for the earliest pending step, and returns its result.
    ///
    /// # Errors
    /// [`Error::Argument`] if no step is pending.
    pub fn wait(&mut self, context: &Context) -> Result<ChosenTokens> {
        let none_pending = || Error::argument("step", "none is pending: start one first");
        let PendingStep { count, staging, submission, mapped } = self.pending.pop_front().ok_or_else(none_pending)?;
        context.wait_for(submission)?;
        context.finish_mapping(&mapped)?;
        let range = staging.slice(..self.readback_bytes(count));
        let view = range.get_mapped_range().map_err(|error| context.error(error.to_string()))?;
        let (id_bytes, rows) = view.split_at(bytes(count) as usize);
        let hidden = self.hidden.as_ref().map_or(vec![], |place| hidden::rows_in(place, rows));
        let chosen = ChosenTokens { ids: ids(id_bytes), hidden };
        drop(view);
        staging.unmap();
        self.free.push(staging);
        Ok(chosen)
    }
}

/// Returns the bytes of the ids of `count` outputs.
pub(super) fn bytes(count: usize) -> u64 {
    4 * count as u64
}

/// Returns the ids that the host has read, or `None` where a logit is NaN.
pub(super) fn ids(bytes: &[u8]) -> Vec<Option<u32>> {
    let id = |word: &[u8]| u32::from_le_bytes(std::array::from_fn(|i| word[i]));
    bytes.chunks_exact(4).map(id).map(|id| (id != NO_ID).then_some(id)).collect()
}

/// Returns whether the last step chose both tokens, one after the other.
fn follows(a: NextToken, b: NextToken) -> bool {
    matches!((a, b), (NextToken::Chosen(a), NextToken::Chosen(b)) if b == a + 1)
}
