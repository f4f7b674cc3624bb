//! Drafts tokens from repetitions: those that followed the last tokens of the text before.

use std::{collections::HashMap, iter::successors};

use super::Drafter;
use crate::Result;

/// Number of tokens that a repetition has at least.
const MIN: usize = 3;
/// The largest length of a repetition that is measured.
const MAX_MATCH: usize = 32;
/// Number of earlier occurrences that are compared.
const CANDIDATES: usize = 16;
/// Number of drafted tokens for each token of the repetition: short ones are often accidental.
const DRAFTS_PER_MATCH: usize = 2;
/// The largest number of tokens that are kept, about 40 bytes each.
const MAX_TOKENS: usize = 1 << 17;
/// A removed end of a text is kept as an earlier text if it has more tokens than this.
const MAX_REMOVED: usize = 16;

type Ngram = [u32; MIN];

/// Drafts from the text so far and from earlier texts ([Saxena
/// 2023](https://github.com/apoorvumang/prompt-lookup-decoding)).
#[derive(Debug, Default)]
pub(in crate::generate) struct Ngrams {
    /// The tokens of earlier texts, then those of the current one.
    tokens: Vec<u32>,
    /// Index of the first token of the current text.
    current: usize,
    /// Number of tokens at the start of the current text that are not kept.
    skipped: usize,
    /// One more than the index of the last token of each n-gram's last occurrence.
    last: HashMap<Ngram, u32>,
    /// By the index of an n-gram's last token, the same for the occurrence before; 0 if there is
    /// none.
    previous: Vec<u32>,
}

impl Drafter for Ngrams {
    fn draft(&mut self, ids: &[u32], max: usize, draft: &mut Vec<u32>) -> Result<()> {
        self.follow(ids);
        if let Some((end, len)) = self.longest_repetition() {
            let max = max.min(DRAFTS_PER_MATCH * len);
            // A repetition that overlaps itself goes on with its own draft.
            for index in end + 1..end + 1 + max {
                let beyond = index.checked_sub(self.tokens.len());
                let token = beyond.map_or_else(|| self.tokens[index], |beyond| draft[beyond]);
                draft.push(token);
            }
        }
        Ok(())
    }
}

impl Ngrams {
    /// Makes `ids` the current text.
    fn follow(&mut self, ids: &[u32]) {
        let known = &self.tokens[self.current..];
        let new = ids.get(self.skipped..).unwrap_or_default();
        // Usually the whole text is known, and compared quickly.
        let shared = if new.starts_with(known) {
            known.len()
        } else {
            known.iter().zip(new).take_while(|(known, id)| known == id).count()
        };
        let mut start = self.skipped + shared;
        if known.len() - shared > MAX_REMOVED || ids.len() < start {
            (self.current, self.skipped, start) = (self.tokens.len(), 0, 0);
        } else {
            (shared..known.len()).for_each(|_| self.pop());
        }
        if self.tokens.len() + ids.len() - start > MAX_TOKENS {
            *self = Self::default();
            self.skipped = ids.len().saturating_sub(MAX_TOKENS / 2);
            start = self.skipped;
        }
        ids[start..].iter().for_each(|id| self.push(*id));
    }

    fn push(&mut self, id: u32) {
        self.tokens.push(id);
        let end = self.tokens.len() as u32;
        let before = self.ngram().and_then(|ngram| self.last.insert(ngram, end));
        self.previous.push(before.unwrap_or(0));
    }

    fn pop(&mut self) {
        if let (Some(ngram), Some(before)) = (self.ngram(), self.previous.pop()) {
            match before {
                0 => _ = self.last.remove(&ngram),
                before => _ = self.last.insert(ngram, before),
            }
        } else {
            self.previous.truncate(self.tokens.len() - 1);
        }
        self.tokens.pop();
    }

    /// Returns the last n-gram.
    fn ngram(&self) -> Option<Ngram> {
        self.tokens.last_chunk().copied()
    }

