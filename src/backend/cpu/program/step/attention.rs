//! Runs attention: threads divide the tokens that are appended, and the work items of all runs.

use super::context::StepContext;
use crate::{
    backend::cpu::{
        kernels::attention::{self, Queries},
        program::buffer::Buffer,
        threads::{pool::Worker, work_queue::QueuedTask},
    },
    graph::AttentionSpec,
};

impl StepContext<'_> {
    /// Writes keys and values to the cache.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn append(&self, spec: &AttentionSpec, k: Buffer, v: Buffer, worker: Worker<'_>) {
        for index in worker.share(self.step.tokens.len() * spec.kv_heads) {
            let (token, head) = (index / spec.kv_heads, index % spec.kv_heads);
            let layer = self.layer_pages(self.run_of(token), spec.layer);
            // SAFETY: by the caller; the run's pages hold its positions, and each belongs to one
            // token.
            unsafe {
                let [k, v] = [k, v].map(|rows| self.row(rows, token).add(head * spec.head_dim).cast_const());
                (self.kernels.append)(&layer, head, self.position(token), k, v);
            }
        }
    }

    /// Computes attention over the cache.
    ///
    /// # Safety
    /// As [`super::run_tasks`].
    pub unsafe fn attend(
        &self,
        index: usize,
        spec: &AttentionSpec,
        [q, out]: [Buffer; 2],
        sinks: Option<&[f32]>,
        worker: Worker<'_>,
    ) {
        let scratch = self.scratch(worker);
        // The first work item and the partial results of each run.
        let (mut places, mut items, mut partials) = (Vec::with_capacity(self.runs.len()), 0, self.partials);
        for run in &self.runs {
            places.push((items, partials));
            items += attention::work_items(*spec, run.start, run.len);
            partials = partials.wrapping_add(attention::partials_len(*spec, run.start, run.len));
        }
        let attend = |item| {
            let number = places.partition_point(|(first, _)| *first <= item) - 1;
            let (run, (first, partials)) = (&self.runs[number], places[number]);
            let queries = Queries {
                spec: *spec,
                cache: self.layer_pages(run, spec.layer),
                q: self.rows(q).skip(run.first),
                sinks,
                out: self.rows(out).skip(run.first),
                start: run.start,
                tokens: run.len,
                spans: run.spans,
                partials,
                done: &self.splits_done[number * spec.kv_heads..][..spec.kv_heads],
            };
            // SAFETY: by the caller; each item is one thread's, which has its own scratch.
            unsafe { (self.kernels.attend)(&queries, item - first, scratch) };
        };
        let task = QueuedTask { number: index, pieces: items, at_once: 1 };
        worker.take_from(task, |items| items.for_each(attend));
    }
}
