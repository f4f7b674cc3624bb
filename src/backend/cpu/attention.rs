//! Attention over the paged cache.
//!
//! A unit of work is a few tokens of one run and one key-value head with all the query heads that read it, so a key
//! is loaded once for all of them. Pages are visited in order with a running maximum and sum
//! ([Dao et al. 2022](https://arxiv.org/abs/2205.14135)): scores never exist for more than a page.
#![allow(clippy::needless_range_loop, reason = "rows are numbered, and their number is a constant to unroll by")]

use super::math;
use crate::{
    graph::AttentionSpec,
    kv_cache::{CacheType, PAGE_POSITIONS},
    quant::Simd,
};

/// Query rows in a unit, at most, unless one token has more.
const UNIT_ROWS: usize = 64;

/// One layer's keys and values of one sequence.
#[derive(Clone, Copy)]
pub(super) struct LayerPages<'a> {
    /// The format of both.
    pub cache_type: CacheType,
    /// The first byte of each page.
    pub pages: &'a [*mut u8],
    /// Where the layer begins in a page.
    pub offset: usize,
    /// Bytes of one head's key or value.
    pub row_bytes: usize,
    /// Key-value heads.
    pub kv_heads: usize,
}

impl LayerPages<'_> {
    /// The first key of `head` in page `page`.
    fn keys(&self, page: usize, head: usize) -> *mut u8 {
        self.pages[page].wrapping_add(self.offset + head * PAGE_POSITIONS * self.row_bytes)
    }

    /// The first value of `head` in page `page`.
    fn values(&self, page: usize, head: usize) -> *mut u8 {
        self.keys(page, self.kv_heads + head)
    }
}

/// Writes the key and value rows of one token, at `position`, into the cache.
///
/// # Safety
/// Both rows have `kv_heads * head_dim` elements, nobody else uses that position, and the machine has `S`.
#[inline(always)]
pub(super) unsafe fn append<S: Simd>(to: &LayerPages<'_>, head_dim: usize, position: usize, [k, v]: [*const f32; 2]) {
    let (page, at) = (position / PAGE_POSITIONS, position % PAGE_POSITIONS * to.row_bytes);
    for head in 0..to.kv_heads {
        // SAFETY: the page holds the position, and the rows hold the head.
        unsafe {
            store_row::<S>(to.cache_type, k.add(head * head_dim), head_dim, to.keys(page, head).add(at));
            store_row::<S>(to.cache_type, v.add(head * head_dim), head_dim, to.values(page, head).add(at));
        }
    }
}

#[inline(always)]
unsafe fn store_row<S: Simd>(cache_type: CacheType, x: *const f32, len: usize, to: *mut u8) {
    // SAFETY: by the caller of `append`.
    unsafe {
        match cache_type {
            CacheType::F32 => to.cast::<f32>().copy_from_nonoverlapping(x, len),
            CacheType::F16 => {
                let whole = len / S::WIDTH * S::WIDTH;
                for i in (0..whole).step_by(S::WIDTH) {
                    S::store_f16(to.cast::<u16>().add(i), S::load(x.add(i)));
                }
                for i in whole..len {
                    to.cast::<u16>().add(i).write_unaligned(half::f16::from_f32(*x.add(i)).to_bits());
                }
            }
            CacheType::Q8_0 => {
                for block in 0..len / 32 {
                    store_q8_0::<S>(x.add(block * 32), to.add(block * 34));
                }
            }
        }
    }
}

/// Quantises 32 elements to a block of Q8_0.
#[inline(always)]
unsafe fn store_q8_0<S: Simd>(x: *const f32, to: *mut u8) {
    // SAFETY: by the caller of `append`.
    unsafe {
        let mut largest = S::splat(0.0);
        for i in (0..32).step_by(S::WIDTH) {
            largest = S::max(largest, S::abs(S::load(x.add(i))));
        }
        let scale = S::max_lane(largest) / 127.0;
        let inverse = S::splat(if scale > 0.0 { 1.0 / scale } else { 0.0 });
        to.cast::<u16>().write_unaligned(half::f16::from_f32(scale).to_bits());
        for i in (0..32).step_by(S::WIDTH) {
            S::store_bytes(to.add(2 + i).cast(), S::to_i(S::mul(S::load(x.add(i)), inverse)));
        }
    }
}

/// The queries of one run in one layer, and where the results go.
#[derive(Clone, Copy)]
pub(super) struct Queries<'a> {
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
}

impl Queries<'_> {
    /// Query heads of a key-value head.
    fn group(&self) -> usize {
        self.spec.heads / self.spec.kv_heads
    }

    /// Tokens in a unit.
    fn unit_tokens(&self) -> usize {
        (UNIT_ROWS / self.group()).max(1)
    }

    /// How many units the work divides into.
    pub fn units(&self) -> usize {
        self.tokens.div_ceil(self.unit_tokens()) * self.spec.kv_heads
    }
}

