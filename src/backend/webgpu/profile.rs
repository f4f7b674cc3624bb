//! Measures the time of each dispatch with the device's timestamps.

use std::time::Duration;

use super::{
    context::Context,
    kernel::{Kernel, Resource, StepSizes},
    program::{Buffers, GpuProgram, read_buffer},
    weight_buffers::WeightBuffers,
};
use crate::{Result, backend::OpTime};

/// Runs the dispatches of a step, each in a separate pass with timestamps, waits for them, and adds
/// their times to `profile`. `cache_bytes` has, for each layer, the bytes of the cache that its
/// attention reads.
#[allow(clippy::too_many_arguments, reason = "the operands of a program, and the profile")]
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
    let dispatches = program.kernels_of(sizes);
    let count = 2 * dispatches.len() as u32;
    let set = context.device.create_query_set(&wgpu::QuerySetDescriptor {
        label: None,
        ty: wgpu::QueryType::Timestamp,
        count: count.max(2),
    });
    for (number, index) in (0u32..).zip(&dispatches) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: None,
            timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
                query_set: &set,
                beginning_of_pass_write_index: Some(2 * number),
                end_of_pass_write_index: Some(2 * number + 1),
            }),
        });
        program.dispatch(&mut pass, context, buffers, weight_buffers, *index, sizes)?;
    }
    let bytes = u64::from(count) * 8;
    let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
    let resolved = context.buffer("times", bytes, usage)?;
    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
    let staging = context.buffer("the readback of times", bytes, usage)?;
    encoder.resolve_query_set(&set, 0..count, &resolved, 0);
    encoder.copy_buffer_to_buffer(&resolved, 0, &staging, 0, bytes);
    context.queue.submit([encoder.finish()]);
    let mut ticks: Vec<u64> = vec![];
    read_buffer(context, &staging, bytes, |found| ticks.extend(found.chunks_exact(8).map(tick)))?;
    let period = f64::from(context.queue.get_timestamp_period());
    let timed: Vec<_> = dispatches.iter().zip(ticks.chunks_exact(2)).collect();
    // The dispatches of one op follow one another.
    for timed in timed.chunk_by(|(a, _), (b, _)| program.command(**a).step == program.command(**b).step) {
        let nanoseconds: f64 = timed.iter().map(|(_, ticks)| ticks[1].saturating_sub(ticks[0]) as f64 * period).sum();
        let first = program.command(*timed[0].0);
        let kernels = || timed.iter().map(|(index, _)| program.kernel(**index));
        let layer = kernels().flat_map(|kernel| &kernel.bindings).find_map(|bound| match bound.resource {
            Resource::Cache(layer) => Some(layer),
            _ => None,
        });
        let cached = layer.map_or(0, |layer| cache_bytes[layer]);
        let bytes = if first.op == "embed" { 0 } else { kernels().map(weight_bytes).sum::<u64>() + cached };
        add(profile, first.op, Duration::from_nanos(nanoseconds as u64), bytes);
    }
    Ok(())
}

fn tick(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[i]))
}

/// Returns the bytes of the matrices that a kernel reads.
fn weight_bytes(kernel: &Kernel) -> u64 {
    let wide = kernel.bindings.iter().filter(|bound| bound.element == "vec4<u32>");
    let sizes = wide.map(|bound| match bound.resource {
        Resource::Weight(_, _, size) => size,
        _ => 0,
    });
    sizes.sum()
}

/// Adds a call of an op to the profile.
fn add(profile: &mut Vec<OpTime>, op: &'static str, time: Duration, bytes: u64) {
    match profile.iter_mut().find(|known| known.op == op) {
        Some(known) => {
            known.calls += 1;
            known.time += time;
            known.bytes += bytes;
        }
        None => profile.push(OpTime { op, calls: 1, time, bytes }),
    }
}
