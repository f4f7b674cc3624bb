//! Units of many query rows: each row has a lane, so that nothing is summed across lanes.
//!
//! A page's keys, and then its values, are widened once for all rows. Scores `[positions, rows]` and results
//! `[head, rows]` are then plain matrix products of broadcast keys or values with vectors of rows.
#![allow(clippy::needless_range_loop, reason = "rows are numbered, and their number is a constant to unroll by")]

use super::{super::math, CacheRow, Queries, Rows};
use crate::{graph::AttentionSpec, kv_cache::PAGE_POSITIONS, quant::Simd};

/// Positions, or elements of a head, that are computed together.
const STRIP: usize = 4;

/// A unit's scratch. Rows are filled up to whole vectors, with queries of zeros.
struct Unit {
    rows: usize,
    /// Elements of a head, filled up to whole vectors.
    width: usize,
    /// `[width, rows]`, already scaled.
    q: *mut f32,
    /// `[width, rows]`: the sum of values so far, for the running maximum.
    acc: *mut f32,
    /// `[PAGE_POSITIONS, rows]`.
    scores: *mut f32,
    /// `[PAGE_POSITIONS, width]`: a page's keys or values.
    page: *mut f32,
    /// `[rows]`: how many positions of the sequence the row sees.
    visible: *mut f32,
    /// `[rows]`: the largest score so far.
    largest: *mut f32,
    /// `[rows]`: the sum of the weights so far, for the running maximum.
    sum: *mut f32,
    /// `[rows]`: what is left of the earlier pages, now that the maximum has grown.
    fade: *mut f32,
}

impl Unit {
    fn new(rows: usize, spec: AttentionSpec, scratch: *mut f32) -> Self {
        let rows = rows.next_multiple_of(16);
        let width = spec.head_dim.next_multiple_of(16);
        let acc = scratch.wrapping_add(rows * width);
        let scores = acc.wrapping_add(rows * width);
        let page = scores.wrapping_add(rows * PAGE_POSITIONS);
        let visible = page.wrapping_add(PAGE_POSITIONS * width);
        let largest = visible.wrapping_add(rows);
        Self {
            rows,
            width,
            q: scratch,
            acc,
            scores,
            page,
            visible,
            largest,
            sum: largest.wrapping_add(rows),
            fade: largest.wrapping_add(2 * rows),
        }
    }
}

/// Floats of scratch that a unit of `rows` rows needs.
pub(super) fn scratch_len(rows: usize, spec: AttentionSpec) -> usize {
    let rows = rows.next_multiple_of(16);
    let width = spec.head_dim.next_multiple_of(16);
    rows * (2 * width + PAGE_POSITIONS + 4) + PAGE_POSITIONS * width
}

/// Computes a unit.
///
/// # Safety
/// As [`super::attend`].
#[inline(always)]
pub(super) unsafe fn attend<S: Simd, R: CacheRow>(queries: &Queries<'_>, rows: Rows, scratch: *mut f32) {
    let Queries { spec, cache, start, .. } = queries;
    let unit = Unit::new(rows.len(), *spec, scratch);
    // SAFETY: by the caller.
    unsafe {
        load_queries(queries, &unit, rows);
        let end = start + rows.first + rows.count;
        for page in 0..end.div_ceil(PAGE_POSITIONS) {
            let page_start = page * PAGE_POSITIONS;
            let positions = PAGE_POSITIONS.min(end - page_start);
            widen::<S, R>(&unit, cache.keys(page, rows.head), cache.row_bytes, positions);
            score::<S>(&unit, positions);
            // Only from the unit's first token on is there anything that some row must not see.
            if page_start + positions > start + rows.first + 1 {
                mask::<S>(&unit, page_start, positions);
            }
            soften::<S>(&unit, positions);
            widen::<S, R>(&unit, cache.values(page, rows.head), cache.row_bytes, positions);
            gather::<S>(&unit, positions);
        }
        for row in 0..rows.len() {
            let out = queries.out.add(rows.token(row) * queries.out_stride + rows.query_head(row) * spec.head_dim);
            let factor = 1.0 / *unit.sum.add(row);
            for i in 0..spec.head_dim {
                *out.add(i) = *unit.acc.add(i * unit.rows + row) * factor;
            }
        }
    }
}

/// Copies the unit's queries, times the scale and turned, and clears what is gathered.
#[inline(always)]
unsafe fn load_queries(queries: &Queries<'_>, unit: &Unit, rows: Rows) {
    let dim = queries.spec.head_dim;
    // SAFETY: by the caller of `attend`.
    unsafe {
        unit.q.write_bytes(0, unit.rows * unit.width);
        unit.acc.write_bytes(0, unit.rows * unit.width);
        for row in 0..unit.rows {
            *unit.largest.add(row) = f32::MIN;
            *unit.sum.add(row) = 0.0;
            *unit.visible.add(row) = f32::MAX;
        }
        for row in 0..rows.len() {
            let from = queries.q.add(rows.token(row) * queries.q_stride + rows.query_head(row) * dim);
            for i in 0..dim {
                *unit.q.add(i * unit.rows + row) = *from.add(i) * queries.spec.scale;
            }
            *unit.visible.add(row) = (queries.start + rows.token(row) + 1) as f32;
        }
    }
}