/// Floats of scratch that a unit of `spec` needs.
pub(super) fn scratch_len(spec: AttentionSpec) -> usize {
    let rows = UNIT_ROWS.max(spec.heads / spec.kv_heads);
    rows * (2 * spec.head_dim.next_multiple_of(16) + PAGE_POSITIONS + 2)
}

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

/// Computes one unit.
///
/// # Safety
/// `unit` is below [`Queries::units`], `scratch` has [`scratch_len`] floats and is this thread's alone, as are the
/// results' rows and heads; the cache holds every position up to the last token's; the machine has `S`.
#[inline(always)]
pub(super) unsafe fn attend<S: Simd>(queries: &Queries<'_>, unit: usize, scratch: *mut f32) {
    // SAFETY: by the caller.
    unsafe {
        match queries.cache.cache_type {
            CacheType::F32 => attend_rows::<S, F32>(queries, unit, scratch),
            CacheType::F16 => attend_rows::<S, F16>(queries, unit, scratch),
            CacheType::Q8_0 => attend_rows::<S, Q80>(queries, unit, scratch),
        }
    }
}

/// How a cached row is read.
trait CacheRow {
    /// Elements `i` to `i + WIDTH` of the row; `i` is a multiple of `WIDTH`.
    unsafe fn load<S: Simd>(row: *const u8, i: usize) -> S::F;
}

struct F32;
struct F16;
struct Q80;

impl CacheRow for F32 {
    #[inline(always)]
    unsafe fn load<S: Simd>(row: *const u8, i: usize) -> S::F {
        // SAFETY: by the caller.
        unsafe { S::load(row.cast::<f32>().add(i)) }
    }
}

impl CacheRow for F16 {
    #[inline(always)]
    unsafe fn load<S: Simd>(row: *const u8, i: usize) -> S::F {
        // SAFETY: by the caller.
        unsafe { S::load_f16(row.cast::<u16>().add(i)) }
    }
}

impl CacheRow for Q80 {
    #[inline(always)]
    unsafe fn load<S: Simd>(row: *const u8, i: usize) -> S::F {
        // SAFETY: by the caller.
        unsafe {
            let block = row.add(i / 32 * 34);
            let scale = half::f16::from_bits(block.cast::<u16>().read_unaligned()).to_f32();
            S::mul(S::load_i8(block.add(2 + i % 32).cast()), S::splat(scale))
        }
    }
}

#[inline(always)]
unsafe fn attend_rows<S: Simd, R: CacheRow>(queries: &Queries<'_>, unit: usize, scratch: *mut f32) {
    let Queries { spec, cache, start, tokens, .. } = queries;
    let (head, block) = (unit % spec.kv_heads, unit / spec.kv_heads);
    let first = block * queries.unit_tokens();
    let count = queries.unit_tokens().min(tokens - first);
    let group = queries.group();
    let width = spec.head_dim.next_multiple_of(16);
    let rows = count * group;
    // SAFETY: by the caller of `attend`.
    unsafe {
        let acc = scratch.add(rows * width);
        let scores = acc.add(rows * width);
        let largest = scores.add(rows * PAGE_POSITIONS);
        let unit = Unit { rows, width, q: scratch, acc, scores, largest, sum: largest.add(rows) };
        load_queries(queries, &unit, first, head);
        let end = start + first + count;
        for page in 0..end.div_ceil(PAGE_POSITIONS) {
            let page_start = page * PAGE_POSITIONS;
            let positions = PAGE_POSITIONS.min(end - page_start);
            score::<S, R>(&unit, cache.keys(page, head), cache.row_bytes, positions);
            for row in 0..rows {
                let visible = (start + first + row / group + 1).saturating_sub(page_start).min(positions);
                soften::<S>(&unit, row, visible);
            }
            gather::<S, R>(&unit, cache.values(page, head), cache.row_bytes, positions);
        }
        for row in 0..rows {
            let (token, head) = (first + row / group, head * group + row % group);
            let out = queries.out.add(token * queries.out_stride + head * spec.head_dim);
            let factor = 1.0 / *unit.sum.add(row);
            for i in 0..spec.head_dim {
                *out.add(i) = *unit.acc.add(row * width + i) * factor;
            }
        }
    }
}

/// Copies the unit's queries, times the scale, and clears what is gathered.
#[inline(always)]
unsafe fn load_queries(queries: &Queries<'_>, unit: &Unit, first: usize, head: usize) {
    let (group, dim) = (queries.group(), queries.spec.head_dim);
    // SAFETY: by the caller of `attend`.
    unsafe {
        unit.q.write_bytes(0, unit.rows * unit.width);
        unit.acc.write_bytes(0, unit.rows * unit.width);
        for row in 0..unit.rows {
            let (token, head) = (first + row / group, head * group + row % group);
            let from = queries.q.add(token * queries.q_stride + head * dim);
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
