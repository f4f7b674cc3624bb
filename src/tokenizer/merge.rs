//! Merges the symbols of a word, the common part of both kinds of BPE.
//!
//! Adjacent symbols are joined, the pair with the best order first and the leftmost of equal pairs,
//! until no pair can be joined. The initial symbols and the order of pairs come from
//! [`MergeRules`]. A heap of pairs makes this O(n log n).
//!
//! A long word is merged window by window, so that the time is proportional to its length and the
//! heap stays in the processor's caches. The result is exact: a sequence of symbols is the merge of
//! its text if every two adjacent symbols are the merge of *their* text. If a join reached over a
//! border between two symbols, the first such join would have been the best of that pair alone
//! (compare the article "So many tokens, so little time" by van Antwerpen and Neubeck, 2024, on
//! <https://github.blog>).

use std::{cmp::Reverse, collections::BinaryHeap, ops::Range};

/// A range of bytes of a word.
#[derive(Clone, Copy)]
pub(super) struct Symbol {
    /// Offset of the first byte.
    pub start: u32,
    /// Number of bytes; 0 after it was joined to its left neighbor.
    pub len: u32,
    /// The token; `None` if the vocabulary has none for it.
    pub id: Option<u32>,
    /// Index of the left neighbor.
    previous: Option<u32>,
    /// Index of the right neighbor.
    next: Option<u32>,
}

/// The token of two joined symbols. Pairs with the lowest order are joined first.
pub(super) struct Join {
    pub order: i32,
    pub id: u32,
}

/// The initial symbols and the joins of a vocabulary.
pub(super) trait MergeRules {
    /// Returns the number of bytes of the first symbol of a text, and its token.
    fn first_symbol(&self, text: &[u8]) -> (usize, Option<u32>);

    /// Returns the join of two adjacent symbols of a word; `None` if they cannot be joined.
    fn join(&self, word: &[u8], left: &Symbol, right: &Symbol) -> Option<Join>;
}

/// Number of bytes in a window of a long word. Its symbols and pairs fit the smaller caches.
const WINDOW: usize = 1 << 11;

/// Number of symbols at the end of a window that are merged again in the next one, which may change
/// them.
const OVERLAP: usize = 8;

/// Merges words. Its memory is reused from word to word.
#[derive(Default)]
pub(super) struct Merger {
    symbols: Vec<Symbol>,
    pairs: BinaryHeap<Reverse<Pair>>,
}

/// A pair that can be joined. The order of the fields is the order of comparison.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    order: i32,
    left: u32,
    right: u32,
    len: u32,
    id: u32,
}

impl Merger {
    /// Returns the symbols of a merged word, which must be shorter than 4 GiB.
    pub fn merge(&mut self, rules: &impl MergeRules, word: &[u8]) -> &[Symbol] {
        if word.len() <= WINDOW {
            self.merge_range(rules, word, 0..word.len());
        } else {
            self.symbols = self.merge_windows(rules, word);
        }
        &self.symbols
    }

    fn merge_windows(&mut self, rules: &impl MergeRules, word: &[u8]) -> Vec<Symbol> {
        let mut settled: Vec<Symbol> = Vec::with_capacity(word.len() / 4);
        // Number of settled symbols at the start of each window.
        let mut windows = Vec::new();
        let mut scale = 1;
        loop {
            let start = settled.last().map_or(0, Symbol::end);
            self.merge_range(rules, word, start..word.len().min(start + scale * WINDOW));
            let found = std::mem::take(&mut self.symbols);
            if !self.stay_separate(rules, word, settled.last(), found.first()) {
                // Goes back twice as far, with windows twice as long, until no join crosses the
                // border.
                let back = windows.len().saturating_sub(scale);
                settled.truncate(windows[back]);
                windows.truncate(back);
                scale *= 2;
                continue;
            }
            windows.push(settled.len());
            let is_last = found.last().is_none_or(|last| last.end() == word.len());
            let open = if is_last { 0 } else { OVERLAP.min(found.len() / 2) };
            settled.extend_from_slice(&found[..found.len() - open]);
            if is_last {
                return settled;
            }
        }
    }

    /// Returns whether merging the text of two adjacent symbols gives the same two symbols.
    fn stay_separate(
        &mut self,
        rules: &impl MergeRules,
        word: &[u8],
        left: Option<&Symbol>,
        right: Option<&Symbol>,
    ) -> bool {
        let (Some(left), Some(right)) = (left, right) else { return true };
        self.merge_range(rules, word, left.start as usize..right.end());
        matches!(self.symbols[..], [first, _] if first.len == left.len)
    }

    /// Merges a range of a word into `self.symbols`.
    fn merge_range(&mut self, rules: &impl MergeRules, word: &[u8], range: Range<usize>) {
        self.symbols.clear();
        let mut start = range.start;
        while start < range.end {
            let (len, id) = rules.first_symbol(&word[start..]);
            let index = self.symbols.len() as u32;
            let (previous, next) = (index.checked_sub(1), Some(index + 1));
            self.symbols.push(Symbol { start: start as u32, len: len as u32, id, previous, next });
            start += len;
        }
        if let Some(last) = self.symbols.last_mut() {
            last.next = None;
        }
        for right in 1..self.symbols.len() as u32 {
            self.consider(rules, word, right - 1, right);
        }
        while let Some(Reverse(pair)) = self.pairs.pop() {
            self.join(rules, word, &pair);
        }
        self.symbols.retain(|symbol| symbol.len > 0);
    }

    fn join(&mut self, rules: &impl MergeRules, word: &[u8], &Pair { left, right, len, id, .. }: &Pair) {
        let (a, b) = (self.symbols[left as usize], self.symbols[right as usize]);
        // A pair is outdated if one of its symbols has been joined to another neighbor.
        if a.len == 0 || b.len == 0 || a.len + b.len != len {
            return;
        }
        self.symbols[right as usize].len = 0;
        let joined = &mut self.symbols[left as usize];
        (joined.len, joined.id, joined.next) = (len, Some(id), b.next);
        if let Some(next) = b.next {
            self.symbols[next as usize].previous = Some(left);
            self.consider(rules, word, left, next);
        }
        if let Some(previous) = a.previous {
            self.consider(rules, word, previous, left);
        }
    }

    fn consider(&mut self, rules: &impl MergeRules, word: &[u8], left: u32, right: u32) {
        let (a, b) = (&self.symbols[left as usize], &self.symbols[right as usize]);
        if let Some(Join { order, id }) = rules.join(word, a, b) {
            self.pairs.push(Reverse(Pair { order, left, right, len: a.len + b.len, id }));
        }
    }
}

impl Symbol {
    pub fn end(&self) -> usize {
        self.start as usize + self.len as usize
    }
}
