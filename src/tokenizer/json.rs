//! Hugging Face's `tokenizer.json` in; the `tokenizers` crate runs it as it is.

use std::path::Path;
use std::sync::OnceLock;

use serde_json::Value;

use super::SpecialTokens;
use super::vocabulary::{Kind, Vocabulary};
use super::{bytes, spm};
use crate::error::{Error, Result};

/// A tokenizer of the `tokenizers` crate.
pub(super) struct Json {
    parsing: tokenizers::Tokenizer,
    /// The same, taking special tokens for ordinary text: that is a setting, not an argument, so it is another tokenizer. Few need it.
    plain: OnceLock<Box<tokenizers::Tokenizer>>,
}

pub(super) fn from_file(path: &Path) -> Result<(Vocabulary, Json)> {
    let text = std::fs::read(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    let error = |what: String| Error::Tokenizer(format!("{}: {what}", path.display()));
    let mut tokenizer = tokenizers::Tokenizer::from_bytes(&text).map_err(|e| error(e.to_string()))?;
    // Truncation would lose text without a word, and padding add some.
    tokenizer.with_truncation(None).map_err(|e| error(e.to_string()))?.with_padding(None);
    let vocabulary = vocabulary(&tokenizer).map_err(error)?;
    Ok((vocabulary, Json { parsing: tokenizer, plain: OnceLock::new() }))
}

fn vocabulary(tokenizer: &tokenizers::Tokenizer) -> Result<Vocabulary, String> {
    let decoder = serde_json::to_value(tokenizer.get_decoder()).map_err(|e| e.to_string())?;
    let byte_level = uses(&decoder, "ByteLevel");
    if !byte_level && !uses(&decoder, "ByteFallback") && !uses(&decoder, "Metaspace") {
        return Err("its decoder is neither byte-level nor SentencePiece's".to_owned());
    }
    let added = tokenizer.get_added_tokens_decoder();
    let size = tokenizer.get_vocab(true).values().max().map_or(0, |&id| id as usize + 1);
    let tokens = tokenizer.get_vocab_size(true);
    if tokens == 0 || size > 16 * tokens {
        return Err(format!("its {tokens} tokens have ids up to {size}"));
    }
    let mut vocabulary = Vocabulary::default();
    vocabulary.adds_space = !byte_level && strips_space(&decoder);
    for id in 0..size as u32 {
        let text = tokenizer.id_to_token(id).unwrap_or_default();
        let kind = match added.get(&id) {
            Some(token) if token.special => Kind::Control,
            Some(_) => Kind::UserDefined,
            None if !byte_level && spm::byte(&text).is_some() => Kind::Byte,
            None => Kind::Normal,
        };
        vocabulary.push(&text, kind, |out| match kind {
            Kind::Normal if byte_level => bytes::unspell(&text, out),
            _ => spm::decode(&text, kind, out),
        });
    }
    Ok(vocabulary)
}

/// Whether a decoder is, or is a sequence that has, one of this type.
fn uses(decoder: &Value, kind: &str) -> bool {
    find(decoder, &|step| step["type"] == kind)
}

/// Whether decoding takes a space off the begin of the text.
fn strips_space(decoder: &Value) -> bool {
    find(decoder, &|step| {
        (step["type"] == "Strip" && step["content"] == " " && step["start"].as_u64() > Some(0))
            || (step["type"] == "Metaspace" && step["prepend_scheme"] != "never")
    })
}

fn find(decoder: &Value, holds: &dyn Fn(&Value) -> bool) -> bool {
    let steps = decoder["decoders"].as_array();
    holds(decoder) || steps.is_some_and(|steps| steps.iter().any(|step| find(step, holds)))
}

impl Json {
    pub fn encode(&self, text: &str, special: SpecialTokens) -> Result<Vec<u32>> {
        let tokenizer = match special {
            SpecialTokens::Parse => &self.parsing,
            SpecialTokens::Plain => self.plain.get_or_init(|| {
                let mut plain = self.parsing.clone();
                plain.set_encode_special_tokens(true);
                Box::new(plain)
            }),
        };
        run(tokenizer, text, false)
    }

    /// With what the file's post-processor adds.
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>> {
        run(&self.parsing, text, true)
    }
}

fn run(tokenizer: &tokenizers::Tokenizer, text: &str, add_special: bool) -> Result<Vec<u32>> {
    let encoding = tokenizer.encode_fast(text, add_special).map_err(|e| Error::Tokenizer(e.to_string()))?;
    Ok(encoding.get_ids().to_vec())
}
