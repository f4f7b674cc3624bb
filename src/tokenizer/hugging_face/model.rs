//! Shares the model of a tokenizer between the tokenizer's copies.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokenizers::{Model, Result, Token, Tokenizer, models::TrainerWrapper};

/// The model of a tokenizer of the `tokenizers` crate, which lends its model but does not give it
/// away.
#[derive(Clone)]
pub(super) struct SharedModel(Arc<Tokenizer>);

impl SharedModel {
    pub fn new(tokenizer: Arc<Tokenizer>) -> Self {
        Self(tokenizer)
    }
}

impl Model for SharedModel {
    type Trainer = TrainerWrapper;

    fn tokenize(&self, text: &str) -> Result<Vec<Token>> {
        self.0.get_model().tokenize(text)
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.0.get_model().token_to_id(token)
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        self.0.get_model().id_to_token(id)
    }

    fn get_vocab(&self) -> HashMap<String, u32> {
        self.0.get_model().get_vocab()
    }

    fn get_vocab_size(&self) -> usize {
        self.0.get_model().get_vocab_size()
    }

    fn save(&self, folder: &Path, prefix: Option<&str>) -> Result<Vec<PathBuf>> {
        self.0.get_model().save(folder, prefix)
    }

    fn get_trainer(&self) -> TrainerWrapper {
        self.0.get_model().get_trainer()
    }
}
