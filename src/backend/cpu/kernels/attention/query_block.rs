//! Attends a block of query rows to one split of the cache, page by page.

use std::ops::Range;

use super::{
    cache_product::CacheProduct,
    element::{BLOCK, CacheElement, CacheF32, Widened},
    head_page::HeadPage,
    partial::Partial,
    queries::{LayerPages, Queries, QueryRows},
    splits::SPLIT_POSITIONS,
};
use crate::{
    backend::cpu::kernels::{math, rows::StridedRows},
    graph::AttentionSpec,
    kv_cache::PAGE_POSITIONS,
    simd::{Simd, SimdKernel},
};

/// Rows from which keys and values with scales are converted to f32 once for all rows, rather than
/// for every few rows.
const WIDENING_ROWS: usize = 17;

/// A block of query rows: its queries, and memory for its scores.
///
/// Every `unsafe` method requires what [`super::attend`] does.
pub(super) struct QueryBlock<'a> {
    cache: LayerPages<'a>,
    rows: QueryRows,
    head_dim: usize,
    /// Elements of a head, padded to whole vectors.
    width: usize,
    queries: Queries<'a>,
    softcap: Option<f32>,
    /// `[rows, width]`: queries times the scale of scores.
    q: StridedRows,
    /// `[rows, PAGE_POSITIONS]`: scores, then weights.
    weights: StridedRows,
    /// `[rows, PAGE_POSITIONS]`: weights times the scales of a block of values.
    scaled_weights: StridedRows,
    /// A page's keys or values in f32, with their scales.
    widened: *mut u8,
}

/// The operands of [`QueryBlock::softmax_row`]. Its `run` requires what that does.
struct RowSoftmax<'a> {
    block: &'a QueryBlock<'a>,
    row: usize,
    seen: Range<usize>,
    to: &'a Partial,
}

impl SimdKernel for RowSoftmax<'_> {
    /// # Safety: as [`QueryBlock::softmax_row`].
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { block, row, seen, to } = self;
        // SAFETY: by the caller.
        unsafe { block.softmax_row::<S>(row, seen, to) };
    }
}

/// Returns the floats of scratch that a block of `rows` rows needs.
pub(super) fn scratch_len(rows: usize, spec: AttentionSpec) -> usize {
    let width = spec.head_dim.next_multiple_of(16);
    rows * (width + 2 * PAGE_POSITIONS) + PAGE_POSITIONS * (width + width.div_ceil(BLOCK))
}

impl<'a> QueryBlock<'a> {
    /// Copies the queries of the block to `scratch`, times the scale of scores.
    ///
    /// # Safety
    /// As [`super::attend`]; `scratch` has [`scratch_len`] floats.
    #[inline(always)]
    pub unsafe fn new(queries: &Queries<'a>, rows: QueryRows, scratch: *mut f32) -> Self {
        let Queries { spec, cache, .. } = *queries;
        let width = spec.head_dim.next_multiple_of(16);
        let q = StridedRows { start: scratch, stride: width };
        let weights = StridedRows { start: q.row(rows.len()), stride: PAGE_POSITIONS };
        let scaled_weights = weights.skip(rows.len());
        let widened = scaled_weights.row(rows.len()).cast();
        for row in 0..rows.len() {
            let offset = rows.query_head(row) * spec.head_dim;
            for i in 0..spec.head_dim {
                // SAFETY: by the caller.
                unsafe { *q.row(row).add(i) = *queries.q.row(rows.token(row)).add(offset + i) * spec.scores.scale };
            }
        }
        let (head_dim, softcap) = (spec.head_dim, spec.scores.softcap);
        Self { cache, rows, head_dim, width, queries: *queries, softcap, q, weights, scaled_weights, widened }
    }

    /// Returns the end of the positions that the last token sees.
    fn end(&self) -> usize {
        self.seen(self.rows.len() - 1).end
    }

    /// Returns the splits that the tokens see.
    pub fn splits(&self) -> Range<usize> {
        self.seen(0).start / SPLIT_POSITIONS..self.end().div_ceil(SPLIT_POSITIONS)
    }

    /// Returns the positions that a row sees. Neither end is before that of the row before it.
    fn seen(&self, row: usize) -> Range<usize> {
        self.queries.seen(self.rows.token(row))
    }

    /// Writes the result of a split to `to`.
    ///
    /// # Safety
    /// As [`super::attend`]; `to` has the block's rows.
    #[inline(always)]
    pub unsafe fn attend<S: Simd, E: CacheElement>(&self, split: usize, to: &Partial) {
        let first = (self.seen(0).start / PAGE_POSITIONS * PAGE_POSITIONS).max(split * SPLIT_POSITIONS);
        let end = self.end().min((split + 1) * SPLIT_POSITIONS);
        let widens = E::SCALED && self.rows.len() >= WIDENING_ROWS;
        // SAFETY: by the caller.
        unsafe {
            to.clear();
            for start in (first..end).step_by(PAGE_POSITIONS) {
                let (page, positions) = (start / PAGE_POSITIONS, PAGE_POSITIONS.min(end - start));
                let values = (!self.cache.keys_only).then(|| self.cache.values(page, self.rows.kv_head));
                // The thread that ends a split usually goes on with the next.
                let next = (start + PAGE_POSITIONS < self.end()).then(|| self.cache.keys(page + 1, self.rows.kv_head));
                let keys = self.cache.keys(page, self.rows.kv_head);
                if widens {
                    self.score::<S, Widened<E>>(keys.widen::<S, E>(self.widened, values), positions, None);
                } else {
                    self.score::<S, E>(keys, positions, values);
                }
                for row in 0..self.rows.len() {
                    let seen = self.seen(row);
                    let within = |position: usize| position.saturating_sub(start).min(positions);
                    let seen = within(seen.start)..within(seen.end);
                    S::call(RowSoftmax { block: self, row, seen, to });
                }
                match values {
                    None => {
                        let values = keys.transpose::<S, E>(self.widened, positions);
                        self.accumulate_values::<S, CacheF32>(values, positions, next, to);
                    }
                    Some(values) if widens => {
                        let values = values.widen::<S, E>(self.widened, next);
                        self.accumulate_values::<S, Widened<E>>(values, positions, None, to);
                    }
                    Some(values) => self.accumulate_values::<S, E>(values, positions, next, to),
                }
            }
        }
    }

