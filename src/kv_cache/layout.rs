//! What a page and a state hold, and how many bytes that is.

use super::PAGE_POSITIONS;
use crate::{
    Error, Result,
    graph::{Graph, LayerState},
};

/// The format of cached keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheType {
    /// Single precision: 4 bytes an element.
    F32,
    /// Half precision: 2 bytes an element.
    #[default]
    F16,
    /// 8-bit codes with a half-precision scale for 32: 34 bytes for 32 elements.
    Q8_0,
}

impl CacheType {
    /// The bytes of one head's key or value. Floats are filled up to a multiple of 16 elements with zeros, so that
    /// kernels read whole vectors.
    ///
    /// # Errors
    /// [`Error::Argument`] where the head is no whole number of the format's blocks.
    pub fn row_bytes(self, head_dim: usize) -> Result<usize> {
        match self {
            Self::F32 => Ok(head_dim.next_multiple_of(16) * 4),
            Self::F16 => Ok(head_dim.next_multiple_of(16) * 2),
            Self::Q8_0 if head_dim.is_multiple_of(32) => Ok(head_dim / 32 * 34),
            Self::Q8_0 => Err(Error::argument(
                "cache_type",
                format!("q8_0 wants heads of a multiple of 32 elements, the model's have {head_dim}: use f16"),
            )),
        }
    }
}

/// What a page holds: for each attention layer of its group the keys, then the values; within these, head by head. The
/// order of a head's elements is the backend's affair. And what the state of a sequence holds: the floats of each
/// recurrent op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheLayout {
    /// The attention layers.
    pub layers: Vec<LayerPlace>,
    /// The groups of those that see equally far back.
    pub groups: Vec<PageGroup>,
    /// The format of keys and values.
    pub cache_type: CacheType,
    /// What the recurrent ops keep.
    pub states: Vec<LayerState>,
    /// The byte at which each of them begins in a state.
    pub state_offsets: Vec<usize>,
    /// Bytes in a state; 0 where no op is recurrent.
    pub state_bytes: usize,
}

/// Where an attention layer's keys and values lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerPlace {
    /// Key-value heads.
    pub kv_heads: usize,
    /// Elements of a key, and of a value, in one head.
    pub head_dim: usize,
    /// The layer's group.
    pub group: usize,
    /// The byte at which its keys begin in a page of the group; the values follow directly.
    pub offset: usize,
    /// The bytes of one head's key or value.
    pub row_bytes: usize,
}

impl LayerPlace {
    /// The bytes of one position.
    pub fn position_bytes(&self) -> usize {
        2 * self.kv_heads * self.row_bytes
    }
}

/// Attention layers that see equally far back. They have pages of their own, and need those alone that they see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageGroup {
    /// How many positions a token sees at most, the last of them its own; all up to it where there is no such number.
    pub window: Option<usize>,
    /// Bytes in a page.
    pub page_bytes: usize,
}

impl PageGroup {
    /// The first position that a token at `position` sees.
    pub fn first_seen(&self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }
}

/// Each op's part of a state begins at a multiple of this many bytes.
const STATE_UNIT: usize = 256;

impl CacheLayout {
    /// The layout for a graph's attention layers and for what its recurrent ops keep.
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
            let (kv_heads, head_dim, row_bytes) =
                (layer.kv_heads, layer.head_dim, cache_type.row_bytes(layer.head_dim)?);
            let place = LayerPlace { kv_heads, head_dim, group, offset: groups[group].page_bytes, row_bytes };
            groups[group].page_bytes += PAGE_POSITIONS * place.position_bytes();
            layers.push(place);
        }
        let states = graph.states().to_vec();
        let mut state_bytes = 0usize;
        let mut state_offsets = Vec::with_capacity(states.len());
        for state in &states {
            state_offsets.push(state_bytes);
            let bytes = state.rows.saturating_mul(state.width).saturating_mul(size_of::<f32>());
            state_bytes = state_bytes.saturating_add(bytes.div_ceil(STATE_UNIT).saturating_mul(STATE_UNIT));
        }
        Ok(Self { layers, groups, cache_type, states, state_offsets, state_bytes })
    }

    /// The bytes that one more position of a sequence takes for good: those of layers without a window.
    pub fn bytes_per_token(&self) -> usize {
        let whole = self.groups.iter().filter(|group| group.window.is_none());
        whole.map(|group| group.page_bytes / PAGE_POSITIONS).sum()
    }

    /// The most bytes that layers with a window take for a sequence of up to `context_length` positions, in steps of up to
    /// `max_tokens` tokens.
    pub fn window_bytes(&self, context_length: usize, max_tokens: usize) -> u64 {
        let bytes = |group: &PageGroup| {
            let pages = super::most_pages(group.window?, context_length, max_tokens);
            Some((pages as u64).saturating_mul(group.page_bytes as u64))
        };
        self.groups.iter().filter_map(bytes).fold(0, u64::saturating_add)
    }
}
