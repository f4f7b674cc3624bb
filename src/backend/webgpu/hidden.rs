//! Copies the second result of a graph, its hidden rows, to the host.

use super::{
    context::Context,
    kernel::{Resource, StepSizes},
    lower::stride,
    program::{Buffers, read_buffer},
};
use crate::{
    Error, Result,
    graph::Rows,
    plan::{Place, Plan},
    profile::FEW_ROWS,
};

/// The use of buffers that the host reads.
const READBACK: wgpu::BufferUsages = wgpu::BufferUsages::MAP_READ.union(wgpu::BufferUsages::COPY_DST);

/// The hidden rows of the last step.
pub(super) struct HiddenRows(Option<Readback>);

struct Readback {
    place: Place,
    /// The buffer in which the host reads the rows of short steps, which copy them with their own
    /// commands.
    staging: wgpu::Buffer,
    /// Number of rows of the last step.
    rows: usize,
    elements: Vec<f32>,
}

impl HiddenRows {
    /// Allocates a buffer for the rows, if the plan has such a result.
    pub fn new(context: &Context, plan: &Plan) -> Result<Self> {
        let readback = |place: Place| {
            let staging = buffer(context, &place, FEW_ROWS)?;
            Ok(Readback { place, staging, rows: 0, elements: vec![] })
        };
        plan.hidden().map(readback).transpose().map(Self)
    }

    /// Takes the sizes of the step that is submitted next.
    pub fn start_step(&mut self, sizes: &StepSizes) {
        self.0.iter_mut().for_each(|readback| readback.rows = readback.rows_of(sizes));
    }

    /// Encodes the copy of the rows of a short step.
    pub fn encode_copy(&self, buffers: &Buffers, encoder: &mut wgpu::CommandEncoder, sizes: &StepSizes) -> Result<()> {
        match &self.0 {
            Some(readback) if readback.rows_of(sizes) <= FEW_ROWS => {
                readback.copy(buffers, encoder, &readback.staging, readback.rows_of(sizes))
            }
            _ => Ok(()),
        }
    }

    /// Waits for the last step, and returns its rows.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the plan has no such result. Another error if the device fails.
    pub fn read(&mut self, context: &Context, buffers: &Buffers) -> Result<&[f32]> {
        let Some(readback) = &mut self.0 else {
            return Err(Error::Unsupported("this graph has no second result".into()));
        };
        let rows = readback.rows;
        let long = if rows > FEW_ROWS { Some(buffer(context, &readback.place, rows)?) } else { None };
        if let Some(long) = &long {
            let mut encoder = context.device.create_command_encoder(&Default::default());
            readback.copy(buffers, &mut encoder, long, rows)?;
            context.queue.submit([encoder.finish()]);
        }
        let Readback { place, staging, elements, .. } = readback;
        read_buffer(context, long.as_ref().unwrap_or(staging), bytes(place, rows), |found| {
            *elements = rows_in(place, found);
        })?;
        Ok(elements)
    }
}

impl Readback {
    fn rows_of(&self, sizes: &StepSizes) -> usize {
        match self.place.shape.rows {
            Rows::Fixed(rows) => rows,
            Rows::Tokens => sizes.tokens,
            Rows::Outputs => sizes.outputs,
        }
    }

    fn copy(
        &self,
        buffers: &Buffers,
        encoder: &mut wgpu::CommandEncoder,
        to: &wgpu::Buffer,
        rows: usize,
    ) -> Result<()> {
        encode_copy(&self.place, buffers, encoder, (to, 0), rows)
    }
}

/// Encodes the copy of rows of `place` to a buffer, from an offset in bytes on.
pub(super) fn encode_copy(
    place: &Place,
    buffers: &Buffers,
    encoder: &mut wgpu::CommandEncoder,
    (to, offset): (&wgpu::Buffer, u64),
    rows: usize,
) -> Result<()> {
    let from = buffers.get(Resource::Slot(place.slot.index()))?;
    encoder.copy_buffer_to_buffer(from, 0, to, offset, bytes(place, rows));
    Ok(())
}

/// Returns the rows of `place` that were copied to `bytes`.
pub(super) fn rows_in(place: &Place, bytes: &[u8]) -> Vec<f32> {
    let rows = bytemuck::cast_slice::<_, f32>(bytes).chunks(stride(place));
    rows.flat_map(|row| &row[..place.shape.width]).copied().collect()
}

/// Returns the size of the copy of rows of `place`.
pub(super) fn bytes(place: &Place, rows: usize) -> u64 {
    (size_of::<f32>() * stride(place) * rows) as u64
}

fn buffer(context: &Context, place: &Place, rows: usize) -> Result<wgpu::Buffer> {
    context.buffer("the readback of hidden rows", bytes(place, rows), READBACK)
}
