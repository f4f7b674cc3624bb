//! Finds the largest logits on the device, so that sampling reads back at most 64 of them instead
//! of the vocabulary.

use super::{
    context::Context,
    kernel::{Kernel, Resource, Workgroups},
    kernels::{self, BoundBuffer},
    lower::Command,
    program::{Buffers, GpuProgram, STORAGE, read_buffer},
};
use crate::{Result, backend::TokenLogit, plan::Plan};

/// The largest number of logits that are found.
pub(super) const MAX_COUNT: usize = 64;
/// Candidates that a workgroup sorts.
const SHARE: usize = 1024;
const WORKGROUP: usize = 256;
/// Bytes of the result: a key and an id for each logit.
const BYTES: u64 = 8 * MAX_COUNT as u64;

/// The kernels that find the largest logits, and the buffer from which the host reads them.
pub(super) struct TopLogits {
    pub program: GpuProgram,
    /// The buffer of the last round.
    last: Resource,
    staging: wgpu::Buffer,
    found: Vec<TokenLogit>,
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
        rounds.push(Round::new(workgroups * MAX_COUNT));
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
            kept: MAX_COUNT,
            logits: (index == 0).then(|| BoundBuffer(Resource::Slot(logits.slot.index()))),
            round: index,
        };
        Kernel::new(kernel, [Workgroups::Fixed(round.workgroups), Workgroups::Fixed(1), Workgroups::Fixed(1)])
    };
    rounds(logits.shape.width).into_iter().enumerate().map(kernel).collect()
}

impl TopLogits {
    pub fn new(context: &Context, plan: &Plan, buffers: &mut Buffers) -> Result<Self> {
        let rounds = rounds(plan.logits().shape.width);
        for (index, round) in rounds.iter().enumerate() {
            let buffer = context.buffer("the largest logits", round.workgroups as u64 * BYTES, STORAGE)?;
            buffers.set(Resource::Best(index), buffer);
        }
        let program =
            GpuProgram::new(kernels(plan).into_iter().map(|kernel| Command::always("best", kernel)).collect());
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let staging = context.buffer("the readback of the largest logits", BYTES, usage)?;
        Ok(Self { program, last: Resource::Best(rounds.len() - 1), staging, found: vec![] })
    }

    /// Encodes the copy of the result to the buffer that the host reads.
    pub fn encode_readback(&self, buffers: &Buffers, encoder: &mut wgpu::CommandEncoder) -> Result<()> {
        encoder.copy_buffer_to_buffer(buffers.get(self.last)?, 0, &self.staging, 0, BYTES);
        Ok(())
    }

    /// Waits for the submitted readback, and returns the `count` largest logits, or all logits if
    /// there are fewer.
    pub fn wait(&mut self, context: &Context, count: usize) -> Result<&[TokenLogit]> {
        let found = &mut self.found;
        found.clear();
        read_buffer(context, &self.staging, BYTES, |bytes| {
            let word = |offset: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[offset + i]));
            let entries = (0..MAX_COUNT).map(|i| TokenLogit { id: word(8 * i + 4), logit: logit_of(word(8 * i)) });
            found.extend(entries.filter(|entry| entry.id != u32::MAX).take(count));
        })?;
        Ok(found)
    }
}

/// Returns the logit of a key of `best.wgsl`, whose keys are ordered as the logits are.
fn logit_of(key: u32) -> f32 {
    f32::from_bits(if key >= 1 << 31 { key & !(1 << 31) } else { !key })
}
