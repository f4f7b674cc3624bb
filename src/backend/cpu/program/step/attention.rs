//! How a thread does its share of attention.

use super::context::Walk;
use crate::{
    backend::cpu::{
        kernels::attention::{self, LayerPages, Queries},
        program::buffer::Buffer,
        threads::pool::Worker,
    },
    graph::AttentionSpec,
    kv_cache::{CacheLayout, LayerPlace},
};

impl Walk<'_> {
    pub unsafe fn append(&self, spec: &AttentionSpec, k: Buffer, v: Buffer, worker: Worker<'_>) {
        for index in worker.share(self.step.tokens.len() * spec.kv_heads) {
            let (token, head) = (index / spec.kv_heads, index % spec.kv_heads);
            let run = &self.runs[self.run_of[token]];
            let layer = layer_pages(self.cache, spec.layer, &run.pages);
            // SAFETY: the run's pages hold its positions, each of which is one token's.
            unsafe {
                let rows = [k, v].map(|rows| self.row(rows, token).add(head * spec.head_dim).cast_const());
                (self.kernels.append)(&layer, head, self.position(token), rows);
            }
        }
    }

    /// Parts are divided among the threads, those of a run one after the other.
    pub unsafe fn attend(&self, index: usize, spec: &AttentionSpec, q: Buffer, out: Buffer, worker: Worker<'_>) {
        let scratch = self.scratch[worker.number].as_ptr().cast();
        // What all runs before each of them come to.
        let (mut places, mut parts, mut partials) = (Vec::with_capacity(self.runs.len()), 0, self.partials);
        for run in &self.runs {
            places.push((parts, partials));
            parts += attention::parts(*spec, run.start, run.len);
            partials = partials.wrapping_add(attention::partials_len(*spec, run.start, run.len));
        }
        let each = |part| {
            let number = places.partition_point(|(first, _)| *first <= part) - 1;
            let (run, (first, partials)) = (&self.runs[number], places[number]);
            let queries = Queries {
                spec: *spec,
                cache: layer_pages(self.cache, spec.layer, &run.pages),
                q: self.row(q, run.first),
                q_stride: self.slots[q.slot].stride,
                out: self.row(out, run.first),
                out_stride: self.slots[out.slot].stride,
                start: run.start,
                tokens: run.len,
                partials,
                done: &self.done[number * spec.kv_heads..][..spec.kv_heads],
            };
            // SAFETY: each part is one thread's, with a scratch of its own.
            unsafe { (self.kernels.attend)(&queries, part - first, scratch) };
        };
        worker.each_part(index, parts, 1, |parts| parts.for_each(each));
    }
}

/// One layer's place in the pages of a run, those of each group.
fn layer_pages<'a>(cache: &CacheLayout, layer: usize, pages: &'a [Vec<*mut u8>]) -> LayerPages<'a> {
    let LayerPlace { kv_heads, head_dim, group, offset, row_bytes } = cache.layers[layer];
    LayerPages { cache_type: cache.cache_type, pages: &pages[group], offset, row_bytes, kv_heads, head_dim }
}
