//! The largest logits, found on the device, so that a token reads back a few of them rather than the vocabulary.

use super::{
    context::Context,
    kernel::{Kernel, Resource, Workgroups},
    kernels::{self, BoundBuffer},
    lower::Command,
    program::{Buffers, GpuProgram, STORAGE, read},
};
use crate::{Result, backend::TokenLogit, plan::Plan};

/// The most that are found.
pub(super) const MOST: usize = 64;
/// Logits that a workgroup sorts.
const SHARE: usize = 1024;
const WORKGROUP: usize = 256;
const BYTES: u64 = 8 * MOST as u64;

/// Finds the largest logits, and brings them here.
pub(super) struct TopLogits {
    pub program: GpuProgram,
    last: Resource,
    staging: wgpu::Buffer,
    found: Vec<TokenLogit>,
}

/// One time that all of so many are sorted, each share by a workgroup.
fn rounds(vocabulary: usize) -> Vec<(usize, usize)> {
    let mut rounds = vec![(vocabulary, vocabulary.div_ceil(SHARE))];
    while let Some(&(_, groups)) = rounds.last()
        && groups > 1
    {
        rounds.push((groups * MOST, (groups * MOST).div_ceil(SHARE)));
    }
    rounds
}

/// The kernels for a plan's logits, one for each round.
pub(super) fn kernels(plan: &Plan) -> Vec<Kernel> {
    let logits = plan.logits();
    let kernel = |(round, (count, groups)): (usize, (usize, usize))| {
        let logits = (round == 0).then(|| BoundBuffer(Resource::Slot(logits.slot.index())));
        let best = kernels::BestKernel { workgroup: WORKGROUP, count, share: SHARE, kept: MOST, logits, round };
        Kernel::new(best, [Workgroups::Fixed(groups), Workgroups::Fixed(1), Workgroups::Fixed(1)])
    };
    rounds(logits.shape.width).into_iter().enumerate().map(kernel).collect()
}

impl TopLogits {
    pub fn new(context: &Context, plan: &Plan, buffers: &mut Buffers) -> Result<Self> {
        let rounds = rounds(plan.logits().shape.width);
        for (round, (_, groups)) in rounds.iter().enumerate() {
            let buffer = context.buffer("the largest logits", *groups as u64 * BYTES, STORAGE)?;
            buffers.set(Resource::Best(round), buffer);
        }
        let program =
            GpuProgram::new(kernels(plan).into_iter().map(|kernel| Command::always("best", kernel)).collect());
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let staging = context.buffer("the largest logits on their way", BYTES, usage)?;
        Ok(Self { program, last: Resource::Best(rounds.len() - 1), staging, found: vec![] })
    }

    /// Sends what was found on its way.
    pub fn send(&self, buffers: &Buffers, encoder: &mut wgpu::CommandEncoder) -> Result<()> {
        encoder.copy_buffer_to_buffer(buffers.get(self.last)?, 0, &self.staging, 0, BYTES);
        Ok(())
    }

    /// Waits for what was sent: the first `count` of it, as far as there are as many logits.
    pub fn take(&mut self, context: &Context, count: usize) -> Result<&[TokenLogit]> {
        let found = &mut self.found;
        found.clear();
        read(context, &self.staging, BYTES, |bytes| {
            let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
            let entries = (0..MOST).map(|i| TokenLogit { id: word(8 * i + 4), logit: logit_of(word(8 * i)) });
            found.extend(entries.filter(|entry| entry.id != u32::MAX).take(count));
        })?;
        Ok(found)
    }
}

/// The logit of a key, as `best.wgsl` makes keys.
fn logit_of(key: u32) -> f32 {
    f32::from_bits(if key >= 1 << 31 { key & !(1 << 31) } else { !key })
}
