//! Runs tokenizers of the `tokenizers` crate: a `tokenizer.json`, and BERT's WordPiece.

mod added_tokens;
mod failures;
mod json;
mod model;
mod normalizer;
mod placeholders;
mod pre_tokenizer;
mod wordpiece;

pub(super) use self::{
    json::{JsonTokenizer, from_file, from_gguf},
    wordpiece::from_gguf as wordpiece_from_gguf,
};
