//! Encodes images, and places their rows in prompts.

use std::sync::{Arc, Mutex, PoisonError};

use super::Runner;
use crate::{
    Error, Result,
    backend::Backend,
    generate::{ImageRows, PlacedImage},
    graph::{RopeAxes, Sees},
    image::Image,
    models::{
        Config,
        vision::{Pictures, VisionConfig, VisionModel},
    },
    tokenizer::{SpecialTokens, Tokenizer},
    vision::{ImagePart, ImagePictures, Picture, VisionEncoder},
};

/// The text in a prompt that stands for an image.
pub(super) const MARKER: &str = "<__media__>";

/// Images whose rows are kept for further prompts, besides images of open sequences.
const KEPT_IMAGES: usize = 16;

/// The largest number of patches of a step, for which a GPU has a workgroup each.
const MAX_PATCHES: usize = u16::MAX as usize;

/// A model's vision encoder, which all clones of a runner share.
pub(super) struct Vision {
    /// Whether an image's rows have a rotary position for the row and the column.
    by_grid: bool,
    /// Whether an image's rows see each other.
    whole: bool,
    state: Mutex<VisionState>,
}

struct VisionState {
    encoder: VisionEncoder,
    /// The images that were encoded last, the latest at the end.
    encoded: Vec<(Image, Arc<EncodedImage>)>,
}

/// An image as parts of a prompt.
pub(super) struct EncodedImage {
    parts: Vec<ImagePart>,
    /// The rows of each picture.
    rows: Vec<Arc<ImageRows>>,
}

/// A prompt of ids and images.
pub(super) struct ImagePrompt {
    /// The ids; 0 in the place of an image's rows.
    pub ids: Vec<u32>,
    pub images: Vec<PlacedImage>,
}

impl Vision {
    /// Compiles the encoder for images of as many rows as a text model with `config` has positions.
    ///
    /// # Errors
    /// As [`VisionEncoder::new`].
    pub fn new(model: VisionModel, config: &Config, context_length: usize, backend: &dyn Backend) -> Result<Self> {
        let max_patches = max_patches(&model.config, context_length);
        let by_grid = config.layers.iter().any(|layer| layer.rope.is_some_and(|rope| rope.axes != RopeAxes::First));
        let whole = config.layers.iter().any(|layer| layer.scores.sees == Sees::PastAndSpan);
        let encoder = VisionEncoder::new(model, backend, max_patches)?;
        Ok(Self { by_grid, whole, state: Mutex::new(VisionState { encoder, encoded: vec![] }) })
    }

    /// Returns the parts of each image, which are computed for images that were not encoded lately.
    fn encode(&self, images: &[Image]) -> Result<Vec<Arc<EncodedImage>>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        images.iter().map(|image| state.encode(image, self)).collect()
    }
}

impl VisionState {
    fn encode(&mut self, image: &Image, vision: &Vision) -> Result<Arc<EncodedImage>> {
        let known = self.encoded.iter().position(|(known, _)| known == image);
        let encoded = match known {
            Some(index) => self.encoded.remove(index).1,
            None => Arc::new(self.compute(image, vision)?),
        };
        self.make_room();
        self.encoded.push((image.clone(), encoded.clone()));
        Ok(encoded)
    }

    fn compute(&mut self, image: &Image, vision: &Vision) -> Result<EncodedImage> {
        let ImagePictures { pictures, parts } = ImagePictures::new(self.encoder.config(), image)?;
        let pictures: Vec<_> = pictures.iter().map(Picture::from).collect();
        let encoded = self.encoder.encode(&pictures, |_| true)?.ok_or(Error::Cancelled)?;
        let rows = encoded.into_iter().map(|picture| {
            let count = picture.grid.iter().product();
            let grid = Some(picture.grid).filter(|_| vision.by_grid);
            Arc::new(ImageRows { elements: picture.rows, count, grid, whole: vision.whole })
        });
        Ok(EncodedImage { parts, rows: rows.collect() })
    }

    /// Drops the earliest image that no sequence has, if there are as many as are kept.
    fn make_room(&mut self) {
        let unused = |image: &EncodedImage| image.rows.iter().all(|rows| Arc::strong_count(rows) == 1);
        if self.encoded.len() >= KEPT_IMAGES
            && let Some(index) = self.encoded.iter().position(|(_, image)| unused(image))
        {
            self.encoded.remove(index);
        }
    }
}

/// Returns the largest number of patches of a picture whose rows fit in the context.
fn max_patches(config: &VisionConfig, context_length: usize) -> usize {
    let patches_in_block = config.block.pow(2);
    let most = match config.pictures {
        Pictures::Dynamic { max_pixels, .. } => max_pixels / config.patch.pow(2),
        Pictures::Filling { max_blocks } => max_blocks * patches_in_block,
        // A class token may follow the patches.
        Pictures::Square | Pictures::Tiles { .. } | Pictures::Canvas { .. } => {
            (config.image_size / config.patch).pow(2) + 1
        }
    };
    most.min(context_length.saturating_mul(patches_in_block)).clamp(1, MAX_PATCHES)
}

