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
mod section;

use std::sync::atomic::{AtomicUsize, Ordering::*};

use self::{
    chunk::Chunk,
    element::{Element, F16, F32, Format, Q80},
    partial::Partial,
    section::Unit,
};
use crate::{
    graph::AttentionSpec,
    kv_cache::{CacheType, PAGE_POSITIONS},
    simd::Simd,
};

/// Query rows in a unit, at most, unless one token has more.
const UNIT_ROWS: usize = 64;
/// Positions of a section: whole pages.
const SECTION: usize = 8 * PAGE_POSITIONS;

/// One layer's keys and values of one sequence.
#[derive(Clone, Copy)]
pub(crate) struct LayerPages<'a> {
    /// The format of both.
    pub cache_type: CacheType,
    /// The first byte of each page; null where it was given back, as nobody sees it.
    pub pages: &'a [*mut u8],
    /// Where the layer begins in a page.
    pub offset: usize,
    /// Bytes of one head's key or value.
    pub row_bytes: usize,
    /// Key-value heads.
    pub kv_heads: usize,
    pub head_dim: usize,
}

impl LayerPages<'_> {
    /// The keys of `head` in page `page`.
    fn keys(&self, page: usize, head: usize) -> Chunk {
        let start = self.pages[page].wrapping_add(self.offset + head * PAGE_POSITIONS * self.row_bytes);
        Chunk { start, head_dim: self.head_dim }
    }

    /// The values of `head` in page `page`.
    fn values(&self, page: usize, head: usize) -> Chunk {
        self.keys(page, self.kv_heads + head)
    }
}

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

/// The queries of one run in one layer, and where the results go.
#[derive(Clone, Copy)]
pub(crate) struct Queries<'a> {
    pub spec: AttentionSpec,
    pub cache: LayerPages<'a>,
    /// The run's first query row, and elements from one row to the next.
    pub q: *const f32,
    pub q_stride: usize,
    pub out: *mut f32,
    pub out_stride: usize,
    /// The position of the first token, and the number of tokens.
    pub start: usize,
    pub tokens: usize,
    /// Room for [`partials_len`] floats.
    pub partials: *mut f32,
    /// For each key-value head, how many sections have been done; 0 before and after.
    pub done: &'a [AtomicUsize],
}

/// Tokens in a unit.
fn unit_tokens(spec: AttentionSpec) -> usize {
    (UNIT_ROWS * spec.kv_heads / spec.heads).max(1)
}

/// The first section of which the token at `position` sees something.
fn first_section(spec: AttentionSpec, position: usize) -> usize {
    spec.scores.window.map_or(0, |window| (position + 1).saturating_sub(window) / SECTION)
}

/// How many parts each unit of a run is divided into: its sections where the run is a single unit for each head.
fn parts_of_unit(spec: AttentionSpec, start: usize, tokens: usize) -> usize {
    match tokens <= unit_tokens(spec) {
        true => (start + tokens).div_ceil(SECTION) - first_section(spec, start),
        false => 1,
    }
}

/// How many parts the work of a run divides into, for any threads to do in any order.
pub(crate) fn parts(spec: AttentionSpec, start: usize, tokens: usize) -> usize {
    tokens.div_ceil(unit_tokens(spec)) * spec.kv_heads * parts_of_unit(spec, start, tokens)
}

/// Floats that keep the results of a run's sections until they are joined.
pub(crate) fn partials_len(spec: AttentionSpec, start: usize, tokens: usize) -> usize {
    match parts_of_unit(spec, start, tokens) {
        1 => 0,
        parts => parts * spec.kv_heads * partial_len(spec, tokens),
    }
}

/// The most that [`partials_len`] of all runs of a step can be that has up to `tokens` tokens, and whose runs end at up
/// to `positions` positions together.
pub(crate) fn partials_bound(spec: AttentionSpec, tokens: usize, positions: usize) -> usize {
    // A run has up to one part more than there are whole sections, and no more floats a part than its tokens would
    // have one by one.
    let sections = positions / SECTION;
    let parts_of_tokens = sections.saturating_mul(tokens.min(unit_tokens(spec))).saturating_add(tokens);
    parts_of_tokens.saturating_mul(spec.kv_heads * partial_len(spec, 1))
}

/// Floats of a section's result for `tokens` tokens.
fn partial_len(spec: AttentionSpec, tokens: usize) -> usize {
    Partial::len(tokens * spec.heads / spec.kv_heads, spec.head_dim.next_multiple_of(16))
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

/// A unit's query rows: those of `count` tokens from `first` on, in the heads that read key-value head `head`.
#[derive(Clone, Copy)]
struct Rows {
    first: usize,
    count: usize,
    head: usize,
    group: usize,
}

impl Rows {
    fn len(self) -> usize {
        self.count * self.group
    }

    /// The token of a row, within the run.
    fn token(self, row: usize) -> usize {
        self.first + row / self.group
    }

    /// The query head of a row.
    fn query_head(self, row: usize) -> usize {
        self.head * self.group + row % self.group
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_for_partial_results_is_bounded() {
        // Runs `(start, tokens)`.
        let steps: [&[(usize, usize)]; 7] = [
            &[(0, 1)],
            &[(SECTION - 1, 1)],
            &[(SECTION, 1)],
            &[(40_000, 16)],
            &[(10_000, 32), (20_000, 8), (0, 100)],
            &[(SECTION, 3), (SECTION, 5), (3 * SECTION - 1, 7), (700, 1)],
            &[(10_000, 1000)],
        ];
        for (heads, kv_heads, head_dim) in [(16, 8, 128), (32, 8, 64), (3, 1, 20), (1, 1, 8), (71, 1, 256)] {
            let spec = AttentionSpec { layer: 0, heads, kv_heads, head_dim, scores: 1.0.into() };
            for runs in steps {
                let len: usize = runs.iter().map(|&(start, tokens)| partials_len(spec, start, tokens)).sum();
                let tokens = runs.iter().map(|(_, tokens)| tokens).sum();
                let positions = runs.iter().map(|(start, tokens)| start + tokens).sum();
                let bound = partials_bound(spec, tokens, positions);
                assert!(len <= bound, "{heads} heads, {runs:?}: {len} floats of {bound}");
            }
            assert_eq!(partials_len(spec, 0, SECTION), 0);
            assert!(partials_len(spec, SECTION, 1) >= 2 * heads * (head_dim + 2));
        }
    }
}
