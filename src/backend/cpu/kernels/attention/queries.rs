//! The queries of a run, and the cache that they read.

use std::sync::atomic::AtomicUsize;

use super::chunk::Chunk;
use crate::{
    graph::AttentionSpec,
    kv_cache::{CacheType, PAGE_POSITIONS},
};

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
    pub(super) fn keys(&self, page: usize, head: usize) -> Chunk {
        let start = self.pages[page].wrapping_add(self.offset + head * PAGE_POSITIONS * self.row_bytes);
        Chunk { start, head_dim: self.head_dim }
    }

    /// The values of `head` in page `page`.
    pub(super) fn values(&self, page: usize, head: usize) -> Chunk {
        self.keys(page, self.kv_heads + head)
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
    /// Room for [`super::partials_len`] floats.
    pub partials: *mut f32,
    /// For each key-value head, how many sections have been done; 0 before and after.
    pub done: &'a [AtomicUsize],
}

/// A unit's query rows: those of `count` tokens from `first` on, in the heads that read key-value head `head`.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub first: usize,
    pub count: usize,
    pub head: usize,
    pub group: usize,
}

impl Rows {
    pub(super) fn len(self) -> usize {
        self.count * self.group
    }

    /// The token of a row, within the run.
    pub(super) fn token(self, row: usize) -> usize {
        self.first + row / self.group
    }

    /// The query head of a row.
    pub(super) fn query_head(self, row: usize) -> usize {
        self.head * self.group + row % self.group
    }
}
