//! Divides the work of products and attention among workgroups, for an adapter and a shape.

use serde::Serialize;

use super::{
    context::Traits,
    kernels::{elements_per_word, padded},
};
use crate::{graph::AttentionSpec, kv_cache::CacheType, quant::UNIT};

/// Largest number of invocations that attend to a split.
pub(super) const SPLIT_WORKGROUP: usize = 256;

/// Largest number of matrices in a dispatch of tiles.
pub(super) const MAX_PARTS: usize = 3;

/// Largest number of matrices in a dispatch of up to 16 rows: the four projections of a gated
/// DeltaNet.
const MAX_FEW_PARTS: usize = 4;

/// Units that an invocation reads ahead. More would take registers, so that fewer invocations could
/// wait for memory at the same time.
const READ_AHEAD: usize = 2;

/// Workgroups of a product along a dimension; a dispatch has at most 65,535.
const MAX_WORKGROUPS: usize = 60_000;

/// The number of multiprocessors of the largest GPUs: an H100 and an H200 have 132.
const MULTIPROCESSORS: usize = 132;

/// The division of a product of up to 16 rows (`matmul_few`).
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct GemvShape {
    /// Invocations that share a row of the matrix.
    pub team: usize,
    /// Rows of the matrix that a team computes at a time.
    pub rows: usize,
    /// Number of times that a team computes `rows` rows.
    pub passes: usize,
    /// Units of a row that an invocation reads ahead.
    pub unrolled: usize,
    /// Invocations of a workgroup.
    pub workgroup: usize,
}

impl GemvShape {
    /// Returns the rows of the matrix that a workgroup computes.
    pub fn group_rows(&self) -> usize {
        self.workgroup / self.team * self.rows * self.passes
    }
}

/// A product of up to 16 rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct FewRows {
    /// Rows of the activations.
    pub tokens: usize,
    /// Rows of the matrices.
    pub rows: usize,
    /// Units of a row.
    pub units: usize,
    /// Number of matrices that are multiplied at a time: 2 if they are gate and up.
    pub together: usize,
    /// Whether the result is int8: a workgroup then has a block of 32 rows of the matrix.
    pub writes_q8: bool,
    /// Whether a workgroup copies tables of the matrices' formats to its memory.
    pub has_tables: bool,
}

/// Returns the number of matrices that a dispatch of up to 16 rows multiplies. Each has up to three
/// buffers, beside two of the activations and the step's.
pub(super) fn few_parts(traits: &Traits) -> usize {
    ((traits.storage_buffers as usize).saturating_sub(3) / 3).clamp(1, MAX_FEW_PARTS)
}

/// Divides a product.
pub(super) fn gemv(traits: &Traits, product: FewRows) -> GemvShape {
    let FewRows { tokens, rows, units, together, writes_q8, has_tables } = product;
    let widest = traits.subgroup.unwrap_or(8).min(32) as usize;
    // Reading several rows of the activations again and again would limit the speed, so an
    // invocation multiplies them with several rows of matrices; with small teams, a workgroup has
    // more rows in any case. The result of one matrix as int8 has few workgroups: where each has a
    // multiprocessor to itself, more invocations are faster at eight rows.
    let one_q8 = writes_q8 && together == 1;
    let alone = tokens == 8 && rows.div_ceil(32) <= MULTIPROCESSORS;
    let shared = match tokens {
        1 => 1,
        2 | 3 if widest < 32 || together == 2 => 1,
        2 | 3 => 2,
        4..=8 if one_q8 && (widest < 32 || alone) => 1,
        _ if widest < 32 => 2 / together,
        4..8 if !one_q8 => 2,
        _ => 4 / together,
    };
    let team = widest.min(units.next_power_of_two());
    let max_workgroup = traits.workgroup as usize;
    let unrolled = |rows: usize| (READ_AHEAD / (rows * together)).clamp(1, units.div_ceil(team));
    if writes_q8 {
        // At least 8 invocations in a team, so that a workgroup has 32 or more. Two matrices take
        // twice the registers, so half of the teams then compute two rows of the matrix, one after
        // the other.
        let team = team.max(8).min(widest);
        let workgroup = (32 * team / together.max(shared)).min(max_workgroup);
        let passes = 32 * team / (workgroup * shared);
        return GemvShape { team, rows: shared, passes, unrolled: unrolled(shared), workgroup };
    }
    // Small workgroups start as soon as a few invocations have ended. But each copies the tables,
    // and a large one has room for many small teams.
    let most = max_workgroup.min(256).max(team);
    let least = if has_tables || widest < 32 { most } else { most.min(64) };
    let (mut workgroup, mut team_rows) = (least, shared);
    while rows.div_ceil(workgroup / team * team_rows) > MAX_WORKGROUPS {
        let grown = if workgroup < most { &mut workgroup } else { &mut team_rows };
        *grown *= 2;
    }
    GemvShape { team, rows: team_rows, passes: 1, unrolled: unrolled(team_rows), workgroup }
}

