//! Runs the vocabularies that the `tokenizers` crate knows: a whole `tokenizer.json`, and BERT's WordPiece.

mod cutter;
mod json;
mod stand_ins;
mod wordpiece;

pub(super) use json::{Json, from_file, from_gguf};
pub(super) use wordpiece::from_gguf as wordpiece_from_gguf;
