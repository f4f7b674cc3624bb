//! Divides the attention of a run into blocks of query rows, and the positions that they see into
//! splits.

use super::partial::Partial;
use crate::{graph::AttentionSpec, kv_cache::PAGE_POSITIONS};

/// Largest number of query rows in a block, unless one token has more.
const MAX_BLOCK_ROWS: usize = 64;
/// Positions of a split: whole pages.
pub(super) const SPLIT_POSITIONS: usize = 8 * PAGE_POSITIONS;

/// Returns the number of tokens in a block.
pub(super) fn block_tokens(spec: AttentionSpec) -> usize {
    (MAX_BLOCK_ROWS * spec.kv_heads / spec.heads).max(1)
}

/// Returns the first split that the token at `position` sees.
fn first_split(spec: AttentionSpec, position: usize) -> usize {
    spec.scores.window.map_or(0, |window| window.first_seen(position) / SPLIT_POSITIONS)
}

/// Returns the number of work items of each block: its splits in a run of a single block, else 1.
pub(super) fn items_per_block(spec: AttentionSpec, start: usize, tokens: usize) -> usize {
    if tokens > block_tokens(spec) {
        return 1;
    }
    (start + tokens).div_ceil(SPLIT_POSITIONS) - first_split(spec, start)
}

/// Returns the number of work items of a run, which threads can do in any order.
pub(crate) fn work_items(spec: AttentionSpec, start: usize, tokens: usize) -> usize {
    tokens.div_ceil(block_tokens(spec)) * spec.kv_heads * items_per_block(spec, start, tokens)
}

/// Returns the number of floats that hold the partial results of a run until they are merged.
pub(crate) fn partials_len(spec: AttentionSpec, start: usize, tokens: usize) -> usize {
    match items_per_block(spec, start, tokens) {
        1 => 0,
        items => items * spec.kv_heads * partial_len(spec, tokens),
    }
}

/// Returns an upper bound of [`partials_len`], summed over the runs of a step that has up to
/// `tokens` tokens, and whose runs end at positions that add up to `positions` at most.
pub(crate) fn partials_bound(spec: AttentionSpec, tokens: usize, positions: usize) -> usize {
    // A run has up to one item more than whole splits, and each item has at most as many floats as
    // the run's tokens would have one by one.
    let splits = positions / SPLIT_POSITIONS;
    let items_of_tokens = splits.saturating_mul(tokens.min(block_tokens(spec))).saturating_add(tokens);
    items_of_tokens.saturating_mul(spec.kv_heads * partial_len(spec, 1))
}

/// Returns the number of floats of the partial result of a split for `tokens` tokens.
pub(super) fn partial_len(spec: AttentionSpec, tokens: usize) -> usize {
    Partial::len(tokens * spec.heads / spec.kv_heads, spec.head_dim.next_multiple_of(16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partials_bound_covers_every_division_into_runs() {
        const SPLIT: usize = SPLIT_POSITIONS;
        // Runs `(start, tokens)`.
        let steps: [&[(usize, usize)]; 7] = [
            &[(0, 1)],
            &[(SPLIT - 1, 1)],
            &[(SPLIT, 1)],
            &[(40_000, 16)],
            &[(10_000, 32), (20_000, 8), (0, 100)],
            &[(SPLIT, 3), (SPLIT, 5), (3 * SPLIT - 1, 7), (700, 1)],
            &[(10_000, 1000)],
        ];
        for (heads, kv_heads, head_dim) in [(16, 8, 128), (32, 8, 64), (3, 1, 20), (1, 1, 8), (71, 1, 256)] {
            let spec = AttentionSpec { layer: 0, heads, kv_heads, head_dim, keys_only: false, scores: 1.0.into() };
            for runs in steps {
                let len: usize = runs.iter().map(|&(start, tokens)| partials_len(spec, start, tokens)).sum();
                let tokens = runs.iter().map(|(_, tokens)| tokens).sum();
                let positions = runs.iter().map(|(start, tokens)| start + tokens).sum();
                let bound = partials_bound(spec, tokens, positions);
                assert!(len <= bound, "{heads} heads, {runs:?}: {len} floats of {bound}");
            }
            assert_eq!(partials_len(spec, 0, SPLIT), 0);
            assert!(partials_len(spec, SPLIT, 1) >= 2 * heads * (head_dim + 2));
        }
    }
}