/// Returns the largest number of rows that one step has to compute together.
pub(super) fn largest_whole_image(config: &Config, vision: &VisionConfig) -> usize {
    if config.layers.iter().all(|layer| layer.scores.sees != Sees::PastAndSpan) {
        return 0;
    }
    match vision.pictures {
        Pictures::Filling { max_blocks } => max_blocks,
        Pictures::Dynamic { .. } | Pictures::Square | Pictures::Tiles { .. } | Pictures::Canvas { .. } => {
            (vision.image_size / vision.patch / vision.block).pow(2)
        }
    }
}

impl ImagePrompt {
    /// Returns the ids of a prompt in which each `<__media__>` stands for an image.
    fn new(tokenizer: &Tokenizer, prompt: &str, images: &[Arc<EncodedImage>]) -> Result<Self> {
        let texts: Vec<_> = prompt.split(MARKER).collect();
        if texts.len() != images.len() + 1 {
            let what =
                format!("has {} places for images ({MARKER}), and there are {} images", texts.len() - 1, images.len());
            return Err(Error::argument("prompt", what));
        }
        let mut placed = Self { ids: tokenizer.encode_prompt(texts[0])?, images: vec![] };
        for (image, text) in images.iter().zip(&texts[1..]) {
            placed.push_image(tokenizer, image)?;
            placed.ids.extend(tokenizer.encode(text, SpecialTokens::Parse)?);
        }
        Ok(placed)
    }

    fn push_image(&mut self, tokenizer: &Tokenizer, image: &EncodedImage) -> Result<()> {
        for part in &image.parts {
            match part {
                ImagePart::Text(text) => self.ids.extend(tokenizer.encode(text, SpecialTokens::Parse)?),
                ImagePart::Rows(picture) => {
                    let rows = image.rows[*picture].clone();
                    let start = self.ids.len();
                    self.ids.resize(start + rows.count, 0);
                    self.images.push(PlacedImage { start, rows });
                }
            }
        }
        Ok(())
    }
}

impl Runner {
    /// Returns the logits of the token after a prompt, `[vocabulary]`. Each `<__media__>` in it
    /// stands for an image, in order, with the text that the model expects around an image.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a model without vision; [`Error::Image`] for an image that the
    /// model does not take; [`Error::Argument`] if the prompt has another number of places than
    /// there are images; [`Error::ContextFull`] if the context has no room for it.
    #[doc(hidden)]
    pub fn prefill_images(&mut self, prompt: &str, images: &[Image]) -> Result<&[f32]> {
        let encoded = self.vision()?.encode(images)?;
        let ImagePrompt { ids, images } = ImagePrompt::new(&self.tokenizer, prompt, &encoded)?;
        self.decoder.prefill_with_images(self.sequence, &ids, &images, |_, _| true)?;
        Ok(self.decoder.logits_mut())
    }

    /// Returns up to `n` ids that continue a prompt with images, each the most probable one, as
    /// [`generate_ids`](Self::generate_ids) does. `tokenizer` replaces the model's.
    ///
    /// # Errors
    /// As [`prefill_images`](Self::prefill_images).
    pub(super) fn generate_with_images(
        &mut self,
        prompt: &str,
        images: &[Image],
        tokenizer: Option<&Tokenizer>,
        n: usize,
        on_token: &mut dyn FnMut(u32) -> bool,
    ) -> Result<Vec<u32>> {
        let encoded = self.vision()?.encode(images)?;
        let prompt = ImagePrompt::new(tokenizer.unwrap_or(&self.tokenizer), prompt, &encoded)?;
        self.decoder.prefill_with_images(self.sequence, &prompt.ids, &prompt.images, |_, _| true)?;
        self.continue_ids(n, on_token)
    }

    /// Returns the rows of each image, `[rows, width]`, as the text model takes them.
    ///
    /// # Errors
    /// As [`prefill_images`](Self::prefill_images).
    #[doc(hidden)]
    pub fn image_embeddings(&self, images: &[Image]) -> Result<Vec<f32>> {
        let encoded = self.vision()?.encode(images)?;
        let rows = encoded.iter().flat_map(|image| &image.rows);
        Ok(rows.flat_map(|rows| rows.elements.iter().copied()).collect())
    }

    pub(super) fn vision(&self) -> Result<&Vision> {
        self.vision.as_deref().ok_or_else(|| {
            if let Some(error) = &self.no_vision {
                return Error::VisionEncoder { error: error.clone() };
            }
            let what = "the model was loaded without vision: pass the file `mmproj-*.gguf` that belongs to it with \
                        `Runner::builder().vision(..)`";
            Error::Unsupported(what.into())
        })
    }
}
