//! The object-safe trait of language models.

use std::{borrow::Cow, path::Path};

use super::{
    Runner,
    vision::{MARKER, marked_prompt},
};
use crate::{Result, image::Image, tokenizer::Tokenizer};

/// A language model of any family, for programs that choose a model at run time.
///
/// Its [`generate`](Self::generate) takes and returns token ids, whereas [`Runner::generate`]
/// generates text.
///
/// ```no_run
/// use inkstone::{LmRunner, Runner};
///
/// let mut model: Box<dyn LmRunner> = Box::new(Runner::from_gguf("Llama-3.2-1B-Q4_K_M.gguf")?);
/// let ids = model.generate(&[128000, 791, 6864], 8, &mut |_id| true)?;
/// # Ok::<(), inkstone::Error>(())
/// ```
pub trait LmRunner: Send {
    /// Returns the model's family as the file names it, such as `qwen3` or `llama`.
    fn family(&self) -> &str;

    /// Returns the number of tokens in the vocabulary; ids are below it.
    fn vocab_size(&self) -> usize;

    /// Returns the logits of the token after `ids`, `[vocabulary]`. All ids are computed again.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if `ids` is empty or has an id that is not in
    /// the vocabulary; [`Error::ContextFull`](crate::Error::ContextFull) if the context has no room
    /// for them.
    fn predict_logits(&mut self, ids: &[u32]) -> Result<Vec<f32>>;

    /// Returns up to `n_new` ids that continue `ids`, each the most probable one. `on_token` is
    /// called with each id, and ends the generation by returning false. It also ends before an
    /// end-of-generation token, and at the end of the context.
    ///
    /// # Errors
    /// As [`predict_logits`](Self::predict_logits).
    fn generate(&mut self, ids: &[u32], n_new: usize, on_token: &mut dyn FnMut(u32) -> bool) -> Result<Vec<u32>>;

    /// Returns whether the model accepts images.
    fn supports_multimodal(&self) -> bool;

    /// Returns up to `n_new` ids that continue a prompt about an image, each the most probable one.
    /// The image stands in the place of `<__media__>` in the prompt, or before it.
    /// `rgb` is `[height, width, 3]` bytes, row by row from the top. `tokenizer` is the path of a
    /// Hugging Face `tokenizer.json` that replaces the model's tokenizer. `on_token` is called as
    /// by [`generate`](Self::generate).
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the model was loaded without vision,
    /// [`Error::Image`](crate::Error::Image) for an image that it does not take; otherwise as
    /// [`generate`](Self::generate).
    #[expect(clippy::too_many_arguments, reason = "the image takes three")]
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
        self.vision().is_ok()
    }

    fn generate_multimodal(
        &mut self,
        prompt: &str,
        rgb: &[u8],
        width: usize,
        height: usize,
        tokenizer: Option<&Path>,
        n_new: usize,
        on_token: &mut dyn FnMut(u32) -> bool,
    ) -> Result<Vec<u32>> {
        let image = Image::from_rgb(rgb, width, height)?;
        let tokenizer = tokenizer.map(open_tokenizer).transpose()?;
        // Without a place for the image, it comes first.
        let has_place = prompt.contains(MARKER);
        let prompt = if has_place { Cow::Borrowed(prompt) } else { Cow::Owned(format!("{MARKER}{prompt}")) };
        self.generate_with_images(marked_prompt(&prompt, &[image])?, tokenizer.as_ref(), n_new, on_token)
    }
}

#[cfg(feature = "tokenizers")]
fn open_tokenizer(path: &Path) -> Result<Tokenizer> {
    Tokenizer::from_file(path)
}

#[cfg(not(feature = "tokenizers"))]
fn open_tokenizer(path: &Path) -> Result<Tokenizer> {
    let what = format!("`{}` cannot be read without the feature `tokenizers`", path.display());
    Err(crate::Error::Unsupported(what))
}
