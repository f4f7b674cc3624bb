//! Encodes text with SentencePiece's BPE (`tokenizer.ggml.model` = `llama`, `gemma4`).
//!
//! Of all adjacent symbols that form a token, the pair with the best score is joined first, and the
//! leftmost of equal pairs ([Kudo & Richardson 2018](https://arxiv.org/abs/1808.06226)). The
//! `tokenizers` crate cannot replace this: its merges have a rank for each pair, which cannot
//! express "the leftmost of equal scores". Gemma 4 spells tokens in the same way, but lists its
//! merges.

use super::{
    Encoder, SpecialFinder,
    merge::{Join, MergeRules, Merger, Symbol},
    merges::Merges,
    vocabulary::{self, TokenType, Vocabulary, same_length},
};
use crate::{
    error::{Error, Result},
    gguf::{Array, Gguf},
};

/// The character that spells a space in vocabularies. Encoding treats it as a space in texts, too.
const SPACE: &str = "\u{2581}";

/// Merges characters into tokens.
pub(super) struct Spm {
    joins: Joins,
    /// Whether spaces in tokens occur only at their start, so that texts can be split before words.
    splits_words: bool,
    /// The token of each byte value, for characters without a token; `None` if there is none.
    bytes: [Option<u32>; 256],
}

/// The pairs of symbols that can be joined.
enum Joins {
    /// Pairs that form a token of at most `longest` bytes. `orders` is the order of each token, the
    /// lowest for the best score.
    Scores { orders: Vec<i32>, longest: usize },
    /// Pairs with a listed merge.
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

/// Reads the vocabulary of Gemma 4.
pub(super) fn with_merges(gguf: &Gguf) -> Result<(Vocabulary, Encoder)> {
    let tokens = vocabulary::tokens(gguf)?;
    let mut vocabulary = Vocabulary::from_gguf(gguf, tokens, decode)?;
    vocabulary.read_flags(gguf, true, false)?;
    // Early files disable it, but every text in training began with it.
    vocabulary.add_bos = vocabulary.bos.is_some();
    vocabulary.index(|kind| kind == TokenType::UserDefined);
    vocabulary.index(is_piece);
    let finder = SpecialFinder::from_gguf(gguf, tokens, &vocabulary)?;
    let merges = Merges::from_gguf(gguf, &vocabulary, |text, out| decode(text, TokenType::Normal, out))?;
    let spm = Spm::new(&vocabulary, Joins::Merges(merges));
    Ok((vocabulary, Encoder::Spm(finder, spm)))
}

/// Returns the bytes of the tokens that ordinary text can become.
fn pieces(vocabulary: &Vocabulary) -> impl Iterator<Item = &[u8]> {
    vocabulary.iter().filter(|(_, kind, _)| is_piece(*kind)).map(|(.., bytes)| bytes)
}

/// Returns whether ordinary text can become a token of this type. User-defined tokens are split off
/// before.
fn is_piece(kind: TokenType) -> bool {
    matches!(kind, TokenType::Normal | TokenType::Unused)
}

/// Appends the bytes of a token.
pub(super) fn decode(text: &str, kind: TokenType, out: &mut Vec<u8>) {
    match kind {
        TokenType::Normal | TokenType::Unused => out.extend_from_slice(text.replace(SPACE, " ").as_bytes()),
        TokenType::Byte => match byte(text) {
            Some(byte) => out.push(byte),
            None => out.extend_from_slice(text.as_bytes()),
        },
        TokenType::Control | TokenType::Unknown | TokenType::UserDefined => out.extend_from_slice(text.as_bytes()),
    }
}

/// Returns the byte of a token such as `<0x0A>`.
pub(super) fn byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

/// Returns an integer that decreases as the score increases (IEEE 754's total order, reversed).
fn order(score: f32) -> i32 {
    let bits = score.to_bits() as i32;
    !(bits ^ ((bits >> 31) as u32 >> 1) as i32)
}

impl Spm {
    fn new(vocabulary: &Vocabulary, joins: Joins) -> Self {
        let mut bytes = [None; 256];
        for (id, kind, spelt) in vocabulary.iter() {
            if let (TokenType::Byte, &[byte]) = (kind, spelt) {
                bytes[byte as usize] = Some(id);
            }
        }
        let has_inner_space = |bytes: &[u8]| bytes.windows(2).any(|pair| pair[0] != b' ' && pair[1] == b' ');
        Self { joins, splits_words: !pieces(vocabulary).any(has_inner_space), bytes }
    }

    /// Appends the ids of a text without special tokens; `at_start` if no other text precedes it.
    pub fn encode(&self, vocabulary: &Vocabulary, text: &str, at_start: bool, ids: &mut Vec<u32>) -> Result<()> {
        let prefix = if vocabulary.adds_space && at_start { " " } else { "" };
        let text = prefix.to_owned() + &text.replace(SPACE, " ");
        let mut merger = Merger::default();
        match self.joins {
            Joins::Scores { .. } => self.encode_line(vocabulary, &text, &mut merger, ids),
            Joins::Merges(_) => lines(&text).try_for_each(|line| match vocabulary.find(line.as_bytes()) {
                // Merges do not reach all tokens of several newlines.
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

    /// Appends the byte tokens of a character without a token, or else the unknown token.
    fn fall_back(&self, vocabulary: &Vocabulary, char: &str, ids: &mut Vec<u32>) -> Result<()> {
        let bytes = char.bytes().map(|byte| self.bytes[byte as usize]).collect::<Option<Vec<u32>>>();
        match (bytes, vocabulary.unknown) {
            (Some(bytes), _) => ids.extend(bytes),
            (None, Some(unknown)) => ids.push(unknown),
            (None, None) => {
                return Err(Error::Tokenizer(format!(
                    "the vocabulary has no token for `{}` and no unknown token: remove it from the text",
                    char.escape_debug()
                )));
            }
        }
        Ok(())
    }
}

/// Merge rules that start from the characters of a word.
struct Characters<'s> {
    joins: &'s Joins,
    vocabulary: &'s Vocabulary,
}

impl MergeRules for Characters<'_> {
    fn first_symbol(&self, text: &[u8]) -> (usize, Option<u32>) {
        let len = text.iter().skip(1).take_while(|&&byte| byte & 0xc0 == 0x80).count() + 1;
        (len, self.vocabulary.find(&text[..len]))
    }

    fn join(&self, word: &[u8], left: &Symbol, right: &Symbol) -> Option<Join> {
        match self.joins {
            Joins::Scores { orders, longest } => {
                let text = &word[left.start as usize..right.end()];
                let id = if text.len() <= *longest { self.vocabulary.find(text)? } else { return None };
                Some(Join { order: orders[id as usize], id })
            }
            Joins::Merges(merges) => merges.join(left, right),
        }
    }
}

/// Splits a text into runs of newlines and the text between them.
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

/// Returns the number of bytes before the first space that does not follow a space.
fn word_length(text: &str) -> usize {
    text.as_bytes().windows(2).position(|pair| pair[0] != b' ' && pair[1] == b' ').map_or(text.len(), |at| at + 1)
}
