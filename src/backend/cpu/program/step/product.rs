//! How a thread does its share of a product.

use super::context::Walk;
use crate::{
    backend::cpu::{
        kernels::{product::Input, quantize::Activations},
        program::{
            buffer::Buffer,
            task::{Finish, Product},
        },
        threads::pool::Worker,
        weights::matrix::Matrix,
    },
    quant::ROWS,
};

impl Walk<'_> {
    /// Groups of sixteen rows are divided among the threads, each with all tokens.
    pub unsafe fn product(&self, index: usize, task: &Product, worker: Worker<'_>) {
        let Product { x, matrices, finish, outs } = task;
        let tokens = self.rows(x.rows);
        // Plain floats have no room there.
        let columns = if matrices.iter().any(|matrix| matrix.is_quantized()) { x.width } else { 0 };
        let quantized = Activations::new(self.activations, tokens, columns);
        let input = Input { quantized, plain: self.row(*x, 0), stride: self.slots[x.slot].stride, tokens };
        let c: *mut f32 = self.scratch[worker.number].as_ptr().cast();
        // SAFETY: the scratch holds two results of sixteen rows; a group's results are this thread's alone.
        let each = |group| unsafe {
            let product = |matrix: &Matrix, group, c| (self.kernels.product)(matrix, group, &input, c);
            match finish {
                Finish::Store => {
                    let (number, group) = task.locate(group);
                    product(&matrices[number], group, c);
                    self.write(outs[number], group, c, tokens);
                }
                Finish::Add(residual) => {
                    product(&matrices[0], group, c);
                    self.add(*residual, outs[0], group, c, tokens);
                }
                Finish::Glu(activation) => {
                    let up = c.add(ROWS * tokens);
                    product(&matrices[0], group, c);
                    product(&matrices[1], group, up);
                    (self.kernels.activate(*activation).times)(c, up, c, ROWS * tokens);
                    self.write(outs[0], group, c, tokens);
                }
            }
        };
        worker.each_part(index, task.groups(), task.step(tokens), |groups| groups.for_each(each));
    }

    /// Copies a group's results `[tokens, 16]` to their columns.
    unsafe fn write(&self, out: Buffer, group: usize, c: *const f32, tokens: usize) {
        let first = group * ROWS;
        let len = ROWS.min(out.width - first);
        for token in 0..tokens {
            // SAFETY: by the caller.
            unsafe { self.row(out, token).add(first).copy_from_nonoverlapping(c.add(token * ROWS), len) };
        }
    }

    /// As `write`, adding them to `residual`, which may be `out`.
    unsafe fn add(&self, residual: Buffer, out: Buffer, group: usize, c: *const f32, tokens: usize) {
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
