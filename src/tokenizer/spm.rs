//! SentencePiece's BPE (`tokenizer.ggml.model` = `llama`, `gemma4`): text in, ids out.
//!
//! Of all neighbours that join into a token, those with the best score are joined first, the leftmost of equals
//! ([Kudo & Richardson 2018](https://arxiv.org/abs/1808.06226)). The merges of the `tokenizers` crate are no substitute: a rank
//! for each pair cannot say "the leftmost of equal scores". Gemma 4 spells its tokens in the same way, but lists its merges.

use super::merge::{Join, Merger, Rules, Symbol};
use super::merges::Merges;
use super::vocabulary::{self, Kind, Vocabulary, same_length};
use super::{Encoder, SpecialFinder};
use crate::error::{Error, Result};
use crate::gguf::{Array, Gguf};

/// How vocabularies write a space. In a text it cannot be told from one.
const SPACE: &str = "\u{2581}";

/// Joins characters into tokens.
pub(super) struct Spm {
    joins: Joins,
    /// Whether every space within a token follows another or begins it, so that texts can be cut before words.
    splits_words: bool,
    /// The token for each byte that has one, for characters that are no token.
    bytes: [Option<u32>; 256],
}

/// Which neighbours are joined.
enum Joins {
    /// Those that make a token of so many bytes at most; the lowest order is that of the best score.
    Scores { orders: Vec<i32>, longest: usize },
    /// Those that are listed.
    Merges(Merges),
}

pub(super) fn from_gguf(gguf: &Gguf) -> Result<(Vocabulary, Encoder)> {
    const SCORES: &str = "tokenizer.ggml.scores";
    let tokens = vocabulary::tokens(gguf)?;
    let mut vocabulary = Vocabulary::from_gguf(gguf, tokens, decode)?;
    vocabulary.read_flags(gguf, true, false)?;
    vocabulary.adds_space = gguf.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
    vocabulary.index(is_piece);
    let scores = match gguf.array(SCORES)? {
        Some(Array::F32(scores)) => scores,
        Some(_) => return Err(Error::metadata(SCORES, "must be an array of 32-bit floats")),
        None => return Err(Error::metadata(SCORES, "is missing")),
    };
    same_length(SCORES, scores.len(), tokens.len())?;
    let finder = SpecialFinder::from_gguf(gguf, tokens, &vocabulary)?;
    let longest = pieces(&vocabulary).map(<[u8]>::len).max().unwrap_or(0);
    let joins = Joins::Scores { orders: scores.iter().copied().map(order).collect(), longest };
    let spm = Spm::new(&vocabulary, joins);
    Ok((vocabulary, Encoder::Spm(finder, spm)))
}

/// The vocabulary of Gemma 4.
pub(super) fn with_merges(gguf: &Gguf) -> Result<(Vocabulary, Encoder)> {
    let tokens = vocabulary::tokens(gguf)?;
    let mut vocabulary = Vocabulary::from_gguf(gguf, tokens, decode)?;
    vocabulary.read_flags(gguf, true, false)?;
    // Early files deny it, but no text was without it in training.
    vocabulary.add_bos = vocabulary.bos.is_some();
    vocabulary.index(|kind| kind == Kind::UserDefined);
    vocabulary.index(is_piece);
    let finder = SpecialFinder::from_gguf(gguf, tokens, &vocabulary)?;
    let merges = Merges::from_gguf(gguf, &vocabulary, |text, out| decode(text, Kind::Normal, out))?;
    let spm = Spm::new(&vocabulary, Joins::Merges(merges));
    Ok((vocabulary, Encoder::Spm(finder, spm)))
}

/// The bytes of the tokens that ordinary text can become.
fn pieces(vocabulary: &Vocabulary) -> impl Iterator<Item = &[u8]> {
    vocabulary.iter().filter(|(_, kind, _)| is_piece(*kind)).map(|(.., bytes)| bytes)
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
    fn new(vocabulary: &Vocabulary, joins: Joins) -> Self {
        let mut bytes = [None; 256];
        for (id, kind, spelt) in vocabulary.iter() {
            if let (Kind::Byte, &[byte]) = (kind, spelt) {
                bytes[byte as usize] = Some(id);
            }
        }
        let has_inner_space = |bytes: &[u8]| bytes.windows(2).any(|pair| pair[0] != b' ' && pair[1] == b' ');
        Self { joins, splits_words: !pieces(vocabulary).any(has_inner_space), bytes }
    }

    /// Appends the ids of a text without special tokens; `at_start` where no other text is before it.
    pub fn encode(&self, vocabulary: &Vocabulary, text: &str, at_start: bool, ids: &mut Vec<u32>) -> Result<()> {
        let prefix = if vocabulary.adds_space && at_start { " " } else { "" };
        let text = prefix.to_owned() + &text.replace(SPACE, " ");
        let mut merger = Merger::default();
        match self.joins {
            Joins::Scores { .. } => self.encode_line(vocabulary, &text, &mut merger, ids),
            Joins::Merges(_) => lines(&text).try_for_each(|line| match vocabulary.find(line.as_bytes()) {
                // The merges do not reach all of the tokens for several newlines.
                Some(id) if line.starts_with('\n') => {
                    ids.push(id);
                    Ok(())
                }
                _ => self.encode_line(vocabulary, line, &mut merger, ids),
            }),
        }
    }

    fn encode_line(&self, vocabulary: &Vocabulary, line: &str, merger: &mut Merger, ids: &mut Vec<u32>) -> Result<()> {
        let rules = Characters { joins: &self.joins, vocabulary };
        let mut rest = line;
        while !rest.is_empty() {
            let (word, after) = rest.split_at(if self.splits_words { word_length(rest) } else { rest.len() });
            for symbol in merger.merge(&rules, word.as_bytes()) {
                match symbol.id {
                    Some(id) => ids.push(id),
                    None => self.fall_back(vocabulary, &word[symbol.start as usize..symbol.end()], ids)?,
                }
            }
            rest = after;
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

/// A word begins as its characters.
struct Characters<'s> {
    joins: &'s Joins,
    vocabulary: &'s Vocabulary,
}

impl Rules for Characters<'_> {
    fn first(&self, text: &[u8]) -> (usize, Option<u32>) {
        let len = text.iter().skip(1).take_while(|&&byte| byte & 0xc0 == 0x80).count() + 1;
        (len, self.vocabulary.find(&text[..len]))
    }

    fn join(&self, word: &[u8], a: &Symbol, b: &Symbol) -> Option<Join> {
        match self.joins {
            Joins::Scores { orders, longest } => {
                let text = &word[a.start as usize..b.end()];
                let id = if text.len() <= *longest { self.vocabulary.find(text)? } else { return None };
                Some(Join { order: orders[id as usize], id })
            }
            Joins::Merges(merges) => merges.join(a, b),
        }
    }
}

/// Newlines that follow one another, and what is between them.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let newline = rest.starts_with('\n');
        let end = rest.find(|char| (char == '\n') != newline).unwrap_or(rest.len());
        let (line, after) = rest.split_at(end);
        rest = after;
        (!line.is_empty()).then_some(line)
    })
}

/// The bytes up to the first space that follows something else.
fn word_length(text: &str) -> usize {
    text.as_bytes().windows(2).position(|pair| pair[0] != b' ' && pair[1] == b' ').map_or(text.len(), |at| at + 1)
}
