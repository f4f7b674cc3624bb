//! Units of few query rows: vectors lie along the head, and every score is a horizontal sum.
#![allow(clippy::needless_range_loop, reason = "rows are numbered, and their number is a constant to unroll by")]

use super::{super::math, CacheRow, Queries, Rows};
use crate::{graph::AttentionSpec, kv_cache::PAGE_POSITIONS, quant::Simd};

/// A unit's scratch, row by row of queries.
struct Unit {
    rows: usize,
    /// Elements of a head, filled up to whole vectors.
    width: usize,
    /// `[rows, width]`, already scaled.
    q: *mut f32,
    /// `[rows, width]`: the sum of values so far, for the running maximum.
    acc: *mut f32,
    /// `[rows, PAGE_POSITIONS]`.
    scores: *mut f32,
    /// `[rows]`: the largest score so far.
    largest: *mut f32,
    /// `[rows]`: the sum of the weights so far, for the running maximum.
    sum: *mut f32,
}

/// Floats of scratch that a unit of `rows` rows needs.
pub(super) fn scratch_len(rows: usize, spec: AttentionSpec) -> usize {
    rows * (2 * spec.head_dim.next_multiple_of(16) + PAGE_POSITIONS + 2)
}

/// Computes a unit.
///
/// # Safety
/// As [`super::attend`].
#[inline(always)]
pub(super) unsafe fn attend<S: Simd, R: CacheRow>(queries: &Queries<'_>, rows: Rows, scratch: *mut f32) {
    let Queries { spec, cache, start, .. } = queries;
    let width = spec.head_dim.next_multiple_of(16);
    let count = rows.len();
    // SAFETY: by the caller.
    unsafe {
        let acc = scratch.add(count * width);
        let scores = acc.add(count * width);
        let largest = scores.add(count * PAGE_POSITIONS);
        let unit = Unit { rows: count, width, q: scratch, acc, scores, largest, sum: largest.add(count) };
        load_queries(queries, &unit, rows);
        let end = start + rows.first + rows.count;
        for page in 0..end.div_ceil(PAGE_POSITIONS) {
            let page_start = page * PAGE_POSITIONS;
            let positions = PAGE_POSITIONS.min(end - page_start);
            score::<S, R>(&unit, cache.keys(page, rows.head), cache.row_bytes, positions);
            for row in 0..count {
                let visible = (start + rows.token(row) + 1).saturating_sub(page_start).min(positions);
                soften::<S>(&unit, row, visible);
            }
            gather::<S, R>(&unit, cache.values(page, rows.head), cache.row_bytes, positions);
        }
        for row in 0..count {
            let out = queries.out.add(rows.token(row) * queries.out_stride + rows.query_head(row) * spec.head_dim);
            let factor = 1.0 / *unit.sum.add(row);
            for i in 0..spec.head_dim {
                *out.add(i) = *unit.acc.add(row * width + i) * factor;
            }
        }
    }
}

/// Copies the unit's queries, times the scale, and clears what is gathered.
#[inline(always)]
unsafe fn load_queries(queries: &Queries<'_>, unit: &Unit, rows: Rows) {
    let dim = queries.spec.head_dim;
    // SAFETY: by the caller of `attend`.
    unsafe {
        unit.q.write_bytes(0, unit.rows * unit.width);
        unit.acc.write_bytes(0, unit.rows * unit.width);
        for row in 0..unit.rows {
            let from = queries.q.add(rows.token(row) * queries.q_stride + rows.query_head(row) * dim);
            for i in 0..dim {
                *unit.q.add(row * unit.width + i) = *from.add(i) * queries.spec.scale;
            }
            *unit.largest.add(row) = f32::MIN;
            *unit.sum.add(row) = 0.0;
        }
    }
}

/// The scores of all rows with the page's keys.
#[inline(always)]
unsafe fn score<S: Simd, R: CacheRow>(unit: &Unit, keys: *const u8, row_bytes: usize, positions: usize) {
    let mut row = 0;
    // SAFETY: by the caller of `attend`.
    unsafe {
        while row + 4 <= unit.rows {
            score_some::<S, R, 4>(unit, row, keys, row_bytes, positions);
            row += 4;
        }
        if row + 2 <= unit.rows {
            score_some::<S, R, 2>(unit, row, keys, row_bytes, positions);
            row += 2;
        }
        if row < unit.rows {
            score_some::<S, R, 1>(unit, row, keys, row_bytes, positions);
        }
    }
}

