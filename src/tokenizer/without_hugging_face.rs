//! Refuses the vocabularies that need the `tokenizers` crate, in builds without it.

use super::Encoder;
use super::vocabulary::Vocabulary;
use crate::error::{Error, Result};
use crate::gguf::Gguf;

pub(super) fn wordpiece_from_gguf(gguf: &Gguf) -> Result<(Vocabulary, Encoder)> {
    Err(missing(gguf, "a vocabulary of WordPiece (`tokenizer.ggml.model` = `bert`)"))
}

pub(super) fn from_gguf(gguf: &Gguf) -> Result<Option<(Vocabulary, Encoder)>> {
    match gguf.str("tokenizer.huggingface.json")? {
        Some(_) => Err(missing(gguf, "Hugging Face's `tokenizer.json` (`tokenizer.huggingface.json`)")),
        None => Ok(None),
    }
}

fn missing(gguf: &Gguf, vocabulary: &str) -> Error {
    let what = format!("{}: has {vocabulary}", gguf.path().display());
    Error::MissingFeature { feature: "tokenizers", what }
}
