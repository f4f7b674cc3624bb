//! Language models of any family behind one object-safe trait.

use std::path::Path;

use super::Runner;
use crate::{Error, Result};

/// A language model, for programs that choose it while they run.
///
/// ```no_run
/// use inkstone::{LmRunner, Runner};
///
/// let mut model: Box<dyn LmRunner> = Box::new(Runner::from_gguf("Llama-3.2-1B-Q4_K_M.gguf")?);
/// let ids = model.generate(&[128000, 791, 6864], 8, &mut |_id| true)?;
/// # Ok::<(), inkstone::Error>(())
/// ```
pub trait LmRunner: Send {
    /// The model's family, as the file names it: `qwen3`, `llama` …
    fn family(&self) -> &str;

    /// How many tokens it knows; ids are below this.
    fn vocab_size(&self) -> usize;

    /// The logits of what follows `ids`, one for each token of the vocabulary, all computed afresh.
    ///
    /// # Errors
    /// [`Error::Argument`] where there are no ids or one is past the vocabulary, [`Error::ContextFull`] where there are
    /// more than the context has room for.
    fn predict_logits(&mut self, ids: &[u32]) -> Result<Vec<f32>>;

    /// The `n_new` most probable ids after `ids`. `on_token` is given each as it comes, and ends it at once by returning
    /// false. It also ends before an end-of-generation token, and where the context is full.
    ///
    /// # Errors
    /// As [`predict_logits`](Self::predict_logits).
    fn generate(&mut self, ids: &[u32], n_new: usize, on_token: &mut dyn FnMut(u32) -> bool) -> Result<Vec<u32>>;

    /// Whether the model sees images.
    fn supports_multimodal(&self) -> bool;

    /// The `n_new` most probable ids after a prompt about an image of `width` by `height` pixels, each a red, a green
    /// and a blue byte, row by row from the top. A `tokenizer` (Hugging Face's `tokenizer.json`) replaces the model's
    /// own; `on_token` is as for [`generate`](Self::generate).
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the model sees no images; else as [`generate`](Self::generate).
    #[expect(clippy::too_many_arguments, reason = "an image is three of them")]
    fn generate_multimodal(
        &mut self,
        prompt: &str,
        rgb: &[u8],
        width: usize,
        height: usize,
        tokenizer: Option<&Path>,
        n_new: usize,
        on_token: &mut dyn FnMut(u32) -> bool,
    ) -> Result<Vec<u32>>;
}

impl LmRunner for Runner {
    fn family(&self) -> &str {
        &self.config().architecture
    }

    fn vocab_size(&self) -> usize {
        self.config().vocab_size
    }

    fn predict_logits(&mut self, ids: &[u32]) -> Result<Vec<f32>> {
        Runner::predict_logits(self, ids)
    }

    fn generate(&mut self, ids: &[u32], n_new: usize, on_token: &mut dyn FnMut(u32) -> bool) -> Result<Vec<u32>> {
        self.generate_ids(ids, n_new, on_token)
    }

    fn supports_multimodal(&self) -> bool {
        false
    }

    fn generate_multimodal(
        &mut self,
        _prompt: &str,
        _rgb: &[u8],
        _width: usize,
        _height: usize,
        _tokenizer: Option<&Path>,
        _n_new: usize,
        _on_token: &mut dyn FnMut(u32) -> bool,
    ) -> Result<Vec<u32>> {
        let family = &self.config().architecture;
        Err(Error::Unsupported(format!("the {family} model sees no images: load one with vision, or call `generate`")))
    }
}
