//! Describes the queries of a run, and the cache that they read.

use std::{ops::Range, sync::atomic::AtomicUsize};

use super::head_page::HeadPage;
use crate::{
    backend::cpu::kernels::rows::StridedRows,
    graph::AttentionSpec,
    kv_cache::{CacheType, PAGE_POSITIONS},
};

/// The cached keys and values of a sequence in one layer.
#[derive(Clone, Copy)]
pub(crate) struct LayerPages<'a> {
    /// The format of keys and values.
    pub cache_type: CacheType,
    /// The first byte of each page; null for a released page, which no query sees.
    pub pages: &'a [*mut u8],
    /// The layer's offset in a page, in bytes.
    pub offset: usize,
    /// Bytes of a head's key or value at one position.
    pub row_bytes: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    /// Whether keys are values too.
    pub keys_only: bool,
}

impl LayerPages<'_> {
    /// Returns the keys of a head in a page.
    pub(super) fn keys(&self, page: usize, head: usize) -> HeadPage {
        let start = self.pages[page].wrapping_add(self.offset + head * PAGE_POSITIONS * self.row_bytes);
        HeadPage { start, head_dim: self.head_dim }
    }

    /// Returns the values of a head in a page, which has others than the keys.
    pub(super) fn values(&self, page: usize, head: usize) -> HeadPage {
        self.keys(page, self.kv_heads + head)
    }
}

/// The queries of a run in one layer, and their results.
#[derive(Clone, Copy)]
pub(crate) struct Queries<'a> {
    pub spec: AttentionSpec,
    pub cache: LayerPages<'a>,
    /// `[tokens, heads * head_dim]`.
    pub q: StridedRows,
    /// `[heads]`: a further score of each head, of a value of 0, if there are sinks.
    pub sinks: Option<&'a [f32]>,
    /// `[tokens, heads * head_dim]`.
    pub out: StridedRows,
    /// The position of the first token.
    pub start: usize,
    pub tokens: usize,
    /// The tokens that may see each other, as ranges of the run's tokens, ascending.
    pub spans: &'a [Range<usize>],
    /// Memory for [`super::partials_len`] floats.
    pub partials: *mut f32,
    /// `[kv_heads]`: the number of finished splits of each head; 0 before and after a step.
    pub done: &'a [AtomicUsize],
}

impl Queries<'_> {
    /// Returns the positions that a token of the run sees.
    pub(super) fn seen(&self, token: usize) -> Range<usize> {
        let within = |range: Range<usize>| self.start + range.start..self.start + range.end;
        let next = self.spans.partition_point(|span| span.end <= token);
        let span = self.spans.get(next).filter(|span| span.contains(&token)).cloned();
        self.spec.scores.seen(self.start + token, within(0..self.tokens), span.map(within))
    }
}

/// The query rows of a block: `tokens` tokens from `first` on, each with the `group` query heads
/// that read key-value head `kv_head`.
#[derive(Clone, Copy)]
pub(super) struct QueryRows {
    pub first: usize,
    pub tokens: usize,
    pub kv_head: usize,
    pub group: usize,
}

impl QueryRows {
    pub(super) fn len(self) -> usize {
        self.tokens * self.group
    }

    /// Returns the token of a row, within the run.
    pub(super) fn token(self, row: usize) -> usize {
        self.first + row / self.group
    }

    /// Returns the query head of a row.
    pub(super) fn query_head(self, row: usize) -> usize {
        self.kv_head * self.group + row % self.group
    }
}