#[inline(always)]
unsafe fn score_some<S: Simd, R: CacheRow, const N: usize>(
    unit: &Unit,
    row: usize,
    keys: *const u8,
    row_bytes: usize,
    positions: usize,
) {
    // SAFETY: by the caller of `attend`.
    unsafe {
        for position in 0..positions {
            let key = keys.add(position * row_bytes);
            let mut acc = [S::splat(0.0); N];
            for i in (0..unit.width).step_by(S::WIDTH) {
                let k = R::load::<S>(key, i);
                for n in 0..N {
                    acc[n] = S::fma(S::load(unit.q.add((row + n) * unit.width + i)), k, acc[n]);
                }
            }
            for n in 0..N {
                *unit.scores.add((row + n) * PAGE_POSITIONS + position) = S::sum(acc[n]);
            }
        }
    }
}

/// Turns a row's first `visible` scores into weights, and the others into zeros.
#[inline(always)]
unsafe fn soften<S: Simd>(unit: &Unit, row: usize, visible: usize) {
    // SAFETY: by the caller of `attend`.
    unsafe {
        let scores = unit.scores.add(row * PAGE_POSITIONS);
        for i in visible..PAGE_POSITIONS {
            *scores.add(i) = f32::MIN;
        }
        let mut largest = S::splat(*unit.largest.add(row));
        for i in (0..PAGE_POSITIONS).step_by(S::WIDTH) {
            largest = S::max(largest, S::load(scores.add(i)));
        }
        let before = unit.largest.add(row).replace(S::max_lane(largest));
        let largest = S::splat(*unit.largest.add(row));
        let mut sum = S::splat(0.0);
        for i in (0..visible).step_by(S::WIDTH) {
            S::store(scores.add(i), math::exp::<S>(S::sub(S::load(scores.add(i)), largest)));
        }
        for i in visible..PAGE_POSITIONS {
            *scores.add(i) = 0.0;
        }
        for i in (0..PAGE_POSITIONS).step_by(S::WIDTH) {
            sum = S::add(sum, S::load(scores.add(i)));
        }
        let fade = math::exp::<S>(S::sub(S::splat(before), largest));
        let mut kept = [0.0; 16];
        S::store(kept.as_mut_ptr(), fade);
        *unit.sum.add(row) = *unit.sum.add(row) * kept[0] + S::sum(sum);
        if before != *unit.largest.add(row) {
            for i in (0..unit.width).step_by(S::WIDTH) {
                let acc = unit.acc.add(row * unit.width + i);
                S::store(acc, S::mul(S::load(acc), fade));
            }
        }
    }
}

/// Adds the page's values, weighted, to every row.
#[inline(always)]
unsafe fn gather<S: Simd, R: CacheRow>(unit: &Unit, values: *const u8, row_bytes: usize, positions: usize) {
    let mut row = 0;
    // SAFETY: by the caller of `attend`.
    unsafe {
        while row + 4 <= unit.rows {
            gather_some::<S, R, 4>(unit, row, values, row_bytes, positions);
            row += 4;
        }
        if row + 2 <= unit.rows {
            gather_some::<S, R, 2>(unit, row, values, row_bytes, positions);
            row += 2;
        }
        if row < unit.rows {
            gather_some::<S, R, 1>(unit, row, values, row_bytes, positions);
        }
    }
}

#[inline(always)]
unsafe fn gather_some<S: Simd, R: CacheRow, const N: usize>(
    unit: &Unit,
    row: usize,
    values: *const u8,
    row_bytes: usize,
    positions: usize,
) {
    // SAFETY: by the caller of `attend`.
    unsafe {
        for i in (0..unit.width).step_by(S::WIDTH) {
            let mut acc = [S::splat(0.0); N];
            for n in 0..N {
                acc[n] = S::load(unit.acc.add((row + n) * unit.width + i));
            }
            for position in 0..positions {
                let v = R::load::<S>(values.add(position * row_bytes), i);
                for n in 0..N {
                    let weight = *unit.scores.add((row + n) * PAGE_POSITIONS + position);
                    acc[n] = S::fma(S::splat(weight), v, acc[n]);
                }
            }
            for n in 0..N {
                S::store(unit.acc.add((row + n) * unit.width + i), acc[n]);
            }
        }
    }
}
