//! SentencePiece's BPE (`tokenizer.ggml.model` = `llama`): text in, ids out.
//!
//! The whole text is one word, its spaces written as U+2581. Of all neighbours that join into a token, those with the best score
//! are joined first, the leftmost of equals ([Kudo & Richardson 2018](https://arxiv.org/abs/1808.06226)). Ranked merges, as the
//! `tokenizers` crate has them, are no substitute: one rank cannot say "the leftmost of equal scores".

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use ahash::AHashMap;

use super::vocabulary::{self, Kind, Vocabulary, same_length};
use super::{Encoder, SpecialFinder};
use crate::error::{Error, Result};
use crate::gguf::{Array, Gguf};

/// How SentencePiece writes a space.
pub(super) const SPACE: &str = "\u{2581}";

/// Joins characters into tokens.
#[derive(Debug)]
pub(super) struct Spm {
    /// The tokens that text can become, with their scores.
    pieces: AHashMap<String, (u32, f32)>,
    longest: usize,
    /// The token for each byte that has one, for characters that are no token.
    bytes: [Option<u32>; 256],
    unknown: Option<u32>,
    adds_space: bool,
}

pub(super) fn from_gguf(gguf: &Gguf) -> Result<(Vocabulary, Encoder)> {
    const SCORES: &str = "tokenizer.ggml.scores";
    let tokens = vocabulary::tokens(gguf)?;
    let mut vocabulary = Vocabulary::from_gguf(gguf, tokens, decode)?;
    vocabulary.read_flags(gguf, true)?;
    vocabulary.adds_space = gguf.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    let scores = match gguf.array(SCORES)? {
        Some(Array::F32(scores)) => scores,
        Some(_) => return Err(Error::metadata(SCORES, "must be an array of 32-bit floats")),
        None => return Err(Error::metadata(SCORES, "is missing")),
    };
    same_length(SCORES, scores.len(), tokens.len())?;
    let finder = SpecialFinder::from_gguf(gguf, tokens, &vocabulary)?;
    let spm = Spm::new(tokens, scores, &vocabulary);
    Ok((vocabulary, Encoder::Spm(finder, spm)))
}

/// Appends the bytes that a token stands for.
pub(super) fn decode(text: &str, kind: Kind, out: &mut Vec<u8>) {
    match kind {
        Kind::Normal | Kind::Unused => out.extend_from_slice(text.replace(SPACE, " ").as_bytes()),
        Kind::Byte => match byte(text) {
            Some(byte) => out.push(byte),
            None => out.extend_from_slice(text.as_bytes()),
        },
        Kind::Control | Kind::Unknown | Kind::UserDefined => out.extend_from_slice(text.as_bytes()),
    }
}

/// The byte that a token like `<0x0A>` stands for.
pub(super) fn byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

impl Spm {
    fn new(tokens: &[String], scores: &[f32], vocabulary: &Vocabulary) -> Self {
        let mut this = Self {
            pieces: AHashMap::with_capacity(tokens.len()),
            longest: 0,
            bytes: [None; 256],
            unknown: vocabulary.unknown,
            adds_space: vocabulary.adds_space,
        };
        for (((text, &kind), &score), id) in tokens.iter().zip(vocabulary.kinds()).zip(scores).zip(0..) {
            match kind {
                Kind::Control | Kind::Unknown => {}
                Kind::Byte => {
                    if let Some(byte) = byte(text) {
                        this.bytes[byte as usize] = Some(id);
                    }
                }
                Kind::Normal | Kind::UserDefined | Kind::Unused => {
                    this.longest = this.longest.max(text.len());
                    this.pieces.insert(text.clone(), (id, score));
                }
            }
        }
        this
    }