    /// Writes the scores of all rows with the page's keys to `weights`. Columns past `positions`
    /// get unspecified scores, as the page has no keys there yet.
    ///
    /// # Safety
    /// As [`super::attend`]; `keys` are in format `E`.
    #[inline(always)]
    unsafe fn score<S: Simd, E: CacheElement>(&self, keys: HeadPage, positions: usize, next: Option<HeadPage>) {
        let block = if E::SCALED { BLOCK } else { self.head_dim };
        // SAFETY: by the caller.
        unsafe {
            self.weights.start.write_bytes(0, self.rows.len() * PAGE_POSITIONS);
            for first in (0..self.head_dim).step_by(block) {
                let product = CacheProduct {
                    matrix: keys.keys::<E>(first),
                    depth: block,
                    columns: positions.next_multiple_of(16),
                    scales: E::SCALED.then(|| keys.scales::<E>(first).cast_const()),
                    left: StridedRows { start: self.q.start.add(first), ..self.q },
                    out: self.weights,
                };
                product.add::<S, E>(self.rows.len(), next.map(|next| next.prefetch::<S, E>(first)));
            }
        }
    }

    /// Turns the scores of a row into weights at the positions `seen` of the page, and into 0
    /// elsewhere.
    ///
    /// # Safety
    /// As [`super::attend`]; `to` has the row.
    #[inline(always)]
    unsafe fn softmax_row<S: Simd>(&self, row: usize, seen: Range<usize>, to: &Partial) {
        // SAFETY: by the caller.
        unsafe {
            let scores = self.weights.row(row);
            if let Some(cap) = self.softcap {
                math::elementwise_scalar::<S, math::SoftCap>(scores, cap, scores, PAGE_POSITIONS);
            }
            let unseen = || (0..seen.start).chain(seen.end..PAGE_POSITIONS);
            for i in unseen() {
                *scores.add(i) = f32::MIN;
            }
            let mut max = S::splat(*to.max(row));
            for i in (0..PAGE_POSITIONS).step_by(S::WIDTH) {
                max = S::max(max, S::load(scores.add(i)));
            }
            to.rescale::<S>(row, S::max_lane(max));
            let max = S::splat(*to.max(row));
            for i in (0..PAGE_POSITIONS).step_by(S::WIDTH) {
                S::store(scores.add(i), math::exp::<S>(S::sub(S::load(scores.add(i)), max)));
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

    /// Adds the page's values, times the weights, to the sums of every row.
    ///
    /// # Safety
    /// As [`super::attend`]; `values` are in format `E`, and `to` has the block's rows.
    #[inline(always)]
    unsafe fn accumulate_values<S: Simd, E: CacheElement>(
        &self,
        values: HeadPage,
        positions: usize,
        next: Option<HeadPage>,
        to: &Partial,
    ) {
        let block = if E::SCALED { BLOCK } else { self.width };
        // SAFETY: by the caller.
        unsafe {
            for first in (0..self.width).step_by(block) {
                if E::SCALED {
                    self.scale_weights::<S>(values.scales::<E>(first));
                }
                let product = CacheProduct {
                    matrix: values.values::<E>(first),
                    depth: positions,
                    columns: block,
                    scales: None,
                    left: if E::SCALED { self.scaled_weights } else { self.weights },
                    out: StridedRows { start: to.values(0).add(first), stride: self.width },
                };
                product.add::<S, E>(self.rows.len(), next.map(|next| next.prefetch::<S, E>(first)));
            }
        }
    }

    /// Writes the weights times the scales of a block of values to `scaled_weights`.
    ///
    /// # Safety
    /// As [`super::attend`]; `scales` is readable for `PAGE_POSITIONS` numbers.
    #[inline(always)]
    unsafe fn scale_weights<S: Simd>(&self, scales: *const u16) {
        for i in (0..PAGE_POSITIONS).step_by(S::WIDTH) {
            // SAFETY: by the caller.
            unsafe {
                let scales = S::load_f16(scales.add(i));
                for row in 0..self.rows.len() {
                    let weights = S::load(self.weights.row(row).add(i));
                    S::store(self.scaled_weights.row(row).add(i), S::mul(weights, scales));
                }
            }
        }
    }

    /// Divides the sums of values by the sums of weights, and writes them to the rows of the
    /// results.
    ///
    /// # Safety
    /// As [`super::attend`]; `from` has the block's rows.
    #[inline(always)]
    pub unsafe fn write<S: Simd>(&self, queries: &Queries<'_>, from: &Partial) {
        for row in 0..self.rows.len() {
            let offset = self.rows.query_head(row) * self.head_dim;
            // SAFETY: by the caller.
            unsafe {
                let out = queries.out.row(self.rows.token(row)).add(offset);
                let head = self.rows.query_head(row);
                let sink = queries.sinks.map_or(0.0, |sinks| (sinks[head] - *from.max(row)).exp());
                let factor = 1.0 / (from.weight_sum::<S>(row) + sink);
                for i in 0..self.head_dim {
                    *out.add(i) = *from.values(row).add(i) * factor;
                }
            }
        }
    }
}