/// The tile of a product of more than 16 rows that a workgroup computes.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct ProductTile {
    /// Rows of the activations.
    pub tokens: usize,
    /// Rows of the matrix.
    pub rows: usize,
    /// Columns of both that are in the workgroup's memory at a time.
    pub columns: usize,
    /// Invocations of the workgroup.
    pub threads: usize,
}

/// The part of a tile that a subgroup computes; its rows are multiples of 16.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct SubgroupTile {
    /// Rows of the activations.
    pub tokens: usize,
    /// Rows of the matrix.
    pub rows: usize,
    /// Number of subgroups that compute the same rows, each for its slice of the columns.
    pub slices: usize,
}

/// Rows of the activations in a small tile. The slots of each expert are divided into tiles of this
/// size, of which the last can be partial.
pub(super) const SMALL_TILE_TOKENS: usize = 64;

/// Chooses the tile of a product on any adapter.
pub(super) fn tile(traits: &Traits) -> ProductTile {
    ProductTile { tokens: SMALL_TILE_TOKENS, rows: 64, columns: UNIT, threads: traits.workgroup.min(128) as usize }
}

/// The number of rows of the activations for which a tile is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TileRows {
    /// Up to 32, by default.
    Smallest,
    /// Up to 64, by default.
    Small,
    /// Up to 256, by default.
    Large,
    /// More.
    Largest,
}

impl TileRows {
    pub const ALL: [Self; 4] = [Self::Smallest, Self::Small, Self::Large, Self::Largest];
}

/// Chooses the tile of a product on matrix units, and the part of it that a subgroup computes. The
/// matrix has `rows` rows and `columns` columns.
///
/// A processor runs one or two workgroups at a time, and a GPU has about a hundred processors. So
/// few rows have small tiles, whose subgroups divide the columns: there are as many subgroups to
/// decode weights as in large tiles, and more workgroups.
pub(super) fn coop_tile(traits: &Traits, rows: usize, columns: usize, step: TileRows) -> (ProductTile, SubgroupTile) {
    // Tokens, rows and columns of the tile; tokens and rows of a subgroup; slices.
    let preferred: &[[usize; 6]] = match step {
        TileRows::Smallest if rows <= 4224 => &[[32, 32, 256, 32, 32, 8], [32, 32, 128, 32, 32, 4]],
        TileRows::Smallest => &[[32, 32, 128, 32, 32, 4]],
        TileRows::Small if rows <= 4224 => &[[64, 32, 128, 32, 32, 4]],
        TileRows::Small => &[[64, 64, 128, 32, 32, 2]],
        TileRows::Large if rows <= 6144 => &[[64, 64, 128, 32, 32, 2]],
        TileRows::Largest if rows <= 2112 => &[],
        TileRows::Large | TileRows::Largest => &[[128, 128, 2 * UNIT, 32, 64, 1], [128, 128, UNIT, 32, 64, 1]],
    };
    let any = [[SMALL_TILE_TOKENS, 64, 2 * UNIT, 32, 32, 1], [SMALL_TILE_TOKENS, 64, UNIT, 32, 32, 1]];
    let subgroup = traits.subgroup.unwrap_or(32) as usize;
    let subgroups = |[t, r, _, own_t, own_r, slices]: [usize; 6]| t / own_t * (r / own_r) * slices;
    let fits = |shape: &[usize; 6]| {
        let [t, r, c, ..] = *shape;
        let bytes = 2 * (t + r) * (c + 8) + 1024 * subgroups(*shape);
        columns.is_multiple_of(c)
            && bytes <= traits.workgroup_bytes as usize
            && subgroups(*shape) * subgroup <= traits.workgroup as usize
    };
    let shape = preferred.iter().chain(&any).copied().find(fits).unwrap_or(any[1]);
    let [tile_tokens, tile_rows, tile_columns, own_tokens, own_rows, slices] = shape;
    let threads = subgroups(shape) * subgroup;
    let tile = ProductTile { tokens: tile_tokens, rows: tile_rows, columns: tile_columns, threads };
    (tile, SubgroupTile { tokens: own_tokens, rows: own_rows, slices })
}

