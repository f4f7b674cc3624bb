//! Attention over the paged cache.
//!
//! A unit of work is a few tokens of one run and one key-value head with all the query heads that read it, so a key
//! is loaded once for all of them. Pages are visited in order with a running maximum and sum
//! ([Dao et al. 2022](https://arxiv.org/abs/2205.14135)): scores never exist for more than a page. Units of few query
//! rows, as in decode, multiply along the head ([`few`]); those of many give each row a lane ([`many`]).

mod few;
mod many;
mod row;

use self::row::CacheRow;
use crate::{
    graph::AttentionSpec,
    kv_cache::{CacheType, PAGE_POSITIONS},
    quant::Simd,
};

/// Query rows in a unit, at most, unless one token has more.
const UNIT_ROWS: usize = 64;
/// Up to this many query rows, a lane for each would waste too many lanes.
const FEW_ROWS: usize = 8;

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
    few::scratch_len(rows, spec).max(many::scratch_len(rows, spec))
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
            CacheType::F32 => attend_from::<S, row::F32>(queries, unit, scratch),
            CacheType::F16 => attend_from::<S, row::F16>(queries, unit, scratch),
            CacheType::Q8_0 => attend_from::<S, row::Q80>(queries, unit, scratch),
        }
    }
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
unsafe fn attend_from<S: Simd, R: CacheRow>(queries: &Queries<'_>, unit: usize, scratch: *mut f32) {
    let kv_heads = queries.spec.kv_heads;
    let first = unit / kv_heads * queries.unit_tokens();
    let count = queries.unit_tokens().min(queries.tokens - first);
    let rows = Rows { first, count, head: unit % kv_heads, group: queries.group() };
    // SAFETY: by the caller of `attend`.
    unsafe {
        match rows.len() {
            0..=FEW_ROWS => few::attend::<S, R>(queries, rows, scratch),
            _ => many::attend::<S, R>(queries, rows, scratch),
        }
    }
}
