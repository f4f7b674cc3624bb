//! How kernels are cut to an adapter and a shape.

use serde::Serialize;

use super::{context::Traits, kernels::elements_per_word};
use crate::{kv_cache::CacheType, quant::UNIT};

/// Invocations that attend to one of a sequence's many splits.
pub(super) const SPLIT_WORKGROUP: usize = 256;

/// Matrices that one dispatch multiplies with.
pub(super) const MAX_PARTS: usize = 3;

/// Units of rows that an invocation reads ahead. More take registers, and so leave fewer invocations
/// to wait for memory side by side.
const READ_AHEAD: usize = 2;

/// How the work of a product of few rows is divided.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct GemvShape {
    /// Invocations that share a row of the matrix.
    pub team: usize,
    /// Rows of the matrix that a team has at a time.
    pub rows: usize,
    /// How often a team takes as many.
    pub passes: usize,
    /// Units of a row that an invocation reads ahead.
    pub unrolled: usize,
    /// Invocations of a workgroup.
    pub workgroup: usize,
}

impl GemvShape {
    /// Returns the rows of a workgroup.
    pub fn group_rows(&self) -> usize {
        self.workgroup / self.team * self.rows * self.passes
    }
}

/// Divides a product with `rows` rows of `units` units, `together` of which are multiplied at a
/// time. A workgroup that writes `q8_tokens` rows of its results as int8 has a block of 32 rows of
/// the matrix.
pub(super) fn gemv(traits: &Traits, units: usize, rows: usize, q8_tokens: Option<usize>, together: usize) -> GemvShape {
    let widest = traits.subgroup.unwrap_or(8).min(32) as usize;
    let team = widest.min(units.next_power_of_two());
    let most = traits.workgroup as usize;
    let unrolled = |rows: usize| (READ_AHEAD / (rows * together)).clamp(1, units.div_ceil(team));
    if let Some(tokens) = q8_tokens {
        // A team for each of the block's rows, as far as two matrices leave them registers, and an
        // invocation for each element that is written: teams of 8 suffice for 8 rows.
        let team = team.max(8).min(widest);
        let workgroup = (32 * team / together).max(32 * tokens).min(32 * team).min(most);
        let passes = 32 * team / workgroup;
        return GemvShape { team, rows: 1, passes, unrolled: unrolled(1), workgroup };
    }
    let workgroup = most.min(256).max(team);
    // A dispatch has at most 65,535 workgroups along a dimension.
    let mut at_once = 1;
    while rows.div_ceil(workgroup / team * at_once) > 60_000 {
        at_once *= 2;
    }
    GemvShape { team, rows: at_once, passes: 1, unrolled: unrolled(at_once), workgroup }
}

/// What a workgroup of a product of many rows has.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct ProductTile {
    /// Rows of the activations.
    pub tokens: usize,
    /// Rows of the matrix.
    pub rows: usize,
    /// Columns of both that are in the workgroup's memory at a time.
    pub columns: usize,
    /// Invocations.
    pub threads: usize,
}

/// What a subgroup has of a tile: both are multiples of 16.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct SubgroupTile {
    /// Rows of the activations.
    pub tokens: usize,
    /// Rows of the matrix.
    pub rows: usize,
}

/// Rows of a small tile, of which one expert's slots make whole ones but for the last.
pub(super) const SLOTS: usize = 64;

/// Chooses the tile of a product on any adapter.
pub(super) fn tile(traits: &Traits) -> ProductTile {
    ProductTile { tokens: SLOTS, rows: 64, columns: UNIT, threads: traits.workgroup.min(128) as usize }
}

/// Chooses the tile, and a subgroup's share of it, of a product with matrix units of `rows` and
/// `columns`. Two small workgroups run beside each other where one large does, so small ones are
/// for products that they finish in one round.
pub(super) fn coop_tile(traits: &Traits, rows: usize, columns: usize) -> (ProductTile, SubgroupTile) {
    let columns = if columns.is_multiple_of(2 * UNIT) { 2 * UNIT } else { UNIT };
    let subgroup = traits.subgroup.unwrap_or(32) as usize;
    let large_bytes = 2 * 128 * (columns + 8) * 2 + 1024 * 8;
    let fits = large_bytes <= traits.workgroup_bytes as usize && 8 * subgroup <= traits.workgroup as usize;
    match rows > 2112 && fits {
        true => (
            ProductTile { tokens: 128, rows: 128, columns, threads: 8 * subgroup },
            SubgroupTile { tokens: 32, rows: 64 },
        ),
        false => (
            ProductTile { tokens: SLOTS, rows: 64, columns, threads: 4 * subgroup },
            SubgroupTile { tokens: 32, rows: 32 },
        ),
    }
}

/// How the work of attention of many tokens is divided.
#[derive(Clone, Copy, Debug)]
pub(super) enum PrefillShape {
    /// On any adapter.
    Plain {
        /// Invocations of a workgroup.
        threads: usize,
        /// Tokens that attend together.
        block: usize,
    },
    /// With matrix units.
    Coop {
        /// Tokens that attend together.
        block: usize,
        /// Positions that they attend to at a time.
        tile: usize,
        /// Invocations of a subgroup.
        subgroup_size: u32,
    },
}

impl PrefillShape {
    /// Returns the tokens that attend together.
    pub fn query_block(self) -> usize {
        match self {
            Self::Plain { block, .. } | Self::Coop { block, .. } => block,
        }
    }
}

/// Divides attention with heads of `head_dim` elements. GpuMatrix units need f16 and whole matrices.
pub(super) fn prefill(traits: &Traits, head_dim: usize, cache: CacheType) -> PrefillShape {
    let suits = traits.matrices && cache == CacheType::F16 && head_dim.is_multiple_of(16) && head_dim <= 256;
    let subgroup_size = traits.subgroup.unwrap_or(32);
    let sizes = [(64, 64), (64, 32), (32, 32)].into_iter().find(|(block, tile)| {
        let (d, s) = (head_dim, tile / 4);
        let widest = (d * (s + 2)).max(4 * s * (d / 4 + 2)).max(block * (d / 4 + 2));
        let threads = block / 16 * subgroup_size as usize;
        8 * widest + 24 * block * (s + 2) <= traits.workgroup_bytes as usize
            && threads <= traits.workgroup as usize
            && (head_dim * tile / 4).is_multiple_of(threads)
    });
    match sizes.filter(|_| suits) {
        Some((block, tile)) => PrefillShape::Coop { block, tile, subgroup_size },
        None => {
            let block = if head_dim <= 128 { 32 } else { 16 };
            PrefillShape::Plain { threads: traits.workgroup.min(128) as usize, block }
        }
    }
}

/// Returns the positions that one workgroup attends to alone for a single token: a word of keys for
/// each invocation at most.
pub(super) fn unsplit_positions(traits: &Traits, cache: CacheType) -> usize {
    (traits.workgroup as usize * elements_per_word(cache)).min(traits.unsplit_positions)
}

/// Returns the invocations that attend to a single token: as many as keep the parts of scores in the
/// workgroup's memory, but with a word of keys each at least.
pub(super) fn step_workgroup(traits: &Traits, split: bool, words: usize, scores: usize) -> usize {
    // Where there are many, several run beside each other.
    let mut workgroup = if split { SPLIT_WORKGROUP.min(traits.workgroup as usize) } else { traits.workgroup as usize };
    // Beside the parts, the queries, a key and what reductions need.
    while workgroup > words.max(64) && workgroup * scores * 4 + (12 << 10) > traits.workgroup_bytes as usize {
        workgroup /= 2;
    }
    workgroup
}
