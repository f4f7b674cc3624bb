//! The time of each dispatch, by the device's own clock.

use std::time::Duration;

use super::{
    context::Context,
    kernel::{Kernel, Resource, StepSizes},
    program::{Buffers, GpuProgram, read},
    weight_buffers::WeightBuffers,
};
use crate::{Result, backend::OpTime};

/// Encodes a step's dispatches, each in a pass of its own with the time before and after, and waits for them.
/// `cache_bytes` are those that each layer's attention reads.
#[allow(clippy::too_many_arguments, reason = "what a program needs to run, and where its times go")]
pub(super) fn run(
    profile: &mut Vec<OpTime>,
    mut encoder: wgpu::CommandEncoder,
    context: &Context,
    buffers: &Buffers,
    weight_buffers: &WeightBuffers,
    program: &mut GpuProgram,
    sizes: &StepSizes,
    cache_bytes: &[u64],
) -> Result<()> {
    let dispatches = program.for_step(sizes);
    let count = 2 * dispatches.len() as u32;
    let set = context.device.create_query_set(&wgpu::QuerySetDescriptor {
        label: None,
        ty: wgpu::QueryType::Timestamp,
        count: count.max(2),
    });
    for (index, at) in (0u32..).zip(&dispatches) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: None,
            timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
                query_set: &set,
                beginning_of_pass_write_index: Some(2 * index),
                end_of_pass_write_index: Some(2 * index + 1),
            }),
        });
        program.dispatch(&mut pass, context, buffers, weight_buffers, *at, sizes)?;
    }
    let bytes = u64::from(count) * 8;
    let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
    let resolved = context.buffer("times", bytes, usage)?;
    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
    let staging = context.buffer("times on their way", bytes, usage)?;
    encoder.resolve_query_set(&set, 0..count, &resolved, 0);
    encoder.copy_buffer_to_buffer(&resolved, 0, &staging, 0, bytes);
    context.queue.submit([encoder.finish()]);
    let mut ticks: Vec<u64> = vec![];
    read(context, &staging, bytes, |found| ticks.extend(found.chunks_exact(8).map(tick)))?;
    let period = f64::from(context.queue.get_timestamp_period());
    let timed: Vec<_> = dispatches.iter().zip(ticks.chunks_exact(2)).collect();
    // The dispatches of one op follow one another.
    for timed in timed.chunk_by(|(a, _), (b, _)| program.command(**a).step == program.command(**b).step) {
        let nanoseconds: f64 = timed.iter().map(|(_, ticks)| ticks[1].saturating_sub(ticks[0]) as f64 * period).sum();
        let first = program.command(*timed[0].0);
        let kernels = || timed.iter().map(|(at, _)| program.kernel(**at));
        let layer = kernels().flat_map(|kernel| &kernel.bindings).find_map(|bound| match bound.resource {
            Resource::Cache(layer) => Some(layer),
            _ => None,
        });
        let cached = layer.map_or(0, |layer| cache_bytes[layer]);
        let bytes = if first.op == "embed" { 0 } else { kernels().map(weight_bytes).sum::<u64>() + cached };
        note(profile, first.op, Duration::from_nanos(nanoseconds as u64), bytes);
    }
    Ok(())
}

fn tick(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[i]))
}

/// The bytes of the matrices that a kernel multiplies with.
fn weight_bytes(kernel: &Kernel) -> u64 {
    let wide = kernel.bindings.iter().filter(|bound| bound.element == "vec4<u32>");
    let sizes = wide.map(|bound| match bound.resource {
        Resource::Weight(_, _, size) => size,
        _ => 0,
    });
    sizes.sum()
}

fn note(profile: &mut Vec<OpTime>, op: &'static str, time: Duration, bytes: u64) {
    match profile.iter_mut().find(|known| known.op == op) {
        Some(known) => {
            known.calls += 1;
            known.time += time;
            known.bytes += bytes;
        }
        None => profile.push(OpTime { op, calls: 1, time, bytes }),
    }
}
