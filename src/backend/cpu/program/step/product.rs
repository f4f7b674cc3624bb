//! Products: threads divide the groups of sixteen rows of the matrices, each with a block of
//! tokens.

use std::ops::Range;

use super::context::StepContext;
use crate::{
    backend::cpu::{
        kernels::{product::Input, quantize::Q8Activations},
        program::{
            buffer::Buffer,
            task::{Epilogue, MatrixGroup, Product},
        },
        threads::{pool::Worker, work_queue::QueuedTask},
        weights::matrix::Matrix,
    },
    quant::ROWS,
};

impl StepContext<'_> {
    /// Multiplies rows with matrices.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn product(&self, index: usize, task: &Product, worker: Worker<'_>) {
        let Product { x, matrices, epilogue, outs } = task;
        let tokens = self.row_count(x.rows);
        // The int8 memory may have no room for the operand of float matrices.
        let columns = if matrices.iter().any(|matrix| matrix.is_quantized()) { x.width } else { 0 };
        let all = Input { q8: Q8Activations::new(self.q8, tokens, columns), f32: self.rows(*x), tokens };
        let c = self.scratch(worker);
        // SAFETY: by the caller; the scratch holds two results of sixteen rows, and a group's
        // columns of a block of tokens are this thread's alone.
        let multiply = |group, block: Range<usize>| unsafe {
            let (first, tokens) = (block.start, block.len());
            let input = Input { q8: all.q8.skip(first), f32: all.f32.skip(first), tokens };
            let product = |matrix: &Matrix, group, c| (self.kernels.product)(matrix, group, &input, c);
            match epilogue {
                Epilogue::Store => {
                    let MatrixGroup { matrix, group } = task.locate(group);
                    product(&matrices[matrix], group, c);
                    self.write_group(outs[matrix], group, block, c);
                }
                Epilogue::Add(residual) => {
                    product(&matrices[0], group, c);
                    self.add_group(*residual, outs[0], group, block, c);
                }
                Epilogue::Glu(activation) => {
                    let up = c.add(ROWS * tokens);
                    product(&matrices[0], group, c);
                    product(&matrices[1], group, up);
                    (self.kernels.activation(*activation).gated)(c, up, c, ROWS * tokens);
                    self.write_group(outs[0], group, block, c);
                }
            }
        };
        let (groups, block) = (task.groups(), task.tokens_in_block());
        let pieces = groups * tokens.div_ceil(block);
        let queued = QueuedTask { number: index, pieces, at_once: task.groups_at_once(tokens.min(block)) };
        worker.take_from(queued, |pieces| {
            for piece in pieces {
                let first = piece / groups * block;
                multiply(piece % groups, first..tokens.min(first + block));
            }
        });
    }

    /// Copies the results of a group for a block of tokens, `[tokens, 16]`, to their columns of
    /// `out`.
    ///
    /// # Safety
    /// As [`super::run_tasks`]; `c` is readable, and the group's columns of `out` are this thread's
    /// alone.
    unsafe fn write_group(&self, out: Buffer, group: usize, block: Range<usize>, c: *const f32) {
        let first = group * ROWS;
        let len = ROWS.min(out.width - first);
        for (row, token) in block.enumerate() {
            // SAFETY: by the caller.
            unsafe { self.row(out, token).add(first).copy_from_nonoverlapping(c.add(row * ROWS), len) };
        }
    }

    /// Writes the sums of `residual`, which may be `out`, and the results of a group to `out`.
    ///
    /// # Safety
    /// As [`write_group`](Self::write_group).
    unsafe fn add_group(&self, residual: Buffer, out: Buffer, group: usize, block: Range<usize>, c: *const f32) {
        let first = group * ROWS;
        let len = ROWS.min(out.width - first);
        for (row, token) in block.enumerate() {
            // SAFETY: by the caller.
            unsafe {
                let [residual, out] = [self.row(residual, token).add(first), self.row(out, token).add(first)];
                (self.kernels.add)(residual, c.add(row * ROWS), out, len);
            }
        }
    }
}
