//! Computes attention over the paged cache.
//!
//! A *block* is the query rows of a few tokens with all the query heads that read one key-value
//! head, so a key is loaded once for all of them. The positions that a block sees are divided into
//! *splits*. Within a split, pages are visited in order with a running maximum and sum ([Dao et al.
//! 2022](https://arxiv.org/abs/2205.14135)): there are never scores for more than a page. The
//! partial results of the splits are then merged in order. Short runs have few blocks, so threads
//! do their splits in parallel. That changes no result, and neither does the number of tokens in a
//! run.

mod cache_product;
mod element;
mod head_page;
mod partial;
mod queries;
mod query_block;
mod splits;

use std::sync::atomic::Ordering::*;

use self::{
    element::{CacheElement, CacheF16, CacheF32, CacheFormat, CacheQ8},
    partial::Partial,
    queries::QueryRows,
    query_block::QueryBlock,
    splits::{block_tokens, items_per_block, partial_len},
};
pub(crate) use self::{
    queries::{LayerPages, Queries},
    splits::{partials_bound, partials_len, work_items},
};
use crate::{
    graph::AttentionSpec,
    kv_cache::{CacheType, PAGE_POSITIONS},
    simd::Simd,
};

/// Calls a function that is generic over an instruction set and the format of the cache.
macro_rules! with_element {
    ($cache_type:expr, $function:ident::<$simd:ty>($($arg:expr),*)) => {
        match $cache_type {
            CacheType::F32 => $function::<$simd, CacheF32>($($arg),*),
            CacheType::F16 => $function::<$simd, CacheF16>($($arg),*),
            CacheType::Q8_0 => $function::<$simd, CacheQ8>($($arg),*),
        }
    };
}

/// Returns the floats of scratch that a work item needs.
pub(crate) fn scratch_len(spec: AttentionSpec) -> usize {
    let tokens = block_tokens(spec);
    query_block::scratch_len(tokens * spec.heads / spec.kv_heads, spec) + 2 * partial_len(spec, tokens)
}

/// Writes the key and value of one token and head to their position in the cache.
///
/// # Safety
/// `k` and, if there are values, `v` are readable for `head_dim` floats, the cache has the
/// position's page, no other thread uses that position of the head, and the machine has `S`.
#[inline(always)]
pub(crate) unsafe fn append<S: Simd>(to: &LayerPages<'_>, head: usize, position: usize, k: *const f32, v: *const f32) {
    // SAFETY: by the caller.
    unsafe { with_element!(to.cache_type, append_as::<S>(to, head, position, k, v)) }
}

/// Computes [`append`] for a cache of format `E`.
///
/// # Safety
/// As [`append`].
#[inline(always)]
unsafe fn append_as<S: Simd, E: CacheFormat>(
    to: &LayerPages<'_>,
    head: usize,
    position: usize,
    k: *const f32,
    v: *const f32,
) {
    let (page, position) = (position / PAGE_POSITIONS, position % PAGE_POSITIONS);
    // SAFETY: by the caller.
    unsafe {
        to.keys(page, head).write_key::<S, E>(position, k);
        if !to.keys_only {
            to.values(page, head).write_value::<S, E>(position, v);
        }
    }
}

/// Computes one work item of a run.
///
/// # Safety
/// - `item` is below [`work_items`], and each item is computed once.
/// - `scratch` is writable for [`scratch_len`] floats, which no other thread uses.
/// - `queries` has the shapes that it documents. No other thread uses the rows of `out`, or the
///   partials,
///   but other items of the same run.
/// - The cache has a page for each position that the run's tokens see, and no thread writes these.
/// - The machine has `S`.
#[inline(always)]
pub(crate) unsafe fn attend<S: Simd>(queries: &Queries<'_>, item: usize, scratch: *mut f32) {
    // SAFETY: by the caller.
    unsafe { with_element!(queries.cache.cache_type, attend_as::<S>(queries, item, scratch)) }
}

/// Computes [`attend`] for a cache of format `E`.
///
/// # Safety
/// As [`attend`].
#[inline(always)]
unsafe fn attend_as<S: Simd, E: CacheElement>(queries: &Queries<'_>, item: usize, scratch: *mut f32) {
    let Queries { spec, start, tokens, partials, done, .. } = *queries;
    let items = items_per_block(spec, start, tokens);
    let (index, item) = (item / items, item % items);
    let first = index / spec.kv_heads * block_tokens(spec);
    let tokens = block_tokens(spec).min(tokens - first);
    let rows = QueryRows { first, tokens, kv_head: index % spec.kv_heads, group: spec.heads / spec.kv_heads };
    let len = partial_len(spec, tokens);
    // SAFETY: by the caller.
    unsafe {
        let block = QueryBlock::new(queries, rows, scratch.add(2 * len));
        let all = block.splits();
        // A lone item keeps two partials in its scratch: of all splits, and of the current split.
        // One of several items leaves its partial to the thread that merges them.
        let (splits, partials) = match items {
            1 => (all.clone(), scratch),
            _ => (all.start + item..all.start + item + 1, partials.add(index * items * len)),
        };
        let partial = |split: usize| {
            let number = if items == 1 { (split - all.start).min(1) } else { split - all.start };
            Partial { rows: rows.len(), width: spec.head_dim.next_multiple_of(16), start: partials.add(number * len) }
        };
        for split in splits {
            block.attend::<S, E>(split, &partial(split));
            if items == 1 && split > all.start {
                partial(all.start).merge::<S>(&partial(split));
            }
        }
        if items > 1 {
            // The last thread to finish sees the partials of all.
            if done[index].fetch_add(1, AcqRel) + 1 < items {
                return;
            }
            done[index].store(0, Relaxed);
            all.clone().skip(1).for_each(|split| partial(all.start).merge::<S>(&partial(split)));
        }
        block.write::<S>(queries, &partial(all.start));
    }
}
