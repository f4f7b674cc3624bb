//! How kernels are cut to an adapter and a shape.

use serde_json::{Value, json};

use super::context::Traits;
use crate::{kv_cache::CacheType, quant::UNIT};

/// Invocations that attend to one of a sequence's many spans.
pub(super) const SPLIT_WORKGROUP: usize = 256;

/// Matrices that one dispatch multiplies with.
pub(super) const MAX_PARTS: usize = 3;

/// Units of rows that an invocation has on their way together. More take registers, and so leave fewer invocations to
/// wait for memory side by side.
const ON_THEIR_WAY: usize = 2;

/// How a kernel for few rows divides its work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Few {
    /// Invocations that share a row.
    pub team: usize,
    /// Rows that a team has at a time.
    pub rows: usize,
    /// How often it takes as many.
    pub passes: usize,
    /// Units of a row that an invocation has on their way together.
    pub unrolled: usize,
    pub workgroup: usize,
}

impl Few {
    /// Rows of a workgroup.
    pub fn group_rows(&self) -> usize {
        self.workgroup / self.team * self.rows * self.passes
    }
}

/// The division for rows of so many units, of as many matrices at a time as are multiplied together. A workgroup that
/// writes its results in 8 bits has a block of 32 rows.
pub(super) fn few(traits: &Traits, units: usize, rows: usize, emits: bool, together: usize) -> Few {
    let widest = traits.subgroup.unwrap_or(8).min(32) as usize;
    let team = widest.min(units.next_power_of_two());
    let most = traits.workgroup as usize;
    let unrolled = |rows: usize| (ON_THEIR_WAY / (rows * together)).clamp(1, units.div_ceil(team));
    if emits {
        // A team for each of the block's rows, as far as two matrices leave them registers.
        let workgroup = (32 * team / together).min(most);
        let passes = 32 * team / workgroup;
        return Few { team, rows: 1, passes, unrolled: unrolled(1), workgroup };
    }
    let workgroup = most.min(256).max(team);
    // A dispatch has at most 65,535 workgroups along a dimension.
    let mut at_once = 1;
    while rows.div_ceil(workgroup / team * at_once) > 60_000 {
        at_once *= 2;
    }
    Few { team, rows: at_once, passes: 1, unrolled: unrolled(at_once), workgroup }
}

/// How a tiled product divides its work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    pub tokens: usize,
    pub rows: usize,
    columns: usize,
    /// What a subgroup has of the tile.
    patch: [usize; 2],
    threads: usize,
}

impl Tile {
    pub fn values(&self, traits: &Traits) -> Value {
        json!({
            "tile": { "tokens": self.tokens, "rows": self.rows, "columns": self.columns },
            "patch": { "tokens": self.patch[0], "rows": self.patch[1] },
            "threads": self.threads,
            "subgroup_size": traits.subgroup,
        })
    }
}

/// Rows of a small tile, of which one expert's slots make whole ones but for the last.
pub(super) const SLOTS: usize = 64;

/// The tile for a product with so many rows and columns. Two small workgroups run beside each other where one large
/// does, so small ones are for products that they finish in one round.
pub(super) fn choose(traits: &Traits, matrices: bool, rows: usize, columns: usize) -> Tile {
    if !matrices {
        let threads = traits.workgroup.min(128) as usize;
        return Tile { tokens: SLOTS, rows: 64, columns: UNIT, patch: [0, 0], threads };
    }
    let columns = if columns.is_multiple_of(2 * UNIT) { 2 * UNIT } else { UNIT };
    let subgroup = traits.subgroup.unwrap_or(32) as usize;
    let large_bytes = 2 * 128 * (columns + 8) * 2 + 1024 * 8;
    let fits = large_bytes <= traits.workgroup_bytes as usize && 8 * subgroup <= traits.workgroup as usize;
    match rows > 2112 && fits {
        true => Tile { tokens: 128, rows: 128, columns, patch: [32, 64], threads: 8 * subgroup },
        false => Tile { tokens: SLOTS, rows: 64, columns, patch: [32, 32], threads: 4 * subgroup },
    }
}

/// How attention of many tokens divides its work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefill {
    pub template: &'static str,
    threads: usize,
    /// Tokens that attend together.
    pub block: usize,
    /// Positions that they attend to at a time, with matrices.
    span: usize,
}

impl Prefill {
    pub fn with_matrices(&self) -> bool {
        self.span > 0
    }

    pub fn values(&self, traits: &Traits) -> Value {
        json!({ "threads": self.threads, "block": self.block, "span": self.span, "subgroup_size": traits.subgroup })
    }
}

/// The division for heads of so many elements; matrix units need half precision and whole matrices.
pub(super) fn prefill(traits: &Traits, head_dim: usize, cache: CacheType) -> Prefill {
    let suits = traits.matrices && cache == CacheType::F16 && head_dim.is_multiple_of(16) && head_dim <= 256;
    let with_matrices = [(64, 64), (64, 32), (32, 32)].into_iter().find(|(block, span)| {
        let (d, s) = (head_dim, span / 4);
        let widest = (d * (s + 2)).max(4 * s * (d / 4 + 2)).max(block * (d / 4 + 2));
        let threads = block / 16 * traits.subgroup.unwrap_or(32) as usize;
        8 * widest + 24 * block * (s + 2) <= traits.workgroup_bytes as usize
            && threads <= traits.workgroup as usize
            && (head_dim * span / 4).is_multiple_of(threads)
    });
    match with_matrices.filter(|_| suits) {
        Some((block, span)) => Prefill { template: "attention_prefill_coop", threads: 0, block, span },
        None => {
            let block = if head_dim <= 128 { 32 } else { 16 };
            Prefill { template: "attention_prefill", threads: traits.workgroup.min(128) as usize, block, span: 0 }
        }
    }
}

/// Positions that one workgroup attends to alone for a single token: a word of keys for each invocation at most.
pub(super) fn span(traits: &Traits, cache: CacheType) -> usize {
    (traits.workgroup as usize * per_word(cache)).min(traits.span)
}

/// Elements of the cache in a word.
pub(super) fn per_word(cache: CacheType) -> usize {
    match cache {
        CacheType::F32 => 1,
        CacheType::F16 => 2,
        CacheType::Q8_0 => 4,
    }
}

/// Invocations that attend for a single token: as many as keep the parts of scores in the workgroup's memory, but with
/// a word of keys each at least.
pub(super) fn step_workgroup(traits: &Traits, split: bool, words: usize, scores: usize) -> usize {
    // Where there are many, several run beside each other.
    let mut workgroup = if split { SPLIT_WORKGROUP.min(traits.workgroup as usize) } else { traits.workgroup as usize };
    // Beside the parts, the queries, a key and what reductions need.
    while workgroup > words.max(64) && workgroup * scores * 4 + (12 << 10) > traits.workgroup_bytes as usize {
        workgroup /= 2;
    }
    workgroup
}
