//! Finds the largest logits of each output on the device, so that sampling reads back at most 64 of
//! them instead of the vocabulary.

use super::{
    context::Context,
    kernel::{Kernel, Resource, Workgroups},
    kernels::{self, BoundBuffer},
    lower::{Command, stride},
    program::{Buffers, GpuProgram, STORAGE, read_buffer},
};
use crate::{
    Error, Result,
    backend::{MAX_TOP_LOGITS, TokenLogit, TopLogits},
    plan::Plan,
};

/// Candidates that a workgroup sorts.
const SHARE: usize = 1024;
const WORKGROUP: usize = 256;
/// Words of the result of a workgroup: a key and an id for each logit, and the pair of the largest
/// logit and the sum of exponentials relative to it.
const WORDS: usize = 2 * (MAX_TOP_LOGITS + 1);

/// The kernels that find the largest logits, and the buffer from which the host reads them.
pub(super) struct TopSelection {
    pub program: GpuProgram,
    vocabulary: usize,
    /// Outputs for which the buffers have room.
    outputs: usize,
    staging: Option<wgpu::Buffer>,
    found: Vec<TopLogits>,
}

/// A dispatch in which each workgroup keeps the largest of its share of the candidates.
struct Round {
    candidates: usize,
    workgroups: usize,
}

impl Round {
    fn new(candidates: usize) -> Self {
        Self { candidates, workgroups: candidates.div_ceil(SHARE) }
    }
}

/// Returns the rounds until one workgroup has all remaining candidates.
fn rounds(vocabulary: usize) -> Vec<Round> {
    let mut rounds = vec![Round::new(vocabulary)];
    while let Some(Round { workgroups, .. }) = rounds.last()
        && *workgroups > 1
    {
        rounds.push(Round::new(workgroups * MAX_TOP_LOGITS));
    }
    rounds
}

/// Returns the kernels for a plan's logits, one for each round.
pub(super) fn kernels(plan: &Plan) -> Vec<Kernel> {
    let logits = plan.logits();
    let kernel = |(index, round): (usize, Round)| {
        let kernel = kernels::BestKernel {
            workgroup: WORKGROUP,
            count: round.candidates,
            share: SHARE,
            kept: MAX_TOP_LOGITS,
            stride: stride(&logits),
            logits: (index == 0).then(|| BoundBuffer(Resource::Slot(logits.slot.index()))),
            round: index,
        };
        Kernel::new(kernel, [Workgroups::Fixed(round.workgroups), Workgroups::Outputs(1), Workgroups::Fixed(1)])
    };
    rounds(logits.shape.width).into_iter().enumerate().map(kernel).collect()
}

impl TopSelection {
    pub fn new(plan: &Plan) -> Self {
        let program =
            GpuProgram::new(kernels(plan).into_iter().map(|kernel| Command::always("best", kernel)).collect());
        Self { program, vocabulary: plan.logits().shape.width, outputs: 0, staging: None, found: vec![] }
    }

    /// Returns whether the buffers have too little room for a step's outputs.
    pub fn must_grow(&self, outputs: usize) -> bool {
        outputs > self.outputs
    }

    /// Allocates the buffers for steps of up to `outputs` outputs.
    pub fn grow(&mut self, context: &Context, buffers: &mut Buffers, outputs: usize) -> Result<()> {
        let outputs = outputs.next_power_of_two();
        let bytes = |workgroups: usize| 4 * (outputs * workgroups * WORDS) as u64;
        for (index, round) in rounds(self.vocabulary).iter().enumerate() {
            buffers.set(Resource::Best(index), context.buffer("the largest logits", bytes(round.workgroups), STORAGE)?);
        }
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        self.staging = Some(context.buffer("the readback of the largest logits", bytes(1), usage)?);
        self.outputs = outputs;
        Ok(())
    }

    /// Encodes the copy of the result of a step to the buffer that the host reads.
    pub fn encode_readback(&self, buffers: &Buffers, encoder: &mut wgpu::CommandEncoder, outputs: usize) -> Result<()> {
        let last = Resource::Best(rounds(self.vocabulary).len() - 1);
        encoder.copy_buffer_to_buffer(buffers.get(last)?, 0, self.staging()?, 0, 4 * (outputs * WORDS) as u64);
        Ok(())
    }

    /// Waits for the submitted readback, and returns the `count` largest logits of each output, or
    /// all logits if there are fewer.
    pub fn wait(&mut self, context: &Context, outputs: usize, count: usize) -> Result<&[TopLogits]> {
        let mut found = std::mem::take(&mut self.found);
        found.resize_with(outputs, TopLogits::default);
        read_buffer(context, self.staging()?, 4 * (outputs * WORDS) as u64, |bytes| {
            for (top, bytes) in found.iter_mut().zip(bytes.chunks_exact(4 * WORDS)) {
                let word = |index: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[4 * index + i]));
                let entries =
                    (0..MAX_TOP_LOGITS).map(|i| TokenLogit { id: word(2 * i + 1), logit: logit_of(word(2 * i)) });
                top.best.clear();
                top.best.extend(entries.filter(|entry| entry.id != u32::MAX).take(count));
                let [highest, sum] = [WORDS - 2, WORDS - 1].map(|index| f64::from(f32::from_bits(word(index))));
                top.log_sum = (highest + sum.ln()) as f32;
            }
        })?;
        self.found = found;
        Ok(&self.found)
    }

    fn staging(&self) -> Result<&wgpu::Buffer> {
        self.staging.as_ref().ok_or_else(|| Error::internal("the largest logits have no buffer"))
    }
}

/// Returns the logit of a key of `best.wgsl`, whose keys are ordered as the logits are.
fn logit_of(key: u32) -> f32 {
    f32::from_bits(if key >= 1 << 31 { key & !(1 << 31) } else { !key })
}
