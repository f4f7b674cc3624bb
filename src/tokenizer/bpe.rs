//! Byte-level BPE (`tokenizer.ggml.model` = `gpt2`): words of bytes in, ids out.
//!
//! The `tokenizers` crate has this merging too, but keeps the vocabulary three times over, as strings: for Qwen's 151,936
//! tokens 42 to 50 MB more and three times the loading time, which a small model would notice. A test holds the two together.

use std::borrow::Cow;

use super::merge::{Join, Merger, Rules, Symbol};
use super::merges::Merges;
use super::vocabulary::{self, Kind, Vocabulary};
use super::{Encoder, SpecialFinder, bytes, pre};
use crate::error::Result;
use crate::gguf::Gguf;

/// Merges the bytes of words into tokens.
pub(super) struct Bpe {
    splitter: pre::Splitter,
    /// Whether a word that is a token is that token, whatever its merges would give.
    ignore_merges: bool,
    /// The token of each byte.
    bytes: [Option<u32>; 256],
    knows_all_bytes: bool,
    merges: Merges,
}

pub(super) fn from_gguf(gguf: &Gguf) -> Result<(Vocabulary, Encoder)> {
    let tokens = vocabulary::tokens(gguf)?;
    let row = pre::row(gguf.str("tokenizer.ggml.pre")?)?;
    let mut vocabulary = Vocabulary::from_gguf(gguf, tokens, |text, kind, out| match kind {
        Kind::Normal | Kind::Unused | Kind::Byte => bytes::unspell(text, out),
        Kind::Control | Kind::Unknown | Kind::UserDefined => out.extend_from_slice(text.as_bytes()),
    })?;
    vocabulary.read_flags(gguf, row.add_bos, false)?;
    vocabulary.index(|kind| kind == Kind::UserDefined);
    vocabulary.index(|kind| matches!(kind, Kind::Normal | Kind::Unused | Kind::Byte));
    let finder = SpecialFinder::from_gguf(gguf, tokens, &vocabulary)?;
    let bytes: [Option<u32>; 256] = std::array::from_fn(|byte| vocabulary.find(&[byte as u8]));
    let bpe = Bpe {
        splitter: pre::Splitter::new(row)?,
        ignore_merges: row.ignore_merges,
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
            ids.extend(merger.merge(self, &self.known(word.as_bytes())).iter().filter_map(|symbol| symbol.id));
        });
    }

    /// A word without the bytes that are no token, which training left out too: what is on both sides of them is joined. (In llama.cpp it
    /// is not.)
    fn known<'w>(&self, word: &'w [u8]) -> Cow<'w, [u8]> {
        let is_known = |byte: &u8| self.bytes[*byte as usize].is_some();
        if self.knows_all_bytes || word.iter().all(is_known) {
            return Cow::Borrowed(word);
        }
        word.iter().copied().filter(is_known).collect()
    }
}

impl Rules for Bpe {
    fn first(&self, text: &[u8]) -> (usize, Option<u32>) {
        (1, self.bytes[text[0] as usize])
    }

    fn join(&self, _: &[u8], a: &Symbol, b: &Symbol) -> Option<Join> {
        self.merges.join(a, b)
    }
}
