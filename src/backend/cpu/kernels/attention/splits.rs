//! How the attention of a run is divided: into units of its tokens, and each unit into sections of the cache.

use super::partial::Partial;
use crate::{graph::AttentionSpec, kv_cache::PAGE_POSITIONS};

/// Query rows in a unit, at most, unless one token has more.
const UNIT_ROWS: usize = 64;
/// Positions of a section: whole pages.
pub(super) const SECTION: usize = 8 * PAGE_POSITIONS;

/// Tokens in a unit.
pub(super) fn unit_tokens(spec: AttentionSpec) -> usize {
    (UNIT_ROWS * spec.kv_heads / spec.heads).max(1)
}

/// The first section of which the token at `position` sees something.
fn first_section(spec: AttentionSpec, position: usize) -> usize {
    spec.scores.window.map_or(0, |window| (position + 1).saturating_sub(window) / SECTION)
}

/// How many parts each unit of a run is divided into: its sections where the run is a single unit for each head.
pub(super) fn parts_of_unit(spec: AttentionSpec, start: usize, tokens: usize) -> usize {
    match tokens <= unit_tokens(spec) {
        true => (start + tokens).div_ceil(SECTION) - first_section(spec, start),
        false => 1,
    }
}

/// How many parts the work of a run divides into, for any threads to do in any order.
pub(crate) fn parts(spec: AttentionSpec, start: usize, tokens: usize) -> usize {
    tokens.div_ceil(unit_tokens(spec)) * spec.kv_heads * parts_of_unit(spec, start, tokens)
}

/// Floats that keep the results of a run's sections until they are joined.
pub(crate) fn partials_len(spec: AttentionSpec, start: usize, tokens: usize) -> usize {
    match parts_of_unit(spec, start, tokens) {
        1 => 0,
        parts => parts * spec.kv_heads * partial_len(spec, tokens),
    }
}

/// The most that [`partials_len`] of all runs of a step can be that has up to `tokens` tokens, and whose runs end at up
/// to `positions` positions together.
pub(crate) fn partials_bound(spec: AttentionSpec, tokens: usize, positions: usize) -> usize {
    // A run has up to one part more than there are whole sections, and no more floats a part than its tokens would
    // have one by one.
    let sections = positions / SECTION;
    let parts_of_tokens = sections.saturating_mul(tokens.min(unit_tokens(spec))).saturating_add(tokens);
    parts_of_tokens.saturating_mul(spec.kv_heads * partial_len(spec, 1))
}

/// Floats of a section's result for `tokens` tokens.
pub(super) fn partial_len(spec: AttentionSpec, tokens: usize) -> usize {
    Partial::len(tokens * spec.heads / spec.kv_heads, spec.head_dim.next_multiple_of(16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_for_partial_results_is_bounded() {
        // Runs `(start, tokens)`.
        let steps: [&[(usize, usize)]; 7] = [
            &[(0, 1)],
            &[(SECTION - 1, 1)],
            &[(SECTION, 1)],
            &[(40_000, 16)],
            &[(10_000, 32), (20_000, 8), (0, 100)],
            &[(SECTION, 3), (SECTION, 5), (3 * SECTION - 1, 7), (700, 1)],
            &[(10_000, 1000)],
        ];
        for (heads, kv_heads, head_dim) in [(16, 8, 128), (32, 8, 64), (3, 1, 20), (1, 1, 8), (71, 1, 256)] {
            let spec = AttentionSpec { layer: 0, heads, kv_heads, head_dim, scores: 1.0.into() };
            for runs in steps {
                let len: usize = runs.iter().map(|&(start, tokens)| partials_len(spec, start, tokens)).sum();
                let tokens = runs.iter().map(|(_, tokens)| tokens).sum();
                let positions = runs.iter().map(|(start, tokens)| start + tokens).sum();
                let bound = partials_bound(spec, tokens, positions);
                assert!(len <= bound, "{heads} heads, {runs:?}: {len} floats of {bound}");
            }
            assert_eq!(partials_len(spec, 0, SECTION), 0);
            assert!(partials_len(spec, SECTION, 1) >= 2 * heads * (head_dim + 2));
        }
    }
}
