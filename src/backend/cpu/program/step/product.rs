//! Products: threads divide the groups of sixteen rows of the matrices, each with a block of
//! tokens.

use std::ops::Range;

use super::context::StepContext;
use crate::{
    backend::cpu::{
        kernels::{product::Input, quantize::Q8Activations, rows::StridedRows},
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
        let Product { x, heads, matrices, epilogue, outs } = task;
        let (tokens, width) = (self.row_count(x.rows), x.width / heads);
        // The int8 memory may have no room for the operand of float matrices.
        let columns = if matrices.iter().any(|matrix| matrix.is_quantized()) { width } else { 0 };
        let (q8, f32) = (Q8Activations::new(self.q8, tokens * heads, columns), self.rows(*x));
        let c = self.scratch(worker);
        // SAFETY: by the caller; the scratch holds two results of sixteen rows, and a group's
        // columns of a block of tokens are this thread's alone.
        let multiply = |group, block: Range<usize>| unsafe {
            let (first, len) = (block.start, block.len());
            let product = |matrix: &Matrix, group, c| {
                let head = if *heads > 1 { group / matrix.stack().groups_per_matrix() } else { 0 };
                let start = f32.row(first).wrapping_add(head * width);
                let (q8, f32) = (q8.skip(head * tokens + first), StridedRows { start, ..f32 });
                (self.kernels.product)(matrix, group, &Input { q8, f32, tokens: len }, c);
            };
            match epilogue {
                Epilogue::Store => {
                    let MatrixGroup { matrix, group } = task.locate(group);
                    product(&matrices[matrix], group, c);
                    self.write_rows(outs[matrix], matrices[matrix].stack().rows_of(group), block, c);
                }
                Epilogue::Add(residual) => {
                    product(&matrices[0], group, c);
                    self.add_group(*residual, outs[0], group, block, c);
                }
                Epilogue::Glu(activation) => {
                    let up = c.add(ROWS * len);
                    product(&matrices[0], group, c);
                    product(&matrices[1], group, up);
                    (self.kernels.activation(*activation).gated)(c, up, c, ROWS * len);
                    self.write_rows(outs[0], matrices[0].stack().rows_of(group), block, c);
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

    /// Copies the products of a group of matrix rows, `[tokens, 16]`, for a block of tokens to the
    /// columns of `out` with the numbers of these rows.
    ///
    /// # Safety
    /// As [`super::run_tasks`]; `c` is readable, and these columns of `out` are this thread's
    /// alone.
    unsafe fn write_rows(&self, out: Buffer, rows: Range<usize>, block: Range<usize>, c: *const f32) {
        for (row, token) in block.enumerate() {
            // SAFETY: by the caller.
            unsafe { self.row(out, token).add(rows.start).copy_from_nonoverlapping(c.add(row * ROWS), rows.len()) };
        }
    }

    /// Writes the sums of `residual`, which may be `out`, and the results of a group to `out`.
    ///
    /// # Safety
    /// As [`write_rows`](Self::write_rows).
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