/// The division of the attention of more than 16 tokens.
#[derive(Clone, Copy, Debug)]
pub(super) enum PrefillShape {
    /// The kernel for any adapter.
    Plain {
        /// Invocations of a workgroup.
        threads: usize,
        /// Tokens of a workgroup.
        block: usize,
    },
    /// The kernel for matrix units.
    Coop {
        /// Tokens of a workgroup.
        block: usize,
        /// Positions that the workgroup attends to at a time.
        tile: usize,
        /// Invocations of a subgroup.
        subgroup_size: u32,
    },
}

impl PrefillShape {
    /// Returns the tokens of a workgroup.
    pub fn query_block(self) -> usize {
        match self {
            Self::Plain { block, .. } | Self::Coop { block, .. } => block,
        }
    }
}

/// Divides attention. Matrix units need a cache in f16, where heads are padded to whole 16 by 16
/// matrices, with heads of whole vectors of four and with values beside the keys.
pub(super) fn prefill(traits: &Traits, spec: &AttentionSpec, cache: CacheType) -> PrefillShape {
    let head_dim = spec.head_dim;
    let suits =
        traits.matrices && cache == CacheType::F16 && head_dim.is_multiple_of(4) && head_dim <= 256 && !spec.keys_only;
    let dim = padded(head_dim);
    let subgroup_size = traits.subgroup.unwrap_or(32);
    let sizes = [(64, 64), (64, 32), (32, 32)].into_iter().find(|(block, tile)| {
        let (d, s) = (dim, tile / 4);
        let widest = (d * (s + 2)).max(4 * s * (d / 4 + 2)).max(block * (d / 4 + 2));
        let threads = block / 16 * subgroup_size as usize;
        8 * widest + 24 * block * (s + 2) <= traits.workgroup_bytes as usize
            && threads <= traits.workgroup as usize
            && (dim * tile / 4).is_multiple_of(threads)
    });
    match sizes.filter(|_| suits) {
        Some((block, tile)) => PrefillShape::Coop { block, tile, subgroup_size },
        None => {
            let block = if head_dim <= 128 { 32 } else { 16 };
            PrefillShape::Plain { threads: traits.workgroup.min(128) as usize, block }
        }
    }
}

/// Returns the largest number of cached positions that one workgroup attends to for a single token:
/// at most a word of keys for each invocation.
pub(super) fn unsplit_positions(traits: &Traits, cache: CacheType) -> usize {
    (traits.workgroup as usize * elements_per_word(cache)).min(traits.choices.unsplit_positions)
}

/// Returns the invocations of a workgroup that attends to up to `split` positions of a single token
/// with `lanes` query heads, if a word has `per_word` elements of a key. The partial scores must
/// fit the workgroup's memory. `many` says whether a step has many workgroups.
pub(super) fn step_workgroup(traits: &Traits, many: bool, split: usize, per_word: usize, lanes: usize) -> usize {
    // An invocation for each word of a key, and otherwise small workgroups, so that several run on
    // a processor at the same time.
    let words = split / per_word;
    let most = traits.workgroup as usize;
    let mut workgroup = if many { SPLIT_WORKGROUP.max(words).min(most) } else { most };
    // 12 KB for the queries, a key, and reductions.
    let fits = |workgroup: usize| workgroup * per_word * lanes * 4 + (12 << 10) <= traits.workgroup_bytes as usize;
    while workgroup > words.max(64) && !fits(workgroup) {
        workgroup /= 2;
    }
    workgroup
}
