//! Byte-level BPE (`tokenizer.ggml.model` = `gpt2`): words of bytes in, ids out.
//!
//! The merging is that of the `tokenizers` crate. Cutting the text is not: its look-ahead expressions backtrack, see [`pre`](super::pre).

use ahash::AHashMap;
use tokenizers::Model;
use tokenizers::models::bpe::{BPE, Merges};

use super::vocabulary::{self, Kind, TOKENS, Vocabulary};
use super::{Encoder, SpecialFinder, bytes, pre};
use crate::error::{Error, Result};
use crate::gguf::Gguf;

const MERGES: &str = "tokenizer.ggml.merges";

/// Merges the bytes of words into tokens.
#[derive(Debug)]
pub(super) struct Bpe {
    splitter: pre::Splitter,
    model: BPE,
    /// Which bytes are tokens. Merging would drop the others without a word.
    has_byte: [bool; 256],
}

pub(super) fn from_gguf(gguf: &Gguf) -> Result<(Vocabulary, Encoder)> {
    let tokens = vocabulary::tokens(gguf)?;
    let row = pre::row(gguf.str("tokenizer.ggml.pre")?)?;
    let mut vocabulary = Vocabulary::from_gguf(gguf, tokens, |text, kind, out| match kind {
        Kind::Normal | Kind::Unused | Kind::Byte => bytes::unspell(text, out),
        Kind::Control | Kind::Unknown | Kind::UserDefined => out.extend_from_slice(text.as_bytes()),
    })?;
    vocabulary.read_flags(gguf, row.add_bos)?;
    let finder = SpecialFinder::from_gguf(gguf, tokens, &vocabulary)?;
    let splitter = pre::Splitter::new(row)?;
    Ok((vocabulary, Encoder::Bpe(finder, Bpe::new(gguf, tokens, splitter, row.ignore_merges)?)))
}

impl Bpe {
    fn new(gguf: &Gguf, tokens: &[String], splitter: pre::Splitter, ignore_merges: bool) -> Result<Self> {
        let ids: AHashMap<String, u32> = tokens.iter().zip(0..).map(|(text, id)| (text.clone(), id)).collect();
        let has_byte = bytes::CHARS.map(|char| ids.contains_key(char.encode_utf8(&mut [0; 4]) as &str));
        let model = BPE::builder()
            .vocab_and_merges(ids, merges(gguf, tokens)?)
            .ignore_merges(ignore_merges)
            // Its cache lives in every thread that encodes, and nothing frees it.
            .cache_capacity(0)
            .build()
            .map_err(|e| Error::metadata(MERGES, format!("does not fit {TOKENS}: {e}")))?;
        Ok(Self { splitter, model, has_byte })
    }

    /// Appends the ids of a text without special tokens.
    pub fn encode(&self, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        if let Some(byte) = text.bytes().find(|&byte| !self.has_byte[byte as usize]) {
            return Err(Error::Tokenizer(format!("the vocabulary has no token for the byte 0x{byte:02x} of the text")));
        }
        let mut spelt = String::new();
        self.splitter.split(text, |word| {
            spelt.clear();
            bytes::spell(word.as_bytes(), &mut spelt);
            let tokens = self.model.tokenize(&spelt).map_err(|e| Error::Tokenizer(e.to_string()))?;
            ids.extend(tokens.iter().map(|token| token.id));
            Ok(())
        })
    }
}

fn merges(gguf: &Gguf, tokens: &[String]) -> Result<Merges> {
    let lines = gguf.strings(MERGES)?.ok_or_else(|| Error::metadata(MERGES, "is missing"))?;
    let longest = tokens.iter().map(String::len).max().unwrap_or(0);
    let pair = |(rank, line): (usize, &String)| match line.split_once(' ') {
        // Longer than any token, it is none; and the crate's builder would panic on it.
        Some((left, right)) if left.len() + right.len() <= longest => Ok((left.to_owned(), right.to_owned())),
        _ => Err(Error::metadata(MERGES, format!("line {rank}, `{line}`, is not two tokens that make a third"))),
    };
    lines.iter().enumerate().map(pair).collect()
}