    /// Appends the ids of a text without special tokens; `at_start` where no other text is before it.
    pub fn encode(&self, text: &str, at_start: bool, ids: &mut Vec<u32>) -> Result<()> {
        let mut spelt = String::with_capacity(text.len() * 5 / 4 + SPACE.len());
        if self.adds_space && at_start {
            spelt.push_str(SPACE);
        }
        for (index, part) in text.split(' ').enumerate() {
            spelt.push_str(if index == 0 { "" } else { SPACE });
            spelt.push_str(part);
        }
        if u32::try_from(spelt.len()).is_err() {
            return Err(Error::Tokenizer(format!("a text of {} bytes is too long", text.len())));
        }
        for piece in Joiner::new(self, &spelt).join() {
            match self.pieces.get(piece) {
                Some(&(id, _)) => ids.push(id),
                None => self.fall_back(piece, ids)?,
            }
        }
        Ok(())
    }

    /// A character that is no token becomes its bytes, or else the unknown token.
    fn fall_back(&self, char: &str, ids: &mut Vec<u32>) -> Result<()> {
        let start = ids.len();
        for byte in char.bytes() {
            match self.bytes[byte as usize] {
                Some(id) => ids.push(id),
                None => {
                    ids.truncate(start);
                    let none =
                        || Error::Tokenizer(format!("the vocabulary has no token for `{}`", char.escape_debug()));
                    ids.push(self.unknown.ok_or_else(none)?);
                    break;
                }
            }
        }
        Ok(())
    }
}

/// A stretch of the text, linked to its neighbours; empty once its left neighbour has swallowed it.
struct Symbol {
    start: u32,
    len: u32,
    previous: Option<u32>,
    next: Option<u32>,
}

/// Two neighbours that make a token of `len` bytes.
struct Pair {
    score: f32,
    left: u32,
    right: u32,
    len: u32,
}

impl Ord for Pair {
    /// The greatest is joined first.
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Pair {}

struct Joiner<'a> {
    spm: &'a Spm,
    text: &'a str,
    symbols: Vec<Symbol>,
    pairs: BinaryHeap<Pair>,
}

impl<'a> Joiner<'a> {
    fn new(spm: &'a Spm, text: &'a str) -> Self {
        let mut symbols: Vec<Symbol> = Vec::with_capacity(text.len());
        for (index, (start, char)) in (0u32..).zip(text.char_indices()) {
            let next = (start + char.len_utf8() < text.len()).then_some(index + 1);
            let (start, len) = (start as u32, char.len_utf8() as u32);
            symbols.push(Symbol { start, len, previous: index.checked_sub(1), next });
        }
        let mut this = Self { spm, text, symbols, pairs: BinaryHeap::new() };
        for right in 1..this.symbols.len() as u32 {
            this.consider(right - 1, right);
        }
        this
    }

    fn consider(&mut self, left: u32, right: u32) {
        let (a, b) = (&self.symbols[left as usize], &self.symbols[right as usize]);
        let len = a.len + b.len;
        if len as usize > self.spm.longest {
            return;
        }
        let start = a.start as usize;
        if let Some(&(_, score)) = self.spm.pieces.get(&self.text[start..start + len as usize]) {
            self.pairs.push(Pair { score, left, right, len });
        }
    }

    fn join(mut self) -> impl Iterator<Item = &'a str> {
        while let Some(Pair { left, right, len, .. }) = self.pairs.pop() {
            let (a, b) = (&self.symbols[left as usize], &self.symbols[right as usize]);
            // One of them has been joined to another neighbour since.
            if a.len == 0 || b.len == 0 || a.len + b.len != len {
                continue;
            }
            let (previous, next) = (a.previous, b.next);
            self.symbols[right as usize].len = 0;
            let joined = &mut self.symbols[left as usize];
            (joined.len, joined.next) = (len, next);
            if let Some(next) = next {
                self.symbols[next as usize].previous = Some(left);
                self.consider(left, next);
            }
            if let Some(previous) = previous {
                self.consider(previous, left);
            }
        }
        let text = self.text;
        let alive = self.symbols.into_iter().filter(|symbol| symbol.len > 0);
        alive.map(move |symbol| &text[symbol.start as usize..(symbol.start + symbol.len) as usize])
    }
}
