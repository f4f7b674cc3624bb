//! Symbols in; the same stretch of text as fewer, longer symbols out.
//!
//! Both kinds of BPE join neighbours, the best pair first and of equals the leftmost, until no pair is left. They differ in what makes
//! a pair and how good it is, which the caller says. A heap of pairs makes it O(n log n) for a word of any length.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A stretch of the text.
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
    /// Appends a symbol, of at least one byte.
    pub fn push(&mut self, start: usize, len: usize, id: Option<u32>) {
        let index = self.symbols.len() as u32;
        if let Some(last) = self.symbols.last_mut() {
            last.next = Some(index);
        }
        let (start, len) = (start as u32, len as u32);
        self.symbols.push(Symbol { start, len, id, previous: index.checked_sub(1), next: None });
    }

    /// Joins the symbols pushed so far, and gives out those that remain.
    pub fn merge(&mut self, join: impl Fn(&Symbol, &Symbol) -> Option<Join>) -> impl Iterator<Item = Symbol> {
        for right in 1..self.symbols.len() as u32 {
            self.consider(right - 1, right, &join);
        }
        while let Some(Reverse(Pair { left, right, len, id, .. })) = self.pairs.pop() {
            let (a, b) = (self.symbols[left as usize], self.symbols[right as usize]);
            // One of them has been joined to another neighbour since.
            if a.len == 0 || b.len == 0 || a.len + b.len != len {
                continue;
            }
            self.symbols[right as usize].len = 0;
            let joined = &mut self.symbols[left as usize];
            (joined.len, joined.id, joined.next) = (len, Some(id), b.next);
            if let Some(next) = b.next {
                self.symbols[next as usize].previous = Some(left);
                self.consider(left, next, &join);
            }
            if let Some(previous) = a.previous {
                self.consider(previous, left, &join);
            }
        }
        self.symbols.drain(..).filter(|symbol| symbol.len > 0)
    }

    fn consider(&mut self, left: u32, right: u32, join: impl Fn(&Symbol, &Symbol) -> Option<Join>) {
        let (a, b) = (&self.symbols[left as usize], &self.symbols[right as usize]);
        if let Some(Join { order, id }) = join(a, b) {
            self.pairs.push(Reverse(Pair { order, left, right, len: a.len + b.len, id }));
        }
    }
}
