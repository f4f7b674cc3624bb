//! Returns errors for vocabularies that need the `tokenizers` crate, in builds without it.

use super::{Encoder, vocabulary::Vocabulary};
use crate::{
    error::{Error, Result},
    gguf::Gguf,
};

pub(super) fn wordpiece_from_gguf(gguf: &Gguf) -> Result<(Vocabulary, Encoder)> {
    Err(missing(gguf, "a WordPiece vocabulary (`tokenizer.ggml.model` = `bert`)"))
}

pub(super) fn from_gguf(gguf: &Gguf) -> Result<Option<(Vocabulary, Encoder)>> {
    match gguf.str("tokenizer.huggingface.json")? {
        Some(_) => Err(missing(gguf, "a Hugging Face `tokenizer.json` (in the key `tokenizer.huggingface.json`)")),
        None => Ok(None),
    }
}

fn missing(gguf: &Gguf, vocabulary: &str) -> Error {
    let what = format!("{}: has {vocabulary}", gguf.path().display());
    Error::MissingFeature { feature: "tokenizers", what }
}
