//! Computes the layout and size in bytes of cache pages and recurrent states.

use serde::{Deserialize, Serialize};

use super::PAGE_POSITIONS;
use crate::{
    Error, Result,
    graph::{Graph, LayerCache, LayerState, Window},
};

/// The format of cached keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheType {
    /// f32: 4 bytes per element.
    F32,
    /// f16: 2 bytes per element.
    #[default]
    F16,
    /// int8 codes with an f16 scale per 32 elements: 34 bytes per 32 elements.
    Q8_0,
}

impl CacheType {
    /// Returns the size in bytes of one head's key or value at one position. Rows of f32 and f16
    /// are padded with zeros to a multiple of 16 elements, so that kernels read whole vectors.
    ///
    /// # Errors
    /// [`Error::Argument`] if `head_dim` is not a multiple of the format's block size.
    pub fn row_bytes(self, head_dim: usize) -> Result<usize> {
        match self {
            Self::F32 => Ok(head_dim.next_multiple_of(16) * 4),
            Self::F16 => Ok(head_dim.next_multiple_of(16) * 2),
            Self::Q8_0 if head_dim.is_multiple_of(32) => Ok(head_dim / 32 * 34),
            Self::Q8_0 => Err(Error::argument(
                "cache_type",
                format!("q8_0 needs a head size that is a multiple of 32, but the model has {head_dim}: use f16"),
            )),
        }
    }
}

/// The layout of cache pages and of recurrent states.
///
/// A page contains, for each attention layer of its group, the keys `[kv_heads, PAGE_POSITIONS]`
/// and then, unless keys are values too, the values, in rows of [`LayerPlace::row_bytes`]. Backends
/// choose the order of elements within a head. A state contains the f32 state of each recurrent op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheLayout {
    /// Location of each attention layer's keys and values.
    pub layers: Vec<LayerPlace>,
    /// Groups of attention layers with the same window.
    pub groups: Vec<PageGroup>,
    /// Format of keys and values.
    pub cache_type: CacheType,
    /// Shape of each recurrent op's state.
    pub states: Vec<LayerState>,
    /// Byte offset of each recurrent op in a state.
    pub state_offsets: Vec<usize>,
    /// Size of a state in bytes; 0 without recurrent ops.
    pub state_bytes: usize,
}

/// The location of an attention layer's keys and values in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerPlace {
    /// Number of key-value heads.
    pub kv_heads: usize,
    /// Number of elements of one head's key or value.
    pub head_dim: usize,
    /// Index of the layer's group.
    pub group: usize,
    /// Whether keys are values too, so that there are no others.
    pub keys_only: bool,
    /// Byte offset of the keys in a page of the group; the values follow directly.
    pub offset: usize,
    /// Size in bytes of one head's key or value at one position.
    pub row_bytes: usize,
}

impl LayerPlace {
    /// Returns the size in bytes of the keys and values of one position.
    pub fn position_bytes(&self) -> usize {
        self.matrices() * self.row_bytes
    }

    /// Returns the number of matrices in a page: the keys of each head and the values of each head.
    pub fn matrices(&self) -> usize {
        if self.keys_only { self.kv_heads } else { 2 * self.kv_heads }
    }
}

/// A group of attention layers with the same window, which share pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageGroup {
    /// The limit of the positions that a token sees; `None` for full attention.
    pub window: Option<Window>,
    /// Size of a page in bytes.
    pub page_bytes: usize,
}

impl PageGroup {
    /// Returns the first position in the attention window of the token at `position`.
    pub fn first_seen(&self, position: usize) -> usize {
        self.window.map_or(0, |window| window.first_seen(position))
    }
}

/// Alignment of each recurrent op in a state, in bytes.
const STATE_ALIGNMENT: usize = 256;

impl CacheLayout {
    /// Returns the layout for a graph's attention layers and recurrent ops.
    ///
    /// # Errors
    /// As [`CacheType::row_bytes`].
    pub fn new(graph: &Graph, cache_type: CacheType) -> Result<Self> {
        let (mut layers, mut groups) = (Vec::with_capacity(graph.caches().len()), Vec::<PageGroup>::new());
        for (layer, window) in graph.caches().iter().zip(graph.windows()) {
            let group = groups.iter().position(|group| group.window == window).unwrap_or(groups.len());
            if group == groups.len() {
                groups.push(PageGroup { window, page_bytes: 0 });
            }
            let &LayerCache { kv_heads, head_dim, keys_only } = layer;
            let (offset, row_bytes) = (groups[group].page_bytes, cache_type.row_bytes(head_dim)?);
            let place = LayerPlace { kv_heads, head_dim, keys_only, group, offset, row_bytes };
            groups[group].page_bytes += PAGE_POSITIONS * place.position_bytes();
            layers.push(place);
        }
        let states = graph.states().to_vec();
        let mut state_bytes = 0usize;
        let mut state_offsets = Vec::with_capacity(states.len());
        for state in &states {
            state_offsets.push(state_bytes);
            let bytes = state.rows.saturating_mul(state.width).saturating_mul(size_of::<f32>());
            state_bytes = state_bytes.saturating_add(bytes.div_ceil(STATE_ALIGNMENT).saturating_mul(STATE_ALIGNMENT));
        }
        Ok(Self { layers, groups, cache_type, states, state_offsets, state_bytes })
    }

    /// Returns the layout of the pages and states of this layout, with the layers of `head`, which
    /// all have full attention, in the pages of the first group. `None` if that group has a window.
    #[must_use]
    pub fn with_pages_of(&self, head: &Self) -> Option<Self> {
        let mut joined = self.clone();
        let [own] = &head.groups[..] else { return None };
        let first = joined.groups.first_mut().filter(|group| group.window.is_none() && own.window.is_none())?;
        first.page_bytes += own.page_bytes;
        Some(joined)
    }

    /// Returns the size in bytes of one more position in the layers with full attention. Layers
    /// with a window release their pages again.
    pub fn bytes_per_token(&self) -> usize {
        let full_attention = self.groups.iter().filter(|group| group.window.is_none());
        full_attention.map(|group| group.page_bytes / PAGE_POSITIONS).sum()
    }

    /// Returns the maximum number of bytes that layers with a window need for a sequence of up to
    /// `context_length` positions, in steps of up to `max_tokens` tokens.
    pub fn window_bytes(&self, context_length: usize, max_tokens: usize) -> u64 {
        let bytes = |group: &PageGroup| {
            let pages = super::max_window_pages(group.window?.size(), context_length, max_tokens);
            Some((pages as u64).saturating_mul(group.page_bytes as u64))
        };
        self.groups.iter().filter_map(bytes).fold(0, u64::saturating_add)
    }
}
