//! A unit's query rows over one section of the cache, page by page.

use std::ops::Range;

use super::{
    chunk::Chunk,
    element::{BLOCK, Element, Wide},
    partial::Partial,
    product::Product,
    queries::{LayerPages, Queries, Rows},
    split::SECTION,
};
use crate::{
    backend::cpu::kernels::math,
    graph::{AttentionSpec, Scores},
    kv_cache::PAGE_POSITIONS,
    simd::Simd,
};

/// With more rows than this, keys and values with scales are widened once for all rather than for every few.
const FEW_ROWS: usize = 16;

/// A unit at work.
pub(super) struct Unit<'a> {
    cache: LayerPages<'a>,
    rows: Rows,
    head_dim: usize,
    /// Elements of a head, filled up to whole vectors.
    width: usize,
    /// How many positions there are up to the first token's own; each token that follows has one more.
    visible: usize,
    /// Of these a token sees so many of the last.
    window: usize,
    softcap: Option<f32>,
    /// `[rows, width]`, already scaled.
    q: *mut f32,
    /// `[rows, PAGE_POSITIONS]`: scores, then weights.
    weights: *mut f32,
    /// `[rows, PAGE_POSITIONS]`: weights times the scales of a block of values.
    scaled: *mut f32,
    /// A page's keys or values as floats, with their scales.
    wide: *mut u8,
}

/// Floats of scratch that a unit of `rows` rows needs.
pub(super) fn scratch_len(rows: usize, spec: AttentionSpec) -> usize {
    let width = spec.head_dim.next_multiple_of(16);
    rows * (width + 2 * PAGE_POSITIONS) + PAGE_POSITIONS * (width + width.div_ceil(BLOCK))
}

impl<'a> Unit<'a> {
    /// Copies the unit's queries, times the scale.
    ///
    /// # Safety
    /// As [`super::attend`], for all functions here.
    #[inline(always)]
    pub unsafe fn new(queries: &Queries<'a>, rows: Rows, scratch: *mut f32) -> Self {
        let Queries { spec, cache, start, .. } = *queries;
        let width = spec.head_dim.next_multiple_of(16);
        let weights = scratch.wrapping_add(rows.len() * width);
        let scaled = weights.wrapping_add(rows.len() * PAGE_POSITIONS);
        for row in 0..rows.len() {
            let at = rows.token(row) * queries.q_stride + rows.query_head(row) * spec.head_dim;
            for i in 0..spec.head_dim {
                // SAFETY: by the caller.
                unsafe { *scratch.add(row * width + i) = *queries.q.add(at + i) * spec.scores.scale };
            }
        }
        let wide = scaled.wrapping_add(rows.len() * PAGE_POSITIONS).cast();
        let visible = start + rows.first + 1;
        let Scores { softcap, window, .. } = spec.scores;
        let (head_dim, window) = (spec.head_dim, window.unwrap_or(usize::MAX));
        Self { cache, rows, head_dim, width, visible, window, softcap, q: scratch, weights, scaled, wide }
    }

    /// How many positions the last token sees.
    fn end(&self) -> usize {
        self.visible + self.rows.count - 1
    }

    /// The sections that hold what the tokens see.
    pub fn sections(&self) -> Range<usize> {
        self.visible.saturating_sub(self.window) / SECTION..self.end().div_ceil(SECTION)
    }

    /// The positions that a row sees.
    fn seen(&self, row: usize) -> Range<usize> {
        let end = self.visible + row / self.rows.group;
        end.saturating_sub(self.window)..end
    }

    /// Computes what a section comes to.
    #[inline(always)]
    pub unsafe fn attend<S: Simd, E: Element>(&self, section: usize, to: &Partial) {
        let begin = (self.seen(0).start / PAGE_POSITIONS * PAGE_POSITIONS).max(section * SECTION);
        let end = self.end().min((section + 1) * SECTION);
        let widens = E::SCALED && self.rows.len() > FEW_ROWS;
        // SAFETY: by the caller.
        unsafe {
            to.clear();
            for start in (begin..end).step_by(PAGE_POSITIONS) {
                let (page, positions) = (start / PAGE_POSITIONS, PAGE_POSITIONS.min(end - start));
                let values = self.cache.values(page, self.rows.head);
                // Whoever ends a section goes on with the next.
                let next = (start + PAGE_POSITIONS < self.end()).then(|| self.cache.keys(page + 1, self.rows.head));
                let keys = self.cache.keys(page, self.rows.head);
                if widens {
                    self.score::<S, Wide<E>>(keys.widen::<S, E>(self.wide, Some(values)), positions, None);
                } else {
                    self.score::<S, E>(keys, positions, Some(values));
                }
                for row in 0..self.rows.len() {
                    let seen = self.seen(row);
                    let within = |position: usize| position.saturating_sub(start).min(positions);
                    self.soften::<S>(row, within(seen.start)..within(seen.end), to);
                }
                if widens {
                    self.gather::<S, Wide<E>>(values.widen::<S, E>(self.wide, next), positions, None, to);
                } else {
                    self.gather::<S, E>(values, positions, next, to);
                }
            }
        }
    }

