//! Runs the vocabularies that the `tokenizers` crate knows: a whole `tokenizer.json`, and BERT's WordPiece.

mod json;
mod placeholders;
mod pre_tokenizer;
mod wordpiece;

pub(super) use json::{Json, from_file, from_gguf};
pub(super) use wordpiece::from_gguf as wordpiece_from_gguf;
