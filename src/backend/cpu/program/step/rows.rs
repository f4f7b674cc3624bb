//! Tasks that work row by row: each thread does the same share of the rows in all of them.

use std::slice;

use super::context::StepContext;
use crate::{
    Result,
    backend::cpu::{
        kernels::{quantize::Q8Activations, rope, route::Router},
        program::{
            buffer::Buffer,
            task::{AddRmsNorm, Angles, BinaryOp, LayerNorm, RightOperand, Slice},
        },
        threads::pool::Worker,
        weights::prepare::EmbeddingTable,
    },
    graph::{Activation, RopeSpec, RouteSpec},
};

impl StepContext<'_> {
    /// Looks up the rows of the tokens.
    ///
    /// # Errors
    /// If a row cannot be read.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn embed(&self, table: &EmbeddingTable, out: Buffer, worker: Worker<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        for token in worker.share(self.step.tokens.len()) {
            // SAFETY: by the caller; the row is this thread's alone.
            let row = unsafe { slice::from_raw_parts_mut(self.row(out, token), out.width) };
            self.weights.read_row(table, self.step.tokens[token] as usize, &mut bytes, row)?;
        }
        Ok(())
    }

    /// Computes table number `index` of cosines and sines.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn compute_angles(&self, angles: &Angles, index: usize, worker: Worker<'_>) {
        let table = self.angles(index);
        for token in worker.share(self.step.tokens.len()) {
            // SAFETY: by the caller; the row is this thread's alone.
            let out = unsafe { slice::from_raw_parts_mut(table.row(token), table.stride) };
            rope::angles(self.rotary_positions(token), angles.axes, &angles.frequencies, out);
        }
    }

    /// Quantizes rows to int8: all rows of the first of `heads` parts, then those of the next.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn quantize(&self, x: Buffer, heads: usize, worker: Worker<'_>) {
        let (rows, width) = (self.row_count(x.rows), x.width / heads);
        debug_assert!(Q8Activations::bytes(rows * heads, width) <= self.q8.len());
        let to = Q8Activations::new(self.q8, rows * heads, width);
        for row in worker.share(rows) {
            for head in 0..heads {
                // SAFETY: by the caller; the row is this thread's alone.
                unsafe { (self.kernels.quantize)(self.row(x, row).add(head * width), &to, head * rows + row) };
            }
        }
    }

    /// Computes an element-wise op on two operands.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn binary(&self, op: BinaryOp, a: Buffer, b: &RightOperand, out: Buffer, worker: Worker<'_>) {
        let kernel = match op {
            BinaryOp::Add => self.kernels.add,
            BinaryOp::Mul => self.kernels.mul,
            BinaryOp::Div => self.kernels.div,
        };
        for row in worker.share(self.row_count(out.rows)) {
            let b = match b {
                RightOperand::Row(b) => b.as_ptr(),
                RightOperand::Rows(b) => self.row(*b, row).cast_const(),
            };
            // SAFETY: by the caller; the row of `out` is this thread's alone.
            unsafe { kernel(self.row(a, row), b, self.row(out, row), out.width) };
        }
    }

    /// Applies an activation function to each element.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn activate(&self, activation: Activation, x: Buffer, out: Buffer, worker: Worker<'_>) {
        let kernel = self.kernels.activation(activation).plain;
        for row in worker.share(self.row_count(out.rows)) {
            // SAFETY: by the caller; the row of `out` is this thread's alone.
            unsafe { kernel(self.row(x, row), self.row(out, row), out.width) };
        }
    }

    /// Computes `cap tanh(x / cap)` of each element.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn soft_cap(&self, cap: f32, x: Buffer, out: Buffer, worker: Worker<'_>) {
        for row in worker.share(self.row_count(out.rows)) {
            // SAFETY: by the caller; the row of `out` is this thread's alone.
            unsafe { (self.kernels.soft_cap)(self.row(x, row), cap, self.row(out, row), out.width) };
        }
    }

    /// Limits each element to two numbers.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn clamp(&self, [lower, upper]: [f32; 2], x: Buffer, out: Buffer, worker: Worker<'_>) {
        for row in worker.share(self.row_count(out.rows)) {
            let [x, out_row] = [self.row(x, row), self.row(out, row)];
            for i in 0..out.width {
                // SAFETY: by the caller; the row of `out` is this thread's alone.
                unsafe { *out_row.add(i) = (*x.add(i)).max(lower).min(upper) };
            }
        }
    }

    /// Joins each group of the rows of several operands.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn concat(&self, operands: &[Buffer], groups: usize, out: Buffer, worker: Worker<'_>) {
        for row in worker.share(self.row_count(out.rows)) {
            let mut to = self.row(out, row);
            for (group, x) in (0..groups).flat_map(|group| operands.iter().map(move |x| (group, x))) {
                let width = x.width / groups;
                // SAFETY: by the caller; the row of `out` is this thread's alone.
                unsafe {
                    to.copy_from_nonoverlapping(self.row(*x, row).add(group * width), width);
                    to = to.add(width);
                }
            }
        }
    }

    /// Copies parts of rows.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn slice(&self, slice: Slice, x: Buffer, out: Buffer, worker: Worker<'_>) {
        let Slice { offset, len, stride } = slice;
        for row in worker.share(self.row_count(out.rows)) {
            for part in 0..out.width / len {
                // SAFETY: by the caller; the row of `out` is this thread's alone.
                unsafe {
                    let from = self.row(x, row).add(part * stride + offset);
                    self.row(out, row).add(part * len).copy_from_nonoverlapping(from, len);
                }
            }
        }
    }

    /// Computes weighted sums of the parts of each row.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn mix_streams(&self, outputs: usize, [x, weights]: [Buffer; 2], out: Buffer, worker: Worker<'_>) {
        let (streams, width) = (weights.width / outputs, out.width / outputs);
        for row in worker.share(self.row_count(out.rows)) {
            // SAFETY: by the caller; the row of `out` is this thread's alone, and the operands are
            // in other slots.
            let (x, weights, out) = unsafe {
                (
                    slice::from_raw_parts(self.row(x, row), x.width),
                    slice::from_raw_parts(self.row(weights, row), weights.width),
                    slice::from_raw_parts_mut(self.row(out, row), out.width),
                )
            };
            for (sum, weights) in out.chunks_exact_mut(width).zip(weights.chunks_exact(streams)) {
                sum.fill(0.0);
                for (part, weight) in x.chunks_exact(width).zip(weights) {
                    sum.iter_mut().zip(part).for_each(|(sum, x)| *sum += weight * x);
                }
            }
        }
    }

    /// Computes the root mean square of each row or, if `centered`, its standard deviation.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn deviation(&self, centered: bool, x: Buffer, out: Buffer, worker: Worker<'_>) {
        for row in worker.share(self.row_count(out.rows)) {
            // SAFETY: by the caller; `x` is in another slot than `out`.
            let x = unsafe { slice::from_raw_parts(self.row(x, row), x.width) };
            let mean_of = |f: &dyn Fn(f64) -> f64| x.iter().map(|x| f(f64::from(*x))).sum::<f64>() / x.len() as f64;
            let center = if centered { mean_of(&|x| x) } else { 0.0 };
            let deviation = mean_of(&|x| (x - center).powi(2)).sqrt();
            // SAFETY: by the caller; the row of `out` is this thread's alone.
            unsafe { *self.row(out, row) = deviation as f32 };
        }
    }

    /// Computes the RMS norm of each group of `w.len()` elements.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn rms_norm(&self, x: Buffer, w: &[f32], eps: f32, out: Buffer, worker: Worker<'_>) {
        for row in worker.share(self.row_count(out.rows)) {
            let [x, out_row] = [self.row(x, row), self.row(out, row)];
            for first in (0..out.width).step_by(w.len()) {
                // SAFETY: by the caller; the row of `out` is this thread's alone.
                unsafe { (self.kernels.rms_norm)(x.add(first), w.as_ptr(), eps, out_row.add(first), w.len()) };
            }
        }
    }

    /// Computes a sum, and its RMS norm, row by row.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn add_rms_norm(&self, task: &AddRmsNorm, worker: Worker<'_>) {
        let AddRmsNorm { a, b, w, eps, sum, out } = task;
        for row in worker.share(self.row_count(out.rows)) {
            let sum = self.row(*sum, row);
            // SAFETY: by the caller; the rows of `sum` and `out` are this thread's alone.
            unsafe {
                (self.kernels.add)(self.row(*a, row), self.row(*b, row), sum, out.width);
                (self.kernels.rms_norm)(sum, w.as_ptr(), *eps, self.row(*out, row), out.width);
            }
        }
    }

    /// Computes the layer norms of each row.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn layer_norm(&self, task: &LayerNorm, worker: Worker<'_>) {
        let LayerNorm { x, w, b, eps, groups, out } = task;
        let len = out.width / groups;
        for row in worker.share(self.row_count(out.rows)) {
            let (x, out) = (self.row(*x, row), self.row(*out, row));
            for (group, (w, b)) in w.chunks_exact(len).zip(b.chunks_exact(len)).enumerate() {
                // SAFETY: by the caller; the row of `out` is this thread's alone, and has the
                // groups that `w` has.
                unsafe { (self.kernels.layer_norm)(x.add(group * len), w, b, *eps, out.add(group * len)) };
            }
        }
    }

    /// Rotates the heads of rows.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn rope(&self, spec: &RopeSpec, x: Buffer, angles: usize, out: Buffer, worker: Worker<'_>) {
        let table = self.angles(angles);
        for row in worker.share(self.row_count(out.rows)) {
            // SAFETY: by the caller; the row of `out` is this thread's alone, and the table is
            // complete.
            unsafe {
                let angles = slice::from_raw_parts(table.row(row), table.stride);
                rope::rotate(*spec, self.row(x, row), angles, self.row(out, row), out.width);
            }
        }
    }

    /// Turns the logits of a router into weights of experts.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn route(
        &self,
        spec: &RouteSpec,
        logits: Buffer,
        bias: Option<&[f32]>,
        out: Buffer,
        worker: Worker<'_>,
    ) {
        let mut router = Router::new(spec, bias);
        for row in worker.share(self.row_count(out.rows)) {
            // SAFETY: by the caller; the row of `out` is this thread's alone, and `logits` is in
            // another slot.
            unsafe {
                let logits = slice::from_raw_parts(self.row(logits, row), out.width);
                let out = slice::from_raw_parts_mut(self.row(out, row), out.width);
                router.route(logits, out);
            }
        }
    }
}
