//! Runs recurrent ops: threads divide channels, or columns of the state, each with all tokens of a
//! run.

use super::context::StepContext;
use crate::backend::cpu::{
    kernels::{
        recurrent::{CONV_CHANNELS, GatedDeltaRun, ShortConvRun, gated_delta_pieces},
        state_scan::StateScanRun,
    },
    program::task::{GatedDelta, ShortConv, StateScan},
    threads::{pool::Worker, work_queue::QueuedTask},
};

impl StepContext<'_> {
    /// Computes a short convolution.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn short_conv(&self, index: usize, conv: &ShortConv, worker: Worker<'_>) {
        let ShortConv { spec, x, w, bias, out } = conv;
        let pieces = spec.channels.div_ceil(CONV_CHANNELS);
        let runs: Vec<_> = self
            .runs
            .iter()
            .map(|run| ShortConvRun {
                spec: *spec,
                x: self.rows(*x).skip(run.first),
                w,
                bias: bias.as_deref(),
                out: self.rows(*out).skip(run.first),
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

    /// Computes a state-space scan.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn state_scan(&self, index: usize, scan: &StateScan, worker: Worker<'_>) {
        let heads = scan.spec.heads;
        let runs: Vec<_> = self
            .runs
            .iter()
            .map(|run| StateScanRun {
                spec: scan.spec,
                x: self.rows(scan.x).skip(run.first),
                dt: self.rows(scan.dt).skip(run.first),
                a: &scan.a,
                bias: &scan.bias,
                d: &scan.d,
                out: self.rows(scan.out).skip(run.first),
                tokens: run.len,
                state: self.run_state(run, scan.spec.state),
            })
            .collect();
        // SAFETY: by the caller; each head is one thread's.
        let update = |piece: usize| unsafe { (self.kernels.state_scan)(&runs[piece / heads], piece % heads) };
        let task = QueuedTask { number: index, pieces: runs.len() * heads, at_once: 1 };
        worker.take_from(task, |taken| taken.for_each(update));
    }
}
