//! Byte-level BPE (`tokenizer.ggml.model` = `gpt2`): words of bytes in, ids out.
//!
//! The `tokenizers` crate has this merging too, but keeps the vocabulary three times over, as strings: for Qwen's 151,936
//! tokens 42 to 50 MB more and three times the loading time, which a small model would notice. A test holds the two together.

use ahash::AHashMap;

use super::merge::{Join, Merger};
use super::vocabulary::{self, Kind, Vocabulary};
use super::{Encoder, SpecialFinder, bytes, pre};
use crate::error::{Error, Result};
use crate::gguf::Gguf;

/// Merges the bytes of words into tokens.
pub(super) struct Bpe {
    splitter: pre::Splitter,
    /// Whether a word that is a token is that token, whatever its merges would give.
    ignore_merges: bool,
    /// The token of each byte.
    bytes: [Option<u32>; 256],
    /// The token that two tokens make, and the rank of that merge.
    merges: AHashMap<(u32, u32), (i32, u32)>,
}

pub(super) fn from_gguf(gguf: &Gguf) -> Result<(Vocabulary, Encoder)> {
    let tokens = vocabulary::tokens(gguf)?;
    let row = pre::row(gguf.str("tokenizer.ggml.pre")?)?;
    let mut vocabulary = Vocabulary::from_gguf(gguf, tokens, |text, kind, out| match kind {
        Kind::Normal | Kind::Unused | Kind::Byte => bytes::unspell(text, out),
        Kind::Control | Kind::Unknown | Kind::UserDefined => out.extend_from_slice(text.as_bytes()),
    })?;
    vocabulary.read_flags(gguf, row.add_bos)?;
    vocabulary.index(|kind| kind == Kind::UserDefined);
    vocabulary.index(|kind| matches!(kind, Kind::Normal | Kind::Unused | Kind::Byte));
    let finder = SpecialFinder::from_gguf(gguf, tokens, &vocabulary)?;
    let bpe = Bpe {
        splitter: pre::Splitter::new(row)?,
        ignore_merges: row.ignore_merges,
        bytes: std::array::from_fn(|byte| vocabulary.find(&[byte as u8])),
        merges: merges(gguf, &vocabulary)?,
    };
    Ok((vocabulary, Encoder::Bpe(finder, bpe)))
}

impl Bpe {
    /// Appends the ids of a text without special tokens.
    pub fn encode(&self, vocabulary: &Vocabulary, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        let mut merger = Merger::default();
        self.splitter.split(text, |word| {
            if self.ignore_merges
                && let Some(id) = vocabulary.find(word.as_bytes())
            {
                ids.push(id);
                return Ok(());
            }
            for (start, byte) in word.bytes().enumerate() {
                let missing =
                    || Error::Tokenizer(format!("the vocabulary has no token for the byte 0x{byte:02x} of the text"));
                merger.push(start, 1, Some(self.bytes[byte as usize].ok_or_else(missing)?));
            }
            let join = |pair| self.merges.get(&pair).map(|&(order, id)| Join { order, id });
            ids.extend(merger.merge(|a, b| join((a.id?, b.id?))).filter_map(|symbol| symbol.id));
            Ok(())
        })
    }
}

fn merges(gguf: &Gguf, vocabulary: &Vocabulary) -> Result<AHashMap<(u32, u32), (i32, u32)>> {
    const KEY: &str = "tokenizer.ggml.merges";
    let lines = gguf.strings(KEY)?.ok_or_else(|| Error::metadata(KEY, "is missing"))?;
    let mut merges = AHashMap::with_capacity(lines.len());
    let mut spelt = Vec::new();
    for (rank, line) in (0i32..).zip(lines.iter()) {
        let mut ids = || {
            let (left, right) = line.split_once(' ')?;
            spelt.clear();
            bytes::unspell(left, &mut spelt);
            let middle = spelt.len();
            bytes::unspell(right, &mut spelt);
            let find = |bytes| vocabulary.find(bytes);
            Some(((find(&spelt[..middle])?, find(&spelt[middle..])?), find(&spelt)?))
        };
        let unusable = || Error::metadata(KEY, format!("line {rank}, `{line}`, is not two tokens that make a third"));
        let (pair, id) = ids().ok_or_else(unusable)?;
        merges.entry(pair).or_insert((rank, id));
    }
    Ok(merges)
}
