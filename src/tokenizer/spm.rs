//! SentencePiece's BPE (`tokenizer.ggml.model` = `llama`): text in, ids out.
//!
//! Of all neighbours that join into a token, those with the best score are joined first, the leftmost of equals
//! ([Kudo & Richardson 2018](https://arxiv.org/abs/1808.06226)). The merges of the `tokenizers` crate are no substitute: a rank
//! for each pair cannot say "the leftmost of equal scores".

use super::merge::{Join, Merger, Symbol};
use super::vocabulary::{self, Kind, Vocabulary, same_length};
use super::{Encoder, SpecialFinder};
use crate::error::{Error, Result};
use crate::gguf::{Array, Gguf};

/// How vocabularies write a space. In a text it cannot be told from one.
const SPACE: &str = "\u{2581}";

/// Joins characters into tokens.
pub(super) struct Spm {
    /// When a pair that makes this token is joined: the best score has the lowest.
    orders: Vec<i32>,
    /// The bytes of the longest token.
    longest: usize,
    /// Whether every space within a token follows another or begins it, so that texts can be cut before words.
    splits_words: bool,
    /// The token for each byte that has one, for characters that are no token.
    bytes: [Option<u32>; 256],
}

pub(super) fn from_gguf(gguf: &Gguf) -> Result<(Vocabulary, Encoder)> {
    const SCORES: &str = "tokenizer.ggml.scores";
    let tokens = vocabulary::tokens(gguf)?;
    let mut vocabulary = Vocabulary::from_gguf(gguf, tokens, decode)?;
    vocabulary.read_flags(gguf, true)?;
    vocabulary.adds_space = gguf.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    vocabulary.index(is_piece);
    let scores = match gguf.array(SCORES)? {
        Some(Array::F32(scores)) => scores,
        Some(_) => return Err(Error::metadata(SCORES, "must be an array of 32-bit floats")),
        None => return Err(Error::metadata(SCORES, "is missing")),
    };
    same_length(SCORES, scores.len(), tokens.len())?;
    let finder = SpecialFinder::from_gguf(gguf, tokens, &vocabulary)?;
    let spm = Spm::new(&vocabulary, scores);
    Ok((vocabulary, Encoder::Spm(finder, spm)))
}

/// Whether ordinary text can become such a token. User-defined ones are cut out of the text before.
fn is_piece(kind: Kind) -> bool {
    matches!(kind, Kind::Normal | Kind::Unused)
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

/// A whole number that is the lower, the higher the score (IEEE 754's total order, reversed).
fn order(score: f32) -> i32 {
    let bits = score.to_bits() as i32;
    !(bits ^ ((bits >> 31) as u32 >> 1) as i32)
}

impl Spm {
    fn new(vocabulary: &Vocabulary, scores: &[f32]) -> Self {
        let orders = scores.iter().copied().map(order).collect();
        let mut this = Self { orders, longest: 0, splits_words: true, bytes: [None; 256] };
        for (id, kind, bytes) in vocabulary.iter() {
            if is_piece(kind) {
                this.longest = this.longest.max(bytes.len());
                this.splits_words &= !bytes.windows(2).any(|pair| pair[0] != b' ' && pair[1] == b' ');
            } else if let (Kind::Byte, &[byte]) = (kind, bytes) {
                this.bytes[byte as usize] = Some(id);
            }
        }
        this
    }

    /// Appends the ids of a text without special tokens; `at_start` where no other text is before it.
    pub fn encode(&self, vocabulary: &Vocabulary, text: &str, at_start: bool, ids: &mut Vec<u32>) -> Result<()> {
        let prefix = if vocabulary.adds_space && at_start { " " } else { "" };
        let text = prefix.to_owned() + &text.replace(SPACE, " ");
        if u32::try_from(text.len()).is_err() {
            return Err(Error::Tokenizer(format!("a text of {} bytes is too long", text.len())));
        }
        let mut merger = Merger::default();
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (word, after) = rest.split_at(if self.splits_words { word_length(rest) } else { rest.len() });
            self.encode_word(vocabulary, word, &mut merger, ids)?;
            rest = after;
        }
        Ok(())
    }

    fn encode_word(&self, vocabulary: &Vocabulary, word: &str, merger: &mut Merger, ids: &mut Vec<u32>) -> Result<()> {
        let bytes = word.as_bytes();
        for (start, char) in word.char_indices() {
            let len = char.len_utf8();
            merger.push(start, len, vocabulary.find(&bytes[start..start + len]));
        }
        let join = |a: &Symbol, b: &Symbol| {
            let (start, len) = (a.start as usize, (a.len + b.len) as usize);
            let id = if len <= self.longest { vocabulary.find(&bytes[start..start + len])? } else { return None };
            Some(Join { order: self.orders[id as usize], id })
        };
        for symbol in merger.merge(join) {
            match symbol.id {
                Some(id) => ids.push(id),
                None => self.fall_back(vocabulary, &word[symbol.start as usize..][..symbol.len as usize], ids)?,
            }
        }
        Ok(())
    }

    /// A character that is no token becomes its bytes, or else the unknown token.
    fn fall_back(&self, vocabulary: &Vocabulary, char: &str, ids: &mut Vec<u32>) -> Result<()> {
        let bytes = char.bytes().map(|byte| self.bytes[byte as usize]).collect::<Option<Vec<u32>>>();
        match (bytes, vocabulary.unknown) {
            (Some(bytes), _) => ids.extend(bytes),
            (None, Some(unknown)) => ids.push(unknown),
            (None, None) => {
                return Err(Error::Tokenizer(format!("the vocabulary has no token for `{}`", char.escape_debug())));
            }
        }
        Ok(())
    }
}

/// The bytes up to the first space that follows something else.
fn word_length(text: &str) -> usize {
    text.as_bytes().windows(2).position(|pair| pair[0] != b' ' && pair[1] == b' ').map_or(text.len(), |at| at + 1)
}
