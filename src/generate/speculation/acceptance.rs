//! Estimates the probabilities that drafts are accepted.

use super::MAX_ROWS;

/// The share of earlier drafts that remains after each further one.
const MEMORY: f64 = 0.95;
/// The weight, in drafts, of the average of all positions in the estimate for one.
const AVERAGE_WEIGHT: f64 = 2.0;
/// The estimate before the first draft, and its weight in drafts.
const FIRST: (f64, f64) = (0.6, 1.0);

/// The accepted drafts by position, where each earlier one was accepted.
#[derive(Clone, Debug, Default)]
pub(super) struct Acceptance {
    verified: [f64; MAX_ROWS],
    accepted: [f64; MAX_ROWS],
}

impl Acceptance {
    /// Counts a draft, of which the first `accepted` tokens were accepted. `next_refused`: whether
    /// the token after them was refused.
    pub fn record(&mut self, accepted: usize, next_refused: bool) {
        for count in self.verified.iter_mut().chain(&mut self.accepted) {
            *count *= MEMORY;
        }
        self.verified.iter_mut().take(accepted + usize::from(next_refused)).for_each(|count| *count += 1.0);
        self.accepted.iter_mut().take(accepted).for_each(|count| *count += 1.0);
    }

    /// Returns the expected numbers of tokens that steps with drafts of 0, 1, .. tokens give.
    pub fn expected_tokens(&self) -> [f64; MAX_ROWS] {
        let (first, weight) = FIRST;
        let sum = |counts: &[f64]| counts.iter().sum::<f64>();
        let average = (sum(&self.accepted) + first * weight) / (sum(&self.verified) + weight);
        let (mut expected, mut reached) = ([1.0; MAX_ROWS], 1.0);
        for len in 1..MAX_ROWS {
            let (verified, accepted) = (self.verified[len - 1], self.accepted[len - 1]);
            reached *= (accepted + average * AVERAGE_WEIGHT) / (verified + AVERAGE_WEIGHT);
            expected[len] = expected[len - 1] + reached;
        }
        expected
    }
}

/// Returns the probability that exactly `accepted` tokens of a longer draft are accepted, given the
/// expected numbers of tokens.
pub(super) fn probability_of(expected: &[f64; MAX_ROWS], accepted: usize) -> f64 {
    // The difference is the probability that all tokens up to a position are accepted.
    let reached = |len: usize| if len == 0 { 1.0 } else { expected[len] - expected[len - 1] };
    reached(accepted) - reached(accepted + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_approach_the_shares_by_position() {
        let mut acceptance = Acceptance::default();
        assert!((acceptance.expected_tokens()[1] - 1.6).abs() < 1e-9);
        // The first token is always accepted, the second in every other draft, the third never.
        for draft in 0..200 {
            acceptance.record(1 + draft % 2, true);
        }
        let expected = acceptance.expected_tokens();
        assert_eq!(expected[0], 1.0);
        for (len, tokens) in [(1, 2.0), (2, 2.5), (3, 2.5)] {
            assert!((expected[len] - tokens).abs() < 0.15, "{len}: {}", expected[len]);
        }
        for (accepted, probability) in [(0, 0.0), (1, 0.5), (2, 0.5), (3, 0.0)] {
            let found = probability_of(&expected, accepted);
            assert!((found - probability).abs() < 0.15, "{accepted}: {found}");
        }
    }

    #[test]
    fn drafts_that_end_with_the_text_are_not_refused() {
        let mut acceptance = Acceptance::default();
        (0..50).for_each(|_| acceptance.record(2, false));
        assert!(acceptance.expected_tokens()[2] > 2.9);
    }
}
