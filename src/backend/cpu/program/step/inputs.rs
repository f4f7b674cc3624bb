//! Tasks on the rows that a step gives, and on the tokens that it selects.

use std::slice;

use super::context::StepContext;
use crate::{
    Result,
    backend::cpu::{
        program::{
            buffer::Buffer,
            task::{MixRows, Temper},
        },
        threads::pool::Worker,
        weights::prepare::EmbeddingTable,
    },
};

impl StepContext<'_> {
    /// Copies the rows whose logits the step returns.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn select(&self, x: Buffer, out: Buffer, worker: Worker<'_>) {
        for row in worker.share(self.step.outputs.len()) {
            let from = self.row(x, self.step.outputs[row]);
            // SAFETY: by the caller; the row of `out` is this thread's alone.
            unsafe { self.row(out, row).copy_from_nonoverlapping(from, out.width) };
        }
    }

    /// Joins the rows of each output's token and of the tokens after it.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn join_rows(&self, count: usize, x: Buffer, out: Buffer, worker: Worker<'_>) {
        for row in worker.share(self.step.outputs.len()) {
            for part in 0..count {
                let from = self.row(x, self.step.outputs[row] + part);
                // SAFETY: by the caller; the row of `out` is this thread's alone.
                unsafe { self.row(out, row).add(part * x.width).copy_from_nonoverlapping(from, x.width) };
            }
        }
    }

    /// Copies the rows that the step gives for tokens; all other rows become 0.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn input_rows(&self, out: Buffer, worker: Worker<'_>) {
        for token in worker.share(self.step.tokens.len()) {
            // SAFETY: by the caller; the row is this thread's alone.
            let row = unsafe { slice::from_raw_parts_mut(self.row(out, token), out.width) };
            match self.step.rows.row(token) {
                Some(given) => row.copy_from_slice(&given[..row.len()]),
                None => row.fill(0.0),
            }
        }
    }

    /// Multiplies each row by a factor of its position.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn temper(&self, temper: Temper, x: Buffer, out: Buffer, worker: Worker<'_>) {
        let Temper { scale, interval, offset } = temper;
        for token in worker.share(self.row_count(out.rows)) {
            let factor = 1.0 + scale * (((self.position(token) + offset) / interval) as f32).ln_1p();
            let (from, to) = (self.row(x, token), self.row(out, token));
            // SAFETY: by the caller; the row of `out` is this thread's alone.
            (0..out.width).for_each(|i| unsafe { *to.add(i) = factor * *from.add(i) });
        }
    }

    /// Copies `x`, with the step's rows in the place of its own, or added to them.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn mix_rows(&self, mix: MixRows, first: usize, x: Buffer, out: Buffer, worker: Worker<'_>) {
        for token in worker.share(self.step.tokens.len()) {
            let (from, to) = (self.row(x, token), self.row(out, token));
            let marked = matches!(mix, MixRows::Place { marked: true });
            let given = self.step.rows.row(token).filter(|row| !marked || row[first - 1] != 0.0);
            let given = given.map(|row| row[first..first + out.width].as_ptr());
            // SAFETY: by the caller; the row of `out` is this thread's alone.
            unsafe {
                match (mix, given) {
                    (MixRows::Place { .. }, Some(given)) => to.copy_from_nonoverlapping(given, out.width),
                    (MixRows::Add, Some(given)) => (self.kernels.add)(from, given, to, out.width),
                    (_, None) => to.copy_from(from, out.width),
                }
            }
        }
    }

    /// Computes weighted sums of rows of a table.
    ///
    /// # Errors
    /// If a row cannot be read.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn interpolate(
        &self,
        table: &EmbeddingTable,
        taps: usize,
        out: Buffer,
        worker: Worker<'_>,
    ) -> Result<()> {
        let (mut bytes, mut row) = (Vec::new(), vec![0.0; out.width]);
        for token in worker.share(self.step.tokens.len()) {
            // SAFETY: by the caller; the row is this thread's alone.
            let sum = unsafe { slice::from_raw_parts_mut(self.row(out, token), out.width) };
            sum.fill(0.0);
            for (index, weight) in self.step.taps[taps][token].into_iter().filter(|(_, weight)| *weight != 0.0) {
                self.weights.read_row(table, index as usize, &mut bytes, &mut row)?;
                sum.iter_mut().zip(&row).for_each(|(sum, x)| *sum += weight * x);
            }
        }
        Ok(())
    }
}
