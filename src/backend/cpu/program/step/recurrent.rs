//! How a thread does its share of ops that carry a state.

use super::context::Walk;
use crate::{
    backend::cpu::{
        kernels::recurrent::{self, CONV_CHANNELS, Convolution, Delta},
        program::{buffer::Buffer, task::GatedDelta},
        threads::pool::Worker,
    },
    graph::ConvSpec,
};

impl Walk<'_> {
    /// Channels are divided among the threads, each with all tokens of a run.
    pub unsafe fn short_conv(
        &self,
        index: usize,
        spec: &ConvSpec,
        x: Buffer,
        w: &[f32],
        out: Buffer,
        worker: Worker<'_>,
    ) {
        let parts = spec.channels.div_ceil(CONV_CHANNELS);
        let runs: Vec<_> = self
            .runs
            .iter()
            .map(|run| Convolution {
                spec: *spec,
                x: self.rows_from(x, run.first),
                w,
                out: self.rows_from(out, run.first),
                tokens: run.len,
                state: self.state(run, spec.state),
            })
            .collect();
        // SAFETY: each part is one thread's.
        let each = |part: usize| unsafe { (self.kernels.short_conv)(&runs[part / parts], part % parts) };
        worker.each_part(index, runs.len() * parts, 1, |range| range.for_each(each));
    }

    /// Columns of heads are divided among the threads, each with all tokens of a run.
    pub unsafe fn gated_delta(&self, index: usize, delta: &GatedDelta, worker: Worker<'_>) {
        let parts = recurrent::delta_parts(&delta.spec);
        let runs: Vec<_> = self
            .runs
            .iter()
            .map(|run| Delta {
                spec: delta.spec,
                qkv: self.rows_from(delta.qkv, run.first),
                alpha: self.rows_from(delta.alpha, run.first),
                beta: self.rows_from(delta.beta, run.first),
                a: &delta.a,
                dt: &delta.dt,
                out: self.rows_from(delta.out, run.first),
                tokens: run.len,
                state: self.state(run, delta.spec.state),
            })
            .collect();
        // SAFETY: each part is one thread's.
        let each = |part: usize| unsafe { (self.kernels.gated_delta)(&runs[part / parts], part % parts) };
        worker.each_part(index, runs.len() * parts, 1, |range| range.for_each(each));
    }
}
