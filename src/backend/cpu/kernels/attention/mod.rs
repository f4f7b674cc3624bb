//! Attention over the paged cache.
//!
//! A unit of work is a few tokens of one run and one key-value head with all the query heads that read it, so a key
//! is loaded once for all of them. The positions that it sees come in sections. Within one, pages are visited in order
//! with a running maximum and sum ([Dao et al. 2022](https://arxiv.org/abs/2205.14135)): scores never exist for more
//! than a page. The sections' results are then joined in order. Units of short runs are so few that threads do their
//! sections beside each other; that changes no result, nor does the number of tokens in a run.

mod chunk;
mod element;
mod partial;
mod product;
mod queries;
mod section;
mod split;

use std::sync::atomic::Ordering::*;

use self::{
    element::{Element, F16, F32, Format, Q80},
    partial::Partial,
    queries::Rows,
    section::Unit,
    split::{partial_len, parts_of_unit, unit_tokens},
};
pub(crate) use self::{
    queries::{LayerPages, Queries},
    split::{partials_bound, partials_len, parts},
};
use crate::{
    graph::AttentionSpec,
    kv_cache::{CacheType, PAGE_POSITIONS},
    simd::Simd,
};

/// Calls a function that is generic over an instruction set and the cache's elements.
macro_rules! with_element {
    ($cache_type:expr, $function:ident::<$simd:ty>($($arg:expr),*)) => {
        match $cache_type {
            CacheType::F32 => $function::<$simd, F32>($($arg),*),
            CacheType::F16 => $function::<$simd, F16>($($arg),*),
            CacheType::Q8_0 => $function::<$simd, Q80>($($arg),*),
        }
    };
}

/// Writes one head's key and value of one token, at `position`, into the cache.
///
/// # Safety
/// Both have `head_dim` elements, nobody else uses that position of the head, and the machine has `S`.
#[inline(always)]
pub(crate) unsafe fn append<S: Simd>(to: &LayerPages<'_>, head: usize, position: usize, [k, v]: [*const f32; 2]) {
    // SAFETY: by the caller.
    unsafe { with_element!(to.cache_type, append_to::<S>(to, head, position, [k, v])) }
}

#[inline(always)]
unsafe fn append_to<S: Simd, E: Format>(to: &LayerPages<'_>, head: usize, position: usize, [k, v]: [*const f32; 2]) {
    let (page, position) = (position / PAGE_POSITIONS, position % PAGE_POSITIONS);
    // SAFETY: by the caller.
    unsafe {
        to.keys(page, head).write_key::<S, E>(position, k);
        to.values(page, head).write_value::<S, E>(position, v);
    }
}

/// Floats of scratch that a part of `spec` needs.
pub(crate) fn scratch_len(spec: AttentionSpec) -> usize {
    let tokens = unit_tokens(spec);
    section::scratch_len(tokens * spec.heads / spec.kv_heads, spec) + 2 * partial_len(spec, tokens)
}

/// Computes one part.
///
/// # Safety
/// `part` is below [`parts`], `scratch` has [`scratch_len`] floats and is this thread's alone; each part is
/// done once, and nobody else uses the results' rows and heads meanwhile; the cache holds every position up to the last
/// token's; the machine has `S`.
#[inline(always)]
pub(crate) unsafe fn attend<S: Simd>(queries: &Queries<'_>, part: usize, scratch: *mut f32) {
    // SAFETY: by the caller.
    unsafe { with_element!(queries.cache.cache_type, attend_to::<S>(queries, part, scratch)) }
}

#[inline(always)]
unsafe fn attend_to<S: Simd, E: Element>(queries: &Queries<'_>, part: usize, scratch: *mut f32) {
    let Queries { spec, start, tokens, partials, done, .. } = *queries;
    let parts = parts_of_unit(spec, start, tokens);
    let (index, part) = (part / parts, part % parts);
    let first = index / spec.kv_heads * unit_tokens(spec);
    let count = unit_tokens(spec).min(tokens - first);
    let rows = Rows { first, count, head: index % spec.kv_heads, group: spec.heads / spec.kv_heads };
    let len = partial_len(spec, count);
    // SAFETY: by the caller.
    unsafe {
        let unit = Unit::new(queries, rows, scratch.add(2 * len));
        // A part of many leaves its result to whoever joins them. Otherwise there are the total and the section at hand.
        let all = unit.sections();
        let (sections, results) = match parts {
            1 => (all.clone(), scratch),
            _ => (all.start + part..all.start + part + 1, partials.add(index * parts * len)),
        };
        let result = |section: usize| {
            let at = if parts == 1 { (section - all.start).min(1) } else { section - all.start };
            Partial { rows: rows.len(), width: spec.head_dim.next_multiple_of(16), start: results.add(at * len) }
        };
        for section in sections {
            unit.attend::<S, E>(section, &result(section));
            if parts == 1 && section > all.start {
                result(all.start).join::<S>(&result(section));
            }
        }
        if parts > 1 {
            // Who comes last sees what all others have written.
            if done[index].fetch_add(1, AcqRel) + 1 < parts {
                return;
            }
            done[index].store(0, Relaxed);
            all.clone().skip(1).for_each(|section| result(all.start).join::<S>(&result(section)));
        }
        unit.write::<S>(queries, &result(all.start));
    }
}
