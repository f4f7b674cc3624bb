//! Runs recurrent ops: threads divide channels, or columns of the state, each with all tokens of a
//! run.

use super::context::StepContext;
use crate::{
    backend::cpu::{
        kernels::recurrent::{CONV_CHANNELS, GatedDeltaRun, ShortConvRun, gated_delta_pieces},
        program::{buffer::Buffer, task::GatedDelta},
        threads::{pool::Worker, work_queue::QueuedTask},
    },
    graph::ConvSpec,
};

impl StepContext<'_> {
    /// Computes a short convolution.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn short_conv(
        &self,
        index: usize,
        spec: &ConvSpec,
        x: Buffer,
        w: &[f32],
        out: Buffer,
        worker: Worker<'_>,
    ) {
        let pieces = spec.channels.div_ceil(CONV_CHANNELS);
        let runs: Vec<_> = self
            .runs
            .iter()
            .map(|run| ShortConvRun {
                spec: *spec,
                x: self.rows(x).skip(run.first),
                w,
                out: self.rows(out).skip(run.first),
                tokens: run.len,
                state: self.run_state(run, spec.state),
            })
            .collect();
        // SAFETY: by the caller; each piece is one thread's.
        let convolve = |piece: usize| unsafe { (self.kernels.short_conv)(&runs[piece / pieces], piece % pieces) };
        let task = QueuedTask { number: index, pieces: runs.len() * pieces, at_once: 1 };
        worker.take_from(task, |taken| taken.for_each(convolve));
    }

    /// Computes a gated delta rule.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn gated_delta(&self, index: usize, delta: &GatedDelta, worker: Worker<'_>) {
        let pieces = gated_delta_pieces(&delta.spec);
        let runs: Vec<_> = self
            .runs
            .iter()
            .map(|run| GatedDeltaRun {
                spec: delta.spec,
                qkv: self.rows(delta.qkv).skip(run.first),
                alpha: self.rows(delta.alpha).skip(run.first),
                beta: self.rows(delta.beta).skip(run.first),
                a: &delta.a,
                dt: &delta.dt,
                out: self.rows(delta.out).skip(run.first),
                tokens: run.len,
                state: self.run_state(run, delta.spec.state),
            })
            .collect();
        // SAFETY: by the caller; each piece is one thread's.
        let update = |piece: usize| unsafe { (self.kernels.gated_delta)(&runs[piece / pieces], piece % pieces) };
        let task = QueuedTask { number: index, pieces: runs.len() * pieces, at_once: 1 };
        worker.take_from(task, |taken| taken.for_each(update));
    }
}
