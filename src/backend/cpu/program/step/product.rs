//! Products: threads divide the groups of sixteen rows of the matrices, each with all tokens.

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
        let input = Input { q8: Q8Activations::new(self.q8, tokens, columns), f32: self.rows(*x), tokens };
        let c = self.scratch(worker);
        // SAFETY: by the caller; the scratch holds two results of sixteen rows, and a group's
        // columns are this thread's alone.
        let multiply = |group| unsafe {
            let product = |matrix: &Matrix, group, c| (self.kernels.product)(matrix, group, &input, c);
            match epilogue {
                Epilogue::Store => {
                    let MatrixGroup { matrix, group } = task.locate(group);
                    product(&matrices[matrix], group, c);
                    self.write_group(outs[matrix], group, c, tokens);
                }
                Epilogue::Add(residual) => {
                    product(&matrices[0], group, c);
                    self.add_group(*residual, outs[0], group, c, tokens);
                }
                Epilogue::Glu(activation) => {
                    let up = c.add(ROWS * tokens);
                    product(&matrices[0], group, c);
                    product(&matrices[1], group, up);
                    (self.kernels.activation(*activation).gated)(c, up, c, ROWS * tokens);
                    self.write_group(outs[0], group, c, tokens);
                }
            }
        };
        let task = QueuedTask { number: index, pieces: task.groups(), at_once: task.groups_at_once(tokens) };
        worker.take_from(task, |groups| groups.for_each(multiply));
    }

    /// Copies the results of a group, `[tokens, 16]`, to their columns of `out`.
    ///
    /// # Safety
    /// As [`super::run_tasks`]; `c` is readable, and the group's columns of `out` are this thread's
    /// alone.
    unsafe fn write_group(&self, out: Buffer, group: usize, c: *const f32, tokens: usize) {
        let first = group * ROWS;
        let len = ROWS.min(out.width - first);
        for token in 0..tokens {
            // SAFETY: by the caller.
            unsafe { self.row(out, token).add(first).copy_from_nonoverlapping(c.add(token * ROWS), len) };
        }
    }

    /// Writes the sums of `residual`, which may be `out`, and the results of a group to `out`.
    ///
    /// # Safety
    /// As [`write_group`](Self::write_group).
    unsafe fn add_group(&self, residual: Buffer, out: Buffer, group: usize, c: *const f32, tokens: usize) {
        let first = group * ROWS;
        let len = ROWS.min(out.width - first);
        for token in 0..tokens {
            // SAFETY: by the caller.
            unsafe {
                let [residual, out] = [self.row(residual, token).add(first), self.row(out, token).add(first)];
                (self.kernels.add)(residual, c.add(token * ROWS), out, len);
            }
        }
    }
}
