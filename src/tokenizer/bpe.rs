//! Encodes text with byte-level BPE (`tokenizer.ggml.model` = `gpt2`).
//!
//! The `tokenizers` crate implements this merging too, but stores the vocabulary three times, as
//! strings: for Qwen's 151,936 tokens this takes 42 to 50 MB more, and three times the loading
//! time. A test compares both implementations.

use std::borrow::Cow;

use super::{
    Encoder, SpecialFinder, bytes,
    merge::{Join, MergeRules, Merger, Symbol},
    merges::Merges,
    pre,
    vocabulary::{self, TokenType, Vocabulary},
};
use crate::{error::Result, gguf::Gguf};

/// Merges the bytes of words into tokens.
pub(super) struct Bpe {
    splitter: pre::Splitter,
    /// Whether a word that is in the vocabulary becomes that token without applying merges.
    ignore_merges: bool,
    /// The token of each byte value; `None` for byte values without a token.
    bytes: [Option<u32>; 256],
    knows_all_bytes: bool,
    merges: Merges,
}

pub(super) fn from_gguf(gguf: &Gguf) -> Result<(Vocabulary, Encoder)> {
    let tokens = vocabulary::tokens(gguf)?;
    let pre_tokenizer = pre::find(gguf.str("tokenizer.ggml.pre")?)?;
    let mut vocabulary = Vocabulary::from_gguf(gguf, tokens, |text, kind, out| match kind {
        TokenType::Normal | TokenType::Unused | TokenType::Byte => bytes::unspell(text, out),
        TokenType::Control | TokenType::Unknown | TokenType::UserDefined => out.extend_from_slice(text.as_bytes()),
    })?;
    vocabulary.read_flags(gguf, pre_tokenizer.add_bos, false)?;
    vocabulary.index(|kind| kind == TokenType::UserDefined);
    vocabulary.index(|kind| matches!(kind, TokenType::Normal | TokenType::Unused | TokenType::Byte));
    let finder = SpecialFinder::from_gguf(gguf, tokens, &vocabulary)?;
    let bytes: [Option<u32>; 256] = std::array::from_fn(|byte| vocabulary.find(&[byte as u8]));
    let bpe = Bpe {
        splitter: pre::Splitter::new(pre_tokenizer)?,
        ignore_merges: pre_tokenizer.ignore_merges,
        knows_all_bytes: bytes.iter().all(Option::is_some),
        bytes,
        merges: Merges::from_gguf(gguf, &vocabulary, bytes::unspell)?,
    };
    Ok((vocabulary, Encoder::Bpe(finder, bpe)))
}

impl Bpe {
    /// Appends the ids of a text without special tokens.
    pub fn encode(&self, vocabulary: &Vocabulary, text: &str, ids: &mut Vec<u32>) {
        let mut merger = Merger::default();
        self.splitter.split(text, &mut |word| {
            if self.ignore_merges
                && let Some(id) = vocabulary.find(word.as_bytes())
            {
                ids.push(id);
                return;
            }
            ids.extend(merger.merge(self, &self.known_bytes(word.as_bytes())).iter().filter_map(|symbol| symbol.id));
        });
    }

    /// Removes bytes without a token from a word, as in training, so that their neighbors can
    /// merge. In llama.cpp they do not merge.
    fn known_bytes<'w>(&self, word: &'w [u8]) -> Cow<'w, [u8]> {
        let is_known = |byte: &u8| self.bytes[*byte as usize].is_some();
        if self.knows_all_bytes || word.iter().all(is_known) {
            return Cow::Borrowed(word);
        }
        word.iter().copied().filter(is_known).collect()
    }
}

impl MergeRules for Bpe {
    fn first_symbol(&self, text: &[u8]) -> (usize, Option<u32>) {
        (1, self.bytes[text[0] as usize])
    }

    fn join(&self, _: &[u8], left: &Symbol, right: &Symbol) -> Option<Join> {
        self.merges.join(left, right)
    }
}
