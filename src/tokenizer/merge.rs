//! A word in; the symbols that neighbours in it were joined to out.
//!
//! Both kinds of BPE join neighbours, the best pair first and of equals the leftmost, until no pair is left. They differ in what a
//! word begins as, what makes a pair and how good it is, which [`Rules`] says. A heap of pairs makes it O(n log n).
//!
//! A long word is joined window by window, so that time stays in proportion to length and the heap in the processor's caches. That is
//! exact: symbols in a row are what their text becomes if every two neighbours among them are what *their* text becomes.
//! For if some join reached over a border between two, then the first that did would have been the best of that pair alone
//! (compare [van Antwerpen & Neubeck 2024](https://github.blog/ai-and-ml/llms/so-many-tokens-so-little-time-introducing-a-faster-more-flexible-byte-pair-tokenizer/)).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// A stretch of a word.
#[derive(Clone, Copy)]
pub(super) struct Symbol {
    /// Where it starts.
    pub start: u32,
    /// Its bytes; none once its left neighbour has swallowed it.
    pub len: u32,
    /// Its token, if it has one.
    pub id: Option<u32>,
    previous: Option<u32>,
    next: Option<u32>,
}

/// The token that two neighbours make; those of the lowest order are joined first.
pub(super) struct Join {
    pub order: i32,
    pub id: u32,
}

/// How a vocabulary joins symbols.
pub(super) trait Rules {
    /// The bytes of the symbol that a text begins as, and its token.
    fn first(&self, text: &[u8]) -> (usize, Option<u32>);

    /// What two neighbours in a word make.
    fn join(&self, word: &[u8], a: &Symbol, b: &Symbol) -> Option<Join>;
}

/// Bytes of a long word that are joined at a time: its symbols and pairs fit the smaller caches.
const WINDOW: usize = 1 << 11;

/// Symbols at the end of a window that are left to the next, which may yet change them.
const OVERLAP: usize = 8;

/// Joins symbols. Its memory serves one word after another.
#[derive(Default)]
pub(super) struct Merger {
    symbols: Vec<Symbol>,
    pairs: BinaryHeap<Reverse<Pair>>,
}

/// Compared from top to bottom.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    order: i32,
    left: u32,
    right: u32,
    len: u32,
    id: u32,
}

impl Merger {
    /// The symbols that a word, of less than 4 GiB, becomes.
    pub fn merge(&mut self, rules: &impl Rules, word: &[u8]) -> &[Symbol] {
        if word.len() <= WINDOW {
            self.merge_range(rules, word, 0..word.len());
        } else {
            self.symbols = self.merge_windows(rules, word);
        }
        &self.symbols
    }

    fn merge_windows(&mut self, rules: &impl Rules, word: &[u8]) -> Vec<Symbol> {
        let mut settled: Vec<Symbol> = Vec::with_capacity(word.len() / 4);
        // How many symbols were settled when each window began.
        let mut windows = Vec::new();
        let mut scale = 1;
        loop {
            let start = settled.last().map_or(0, Symbol::end);
            self.merge_range(rules, word, start..word.len().min(start + scale * WINDOW));
            let found = std::mem::take(&mut self.symbols);
            if !self.are_apart(rules, word, settled.last(), found.first()) {
                // Twice as far back, in windows twice as long, until one begins where nothing reaches over.
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

    /// Whether the text of two neighbours becomes these two.
    fn are_apart(&mut self, rules: &impl Rules, word: &[u8], a: Option<&Symbol>, b: Option<&Symbol>) -> bool {
        let (Some(a), Some(b)) = (a, b) else { return true };
        self.merge_range(rules, word, a.start as usize..b.end());
        matches!(self.symbols[..], [first, _] if first.len == a.len)
    }

    /// Joins what a range of a word begins as.
    fn merge_range(&mut self, rules: &impl Rules, word: &[u8], range: Range<usize>) {
        self.symbols.clear();
        let mut start = range.start;
        while start < range.end {
            let (len, id) = rules.first(&word[start..]);
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

    fn join(&mut self, rules: &impl Rules, word: &[u8], &Pair { left, right, len, id, .. }: &Pair) {
        let (a, b) = (self.symbols[left as usize], self.symbols[right as usize]);
        // One of them has been joined to another neighbour since.
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

    fn consider(&mut self, rules: &impl Rules, word: &[u8], left: u32, right: u32) {
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
