//! Loads a model that drafts tokens for another one.

use std::path::Path;

use super::{RunnerBuilder, load::PreparedModel, vision_file::VisionFile};
use crate::{
    Error, Result,
    backend::{Backend, LoadProgress},
    generate::Decoder,
    gguf::Gguf,
    models,
    profile::Profile,
    tokenizer::Tokenizer,
};

/// The largest difference between the numbers of tokens of two vocabularies that count as the same:
/// some models have unused ones at the end.
const MAX_DIFFERENCE: usize = 128;
/// The first token that is compared: earlier ones are often control tokens of different names.
const FIRST_COMPARED: u32 = 5;

/// A model that drafts tokens, before memory is allocated for it.
pub(super) struct PreparedDraft<'a> {
    path: &'a Path,
    pub model: PreparedModel,
}

impl RunnerBuilder {
    /// Opens the file of the draft model, if there is one. A file with only a head is joined with
    /// the model's instead, which it changes.
    pub(super) fn open_draft(&self, model: &mut Gguf) -> Result<Option<Gguf>> {
        let Some(path) = &self.draft else { return Ok(None) };
        let draft = models::open(path).map_err(|error| in_draft(path, error))?;
        if !models::is_only_head(&draft).map_err(|error| in_draft(path, error))? {
            return Ok(Some(draft));
        }
        if self.without_mtp {
            let what = format!("`{}` is a head, which `without_mtp` leaves out", path.display());
            return Err(Error::argument("draft", what));
        }
        *model = models::join_head(model, &draft)?;
        Ok(None)
    }
}

impl<'a> PreparedDraft<'a> {
    /// Prepares the model in `gguf` with the settings of `builder` for a model whose context has
    /// `context_length` tokens, on its device.
    pub fn new(
        gguf: &'a Gguf,
        builder: &RunnerBuilder,
        profile: &Profile,
        context_length: usize,
        device: &dyn Backend,
    ) -> Result<Self> {
        let path = gguf.path();
        let prepare = || {
            let builder = RunnerBuilder {
                profile: Some(Profile { made_for: None, ..profile.clone() }),
                copy_weights: builder.copy_weights,
                vision: VisionFile::Without,
                without_mtp: true,
                ..RunnerBuilder::default()
            };
            builder.shortened_to(context_length).prepare(gguf.clone(), device.for_turns()?)
        };
        Ok(Self { path, model: prepare().map_err(|error| in_draft(path, error))? })
    }

    /// Checks that the model has the vocabulary of another one.
    ///
    /// # Errors
    /// [`Error::Argument`] with the token that differs.
    pub fn check(&self, tokenizer: &Tokenizer) -> Result<()> {
        let own = self.model.tokenizer().map_err(|error| in_draft(self.path, error))?;
        match difference(tokenizer, &own)? {
            Some(what) => Err(Error::argument("draft", format!("`{}`: {what}", self.path.display()))),
            None => Ok(()),
        }
    }

    /// Compiles the model, and counts its weights in `progress`.
    pub fn compile(self, progress: &LoadProgress<'_>) -> Result<Decoder> {
        self.model.compile(progress)
    }
}

/// Returns the difference between the vocabularies of a model and of its draft model.
fn difference(model: &Tokenizer, draft: &Tokenizer) -> Result<Option<String>> {
    let sizes = [model.vocab_size(), draft.vocab_size()];
    if sizes[0].abs_diff(sizes[1]) > MAX_DIFFERENCE {
        let what =
            format!("has {} tokens, but the model has {}: use a draft model of the same family", sizes[1], sizes[0]);
        return Ok(Some(what));
    }
    for id in FIRST_COMPARED..sizes[0].min(sizes[1]) as u32 {
        let [text, drafted] = [model.token_bytes(id)?, draft.token_bytes(id)?];
        if text != drafted {
            let [text, drafted] = [text, drafted].map(String::from_utf8_lossy);
            let what = format!(
                "its token {id} is {drafted:?}, but the model's is {text:?}: use a draft model of the same family"
            );
            return Ok(Some(what));
        }
    }
    Ok(None)
}

/// Names the file in an error of the draft model, unless another device or more memory could help.
fn in_draft(path: &Path, error: Error) -> Error {
    match error {
        Error::Device { .. } | Error::DeviceMemory { .. } | Error::NoDevice(_) | Error::Cancelled => error,
        error => Error::argument("draft", format!("`{}`: {error}", path.display())),
    }
}