    /// The scores of all rows with the page's keys. Those past the last position are read, and mean nothing.
    #[inline(always)]
    unsafe fn score<S: Simd, E: Element>(&self, keys: Chunk, positions: usize, next: Option<Chunk>) {
        let block = if E::SCALED { BLOCK } else { self.head_dim };
        // SAFETY: by the caller of `attend`.
        unsafe {
            self.weights.write_bytes(0, self.rows.len() * PAGE_POSITIONS);
            for first in (0..self.head_dim).step_by(block) {
                let product = Product {
                    matrix: keys.keys::<E>(first),
                    steps: block,
                    columns: positions.next_multiple_of(16),
                    scales: E::SCALED.then(|| keys.scales::<E>(first).cast_const()),
                    left: self.q.add(first),
                    left_stride: self.width,
                    out: self.weights,
                    out_stride: PAGE_POSITIONS,
                };
                product.add::<S, E>(self.rows.len(), next.map(|next| next.prefetch::<S, E>(first)));
            }
        }
    }

    /// Turns a row's scores that are `seen` into weights, and the others into zeros.
    #[inline(always)]
    unsafe fn soften<S: Simd>(&self, row: usize, seen: Range<usize>, to: &Partial) {
        // SAFETY: by the caller of `attend`.
        unsafe {
            let scores = self.weights.add(row * PAGE_POSITIONS);
            if let Some(cap) = self.softcap {
                math::with_one::<S, math::SoftCap>(scores, cap, scores, PAGE_POSITIONS);
            }
            let unseen = || (0..seen.start).chain(seen.end..PAGE_POSITIONS);
            for i in unseen() {
                *scores.add(i) = f32::MIN;
            }
            let mut largest = S::splat(*to.largest(row));
            for i in (0..PAGE_POSITIONS).step_by(S::WIDTH) {
                largest = S::max(largest, S::load(scores.add(i)));
            }
            to.raise::<S>(row, S::max_lane(largest));
            let largest = S::splat(*to.largest(row));
            for i in (0..PAGE_POSITIONS).step_by(S::WIDTH) {
                S::store(scores.add(i), math::exp::<S>(S::sub(S::load(scores.add(i)), largest)));
            }
            for i in unseen() {
                *scores.add(i) = 0.0;
            }
            let mut sum = S::load(to.sums(row));
            for i in (0..PAGE_POSITIONS).step_by(S::WIDTH) {
                sum = S::add(sum, S::load(scores.add(i)));
            }
            S::store(to.sums(row), sum);
        }
    }

    /// Adds the page's values, weighted, to every row.
    #[inline(always)]
    unsafe fn gather<S: Simd, E: Element>(&self, values: Chunk, positions: usize, next: Option<Chunk>, to: &Partial) {
        let block = if E::SCALED { BLOCK } else { self.width };
        // SAFETY: by the caller of `attend`.
        unsafe {
            for first in (0..self.width).step_by(block) {
                if E::SCALED {
                    self.scale_weights::<S>(values.scales::<E>(first));
                }
                let product = Product {
                    matrix: values.values::<E>(first),
                    steps: positions,
                    columns: block,
                    scales: None,
                    left: if E::SCALED { self.scaled } else { self.weights },
                    left_stride: PAGE_POSITIONS,
                    out: to.values(0).add(first),
                    out_stride: self.width,
                };
                product.add::<S, E>(self.rows.len(), next.map(|next| next.prefetch::<S, E>(first)));
            }
        }
    }

    /// The weights times the scales that their values have in one block.
    #[inline(always)]
    unsafe fn scale_weights<S: Simd>(&self, scales: *const u16) {
        for i in (0..PAGE_POSITIONS).step_by(S::WIDTH) {
            // SAFETY: by the caller of `attend`.
            unsafe {
                let scales = S::load_f16(scales.add(i));
                for row in 0..self.rows.len() {
                    let at = row * PAGE_POSITIONS + i;
                    S::store(self.scaled.add(at), S::mul(S::load(self.weights.add(at)), scales));
                }
            }
        }
    }

    /// Writes the results of all rows.
    #[inline(always)]
    pub unsafe fn write<S: Simd>(&self, queries: &Queries<'_>, from: &Partial) {
        for row in 0..self.rows.len() {
            let at = self.rows.token(row) * queries.out_stride + self.rows.query_head(row) * self.head_dim;
            // SAFETY: by the caller.
            unsafe {
                let factor = 1.0 / from.sum::<S>(row);
                for i in 0..self.head_dim {
                    *queries.out.add(at + i) = *from.values(row).add(i) * factor;
                }
            }
        }
    }
}