/// Reads a page's rows of one head as floats; those past the last position, up to a whole strip, as zeros.
#[inline(always)]
unsafe fn widen<S: Simd, R: CacheRow>(unit: &Unit, from: *const u8, row_bytes: usize, positions: usize) {
    // SAFETY: by the caller of `attend`.
    unsafe {
        for position in 0..positions {
            for i in (0..unit.width).step_by(S::WIDTH) {
                S::store(unit.page.add(position * unit.width + i), R::load::<S>(from.add(position * row_bytes), i));
            }
        }
        let padding = positions.next_multiple_of(STRIP) - positions;
        unit.page.add(positions * unit.width).write_bytes(0, padding * unit.width);
    }
}

/// The scores of the page's positions with all rows.
#[inline(always)]
unsafe fn score<S: Simd>(unit: &Unit, positions: usize) {
    let Unit { rows, width, .. } = *unit;
    // SAFETY: by the caller of `attend`.
    unsafe {
        for position in (0..positions).step_by(STRIP) {
            let keys = unit.page.add(position * width);
            for row in (0..rows).step_by(2 * S::WIDTH) {
                let vectors = (rows - row).min(2 * S::WIDTH) / S::WIDTH;
                let from =
                    Product { rows, left: unit.q.add(row), left_step: rows, right: keys, right_steps: [1, width] };
                let to = unit.scores.add(position * rows + row);
                match vectors {
                    2 => from.add_to::<S, 2>(width, to, None),
                    _ => from.add_to::<S, 1>(width, to, None),
                }
            }
        }
    }
}

/// A product of vectors of rows with broadcast numbers.
struct Product {
    rows: usize,
    /// `[steps, rows]`
    left: *const f32,
    left_step: usize,
    /// `[steps, STRIP]`, in floats from one to the next.
    right: *const f32,
    right_steps: [usize; 2],
}

impl Product {
    /// `to[s][..] = fade * to[s][..] + sum over steps of left[step][..] * right[step][s]`, without the first term where
    /// there is no `fade`.
    #[inline(always)]
    unsafe fn add_to<S: Simd, const N: usize>(&self, steps: usize, to: *mut f32, fade: Option<*const f32>) {
        // SAFETY: by the caller of `attend`.
        unsafe {
            let mut acc = [[S::splat(0.0); N]; STRIP];
            if let Some(fade) = fade {
                for s in 0..STRIP {
                    for n in 0..N {
                        let old = S::load(to.add(s * self.rows + n * S::WIDTH));
                        acc[s][n] = S::mul(old, S::load(fade.add(n * S::WIDTH)));
                    }
                }
            }
            for step in 0..steps {
                let mut left = [S::splat(0.0); N];
                for n in 0..N {
                    left[n] = S::load(self.left.add(step * self.left_step + n * S::WIDTH));
                }
                for s in 0..STRIP {
                    let right = S::splat(*self.right.add(step * self.right_steps[0] + s * self.right_steps[1]));
                    for n in 0..N {
                        acc[s][n] = S::fma(left[n], right, acc[s][n]);
                    }
                }
            }
            for s in 0..STRIP {
                for n in 0..N {
                    S::store(to.add(s * self.rows + n * S::WIDTH), acc[s][n]);
                }
            }
        }
    }
}

/// Pushes the scores of positions that a row must not see below all others.
#[inline(always)]
unsafe fn mask<S: Simd>(unit: &Unit, page_start: usize, positions: usize) {
    // SAFETY: by the caller of `attend`.
    unsafe {
        for position in 0..positions {
            for row in (0..unit.rows).step_by(S::WIDTH) {
                let score = unit.scores.add(position * unit.rows + row);
                let seen = S::sub(S::load(unit.visible.add(row)), S::splat((page_start + position) as f32 + 0.5));
                let penalty = S::min(S::mul(seen, S::splat(1e30)), S::splat(0.0));
                S::store(score, S::add(S::load(score), penalty));
            }
        }
    }
}

/// Turns scores into weights.
#[inline(always)]
unsafe fn soften<S: Simd>(unit: &Unit, positions: usize) {
    // SAFETY: by the caller of `attend`.
    unsafe {
        for row in (0..unit.rows).step_by(S::WIDTH) {
            let before = S::load(unit.largest.add(row));
            let mut largest = before;
            for position in 0..positions {
                largest = S::max(largest, S::load(unit.scores.add(position * unit.rows + row)));
            }
            let fade = math::exp::<S>(S::sub(before, largest));
            let mut sum = S::mul(S::load(unit.sum.add(row)), fade);
            for position in 0..positions {
                let score = unit.scores.add(position * unit.rows + row);
                let weight = math::exp::<S>(S::sub(S::load(score), largest));
                S::store(score, weight);
                sum = S::add(sum, weight);
            }
            S::store(unit.sum.add(row), sum);
            S::store(unit.largest.add(row), largest);
            S::store(unit.fade.add(row), fade);
        }
    }
}

/// Adds the page's values, weighted, to every row.
#[inline(always)]
unsafe fn gather<S: Simd>(unit: &Unit, positions: usize) {
    let Unit { rows, width, .. } = *unit;
    // SAFETY: by the caller of `attend`.
    unsafe {
        for i in (0..width).step_by(STRIP) {
            for row in (0..rows).step_by(2 * S::WIDTH) {
                let vectors = (rows - row).min(2 * S::WIDTH) / S::WIDTH;
                let (left, right) = (unit.scores.add(row), unit.page.add(i));
                let from = Product { rows, left, left_step: rows, right, right_steps: [width, 1] };
                let (to, fade) = (unit.acc.add(i * rows + row), Some(unit.fade.add(row).cast_const()));
                match vectors {
                    2 => from.add_to::<S, 2>(positions, to, fade),
                    _ => from.add_to::<S, 1>(positions, to, fade),
                }
            }
        }
    }
}