    /// Returns the index of the last token and the length of the longest earlier occurrence of the
    /// text's end; of equally long ones, the last.
    fn longest_repetition(&self) -> Option<(usize, usize)> {
        self.ngram()?;
        let before = |end: u32| (end as usize).checked_sub(1);
        let last = self.previous.last().and_then(|end| before(*end));
        let ends = successors(last, |end| before(self.previous[*end])).take(CANDIDATES);
        let measured = ends.map(|end| {
            let before = self.tokens[..=end].iter().rev().zip(self.tokens.iter().rev());
            (end, before.take(MAX_MATCH).take_while(|(then, now)| then == now).count())
        });
        measured.max_by_key(|(end, len)| (*len, *end))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn draft(ngrams: &mut Ngrams, ids: &[u32], max: usize) -> Vec<u32> {
        let mut draft = vec![];
        ngrams.draft(ids, max, &mut draft).unwrap();
        draft
    }

    #[test]
    fn the_longest_repetition_goes_on() {
        let ngrams = &mut Ngrams::default();
        assert!(draft(ngrams, &[], 4).is_empty());
        assert!(draft(ngrams, &[1, 2], 4).is_empty());
        assert!(draft(ngrams, &[1, 2, 3, 4, 1, 2], 4).is_empty());
        assert_eq!(draft(ngrams, &[1, 2, 3, 4, 1, 2, 3], 4), [4, 1, 2, 3]);
        // `9 1 2 3` is longer than the later `1 2 3`.
        let ids = [9, 1, 2, 3, 5, 8, 1, 2, 3, 6, 9, 1, 2, 3];
        assert_eq!(draft(ngrams, &ids, 2), [5, 8]);
        // Twice as many drafts as the repetition has tokens.
        assert_eq!(draft(ngrams, &[7, 7, 7, 7], 100), [7; 6]);
    }

    #[test]
    fn earlier_texts_are_kept_until_there_are_too_many() {
        let ngrams = &mut Ngrams::default();
        let first: Vec<u32> = (100..200).collect();
        draft(ngrams, &first, 4);
        assert_eq!(draft(ngrams, &[5, 120, 121, 122], 4), [123, 124, 125, 126]);
        let long: Vec<u32> = (1000..1000 + MAX_TOKENS as u32 * 2).collect();
        draft(ngrams, &long, 4);
        assert!(ngrams.tokens.len() <= MAX_TOKENS && ngrams.last.len() <= MAX_TOKENS);
        let mut repeated = long;
        repeated.extend_from_within(MAX_TOKENS * 2 - 50..MAX_TOKENS * 2 - 40);
        assert_eq!(draft(ngrams, &repeated, 3).len(), 3);
    }

    /// Returns the longest repetition by comparing all places.
    fn longest(tokens: &[u32]) -> usize {
        let ends = 0..tokens.len().saturating_sub(1);
        let lens =
            ends.map(|end| tokens[..=end].iter().rev().zip(tokens.iter().rev()).take_while(|(a, b)| a == b).count());
        lens.max().filter(|len| *len >= MIN).unwrap_or(0).min(MAX_MATCH)
    }

    proptest! {
        #[test]
        fn texts_that_change_leave_no_trace(
            steps in prop::collection::vec((0..12usize, prop::collection::vec(0..3u32, 0..12)), 1..12),
        ) {
            let (mut ngrams, mut ids) = (Ngrams::default(), vec![]);
            for (removed, added) in steps {
                ids.truncate(ids.len().saturating_sub(removed));
                ids.extend(added);
                ngrams.follow(&ids);
                let mut fresh = Ngrams::default();
                fresh.follow(&ids);
                prop_assert_eq!(&ngrams.tokens, &fresh.tokens);
                prop_assert_eq!(&ngrams.last, &fresh.last);
                prop_assert_eq!(&ngrams.previous, &fresh.previous);
                let found = fresh.longest_repetition().map_or(0, |(_, len)| len);
                // Only the last occurrences are compared.
                prop_assert!(found <= longest(&ids) && (found > 0) == (longest(&ids) > 0));
            }
        }
    }
}
