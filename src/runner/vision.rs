//! Places images in prompts, and encodes them.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{Runner, vision_file::NoVision};
use crate::{
    Error, Result,
    backend::Backend,
    generate::{EncodeImages, EncodedPart, ImageRows, PlacedImage, PlacedPrompt, Prompt, PromptImages, PromptPart},
    graph::{RopeAxes, Sees},
    image::Image,
    models::{
        Config,
        vision::{Pictures, VisionConfig, VisionModel},
    },
    tokenizer::{SpecialTokens, Tokenizer},
    vision::{EncoderPlan, ImagePart, ImagePictures, Picture, VisionEncoder},
};

/// The text in a prompt that stands for an image.
pub(super) const MARKER: &str = "<__media__>";

/// Images that are kept for further prompts, besides images of open sequences.
const KEPT_IMAGES: usize = 16;

/// The largest number of patches of a step, for which a GPU has a workgroup each.
const MAX_PATCHES: usize = u16::MAX as usize;

/// A model's vision encoder, which all clones of a runner share.
pub(super) struct Vision {
    config: VisionConfig,
    /// Whether an image's rows have a rotary position for the row and the column.
    by_grid: bool,
    /// Whether an image's rows see each other.
    whole: bool,
    encoder: Mutex<VisionEncoder>,
    /// The images of the last prompts, the latest at the end.
    known: Mutex<Vec<(Image, Arc<ImageLayout>)>>,
}

/// An image as parts of a prompt.
struct ImageLayout {
    parts: Vec<ImagePart>,
    /// The rows of each picture.
    rows: Vec<Arc<ImageRows>>,
}

impl Vision {
    /// Returns the encoder for the images of a text model with `config`.
    pub fn new(encoder: VisionEncoder, config: &Config) -> Self {
        let by_grid = config.layers.iter().any(|layer| layer.rope.is_some_and(|rope| rope.axes != RopeAxes::First));
        let whole = config.layers.iter().any(|layer| layer.scores.sees == Sees::PastAndSpan);
        let vision = encoder.config().clone();
        Self { config: vision, by_grid, whole, encoder: Mutex::new(encoder), known: Mutex::new(vec![]) }
    }

    /// Gives the images of a prompt their places. Text that the model expects around an image is
    /// added unless the ids beside the image have it.
    ///
    /// # Errors
    /// [`Error::Image`] for an aspect ratio that the model does not take.
    fn place(self: &Arc<Self>, parts: Vec<EncodedPart>, tokenizer: &Tokenizer) -> Result<PlacedPrompt> {
        let mut prompt = PlacedPrompt::default();
        prompt.images.encoder = Some(self.clone());
        // The text after an image, which the next ids may have already.
        let mut after = vec![];
        let mut follows_ids = false;
        for part in parts {
            match part {
                EncodedPart::Ids(ids) => {
                    let missing = mem::take(&mut after);
                    if !ids.starts_with(&missing) {
                        prompt.ids.extend(missing);
                    }
                    follows_ids = !ids.is_empty();
                    prompt.ids.extend(ids);
                }
                EncodedPart::Image(image) => {
                    prompt.ids.append(&mut after);
                    after = self.layout(&image)?.append_to(&mut prompt, tokenizer, mem::take(&mut follows_ids))?;
                }
            }
        }
        prompt.ids.append(&mut after);
        Ok(prompt)
    }

    /// Returns the layout of an image, which it shares with the same image in earlier prompts.
    fn layout(&self, image: &Image) -> Result<Arc<ImageLayout>> {
        let mut known = lock(&self.known);
        let layout = match known.iter().position(|(known, _)| known == image) {
            Some(index) => known.remove(index).1,
            None => Arc::new(self.lay_out(image)?),
        };
        make_room(&mut known);
        known.push((image.clone(), layout.clone()));
        Ok(layout)
    }

    fn lay_out(&self, image: &Image) -> Result<ImageLayout> {
        let ImagePictures { pictures, parts } = ImagePictures::new(&self.config, image)?;
        let unit = self.config.patch * self.config.block;
        let rows = pictures.into_iter().map(|picture| {
            let grid = [picture.height() / unit, picture.width() / unit];
            let by_grid = Some(grid).filter(|_| self.by_grid);
            Arc::new(ImageRows::new(picture, grid.iter().product(), by_grid, self.whole))
        });
        Ok(ImageLayout { rows: rows.collect(), parts })
    }
}

impl EncodeImages for Vision {
    fn encode(&self, images: &[Arc<ImageRows>], progress: &mut dyn FnMut(usize) -> bool) -> Result<bool> {
        let mut encoder = lock(&self.encoder);
        // Another clone may have encoded some while this one waited.
        let images: Vec<_> = images.iter().filter(|rows| rows.elements().is_none()).collect();
        let pictures: Vec<_> = images.iter().map(|rows| Picture::from(&rows.picture)).collect();
        let Some(encoded) = encoder.encode(&pictures, progress)? else { return Ok(false) };
        for (rows, picture) in images.iter().zip(encoded) {
            rows.set(picture.rows);
        }
        Ok(true)
    }
}

/// Drops the earliest image that no sequence has, if there are as many as are kept.
fn make_room(known: &mut Vec<(Image, Arc<ImageLayout>)>) {
    let unused = |layout: &ImageLayout| layout.rows.iter().all(|rows| Arc::strong_count(rows) == 1);
    if known.len() >= KEPT_IMAGES
        && let Some(index) = known.iter().position(|(_, layout)| unused(layout))
    {
        known.remove(index);
    }
}

impl ImageLayout {
    /// Appends the image to a prompt, except the text after it, which it returns. `follows_ids`:
    /// the prompt may end with the text before the image.
    fn append_to(&self, prompt: &mut PlacedPrompt, tokenizer: &Tokenizer, follows_ids: bool) -> Result<Vec<u32>> {
        let last = self.parts.len() - 1;
        for (index, part) in self.parts.iter().enumerate() {
            match part {
                ImagePart::Text(text) => {
                    let ids = tokenizer.encode(text, SpecialTokens::Parse)?;
                    if index == last {
                        return Ok(ids);
                    }
                    if !(index == 0 && follows_ids && prompt.ids.ends_with(&ids)) {
                        prompt.ids.extend(ids);
                    }
                }
                ImagePart::Rows(picture) => {
                    let rows = self.rows[*picture].clone();
                    let start = prompt.ids.len();
                    prompt.ids.resize(start + rows.count, 0);
                    prompt.images.placed.push(PlacedImage { start, rows });
                }
            }
        }
        Ok(vec![])
    }
}

/// Locks a mutex, whose data a panic elsewhere leaves whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Plans an encoder for images of up to as many rows as the context has positions.
///
/// # Errors
/// As [`EncoderPlan::new`].
pub(super) fn plan_encoder(model: VisionModel, backend: &dyn Backend, context_length: usize) -> Result<EncoderPlan> {
    let max_patches = max_patches(&model.config, context_length);
    EncoderPlan::new(model, backend, max_patches)
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

/// Returns a prompt in which each `<__media__>` stands for an image.
///
/// # Errors
/// [`Error::Argument`] if there are more or fewer images than places.
pub(super) fn marked_prompt<'p>(prompt: &'p str, images: &[Image]) -> Result<Prompt<'p>> {
    let places = prompt.matches(MARKER).count();
    if places != images.len() {
        let what = format!("has {places} places for images ({MARKER}), and there are {} images", images.len());
        return Err(Error::argument("prompt", what));
    }
    let mut texts = prompt.split(MARKER).map(PromptPart::from);
    let images = images.iter().cloned().map(PromptPart::from);
    let mut parts: Vec<_> = texts.next().into_iter().collect();
    parts.extend(images.zip(texts).flat_map(|(image, text)| [image, text]));
    Ok(Prompt::Parts(parts))
}

impl Runner {
    /// Returns the ids of a prompt, and the places of its images.
    ///
    /// # Errors
    /// As [`Prompt::into_ids`]; [`Error::Unsupported`] for an image if the model was loaded without
    /// vision, and [`Error::Image`] for one that the model does not take.
    pub(super) fn place(&self, prompt: Prompt<'_>) -> Result<PlacedPrompt> {
        self.place_with(prompt, &self.tokenizer)
    }

    fn place_with(&self, prompt: Prompt<'_>, tokenizer: &Tokenizer) -> Result<PlacedPrompt> {
        if !prompt.has_images() {
            return prompt.into_ids(tokenizer).map(PlacedPrompt::from);
        }
        let vision = self.vision()?;
        vision.place(prompt.into_encoded_parts(tokenizer)?, tokenizer)
    }

    /// Returns the logits of the token after a prompt, `[vocabulary]`. Each `<__media__>` in it
    /// stands for an image, in order, with the text that the model expects around an image.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a model without vision; [`Error::Image`] for an image that the
    /// model does not take; [`Error::Argument`] if the prompt has another number of places than
    /// there are images; [`Error::ContextFull`] if the context has no room for it.
    #[doc(hidden)]
    pub fn prefill_images(&mut self, prompt: &str, images: &[Image]) -> Result<&[f32]> {
        let PlacedPrompt { ids, images } = self.place(marked_prompt(prompt, images)?)?;
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
        prompt: Prompt<'_>,
        tokenizer: Option<&Tokenizer>,
        n: usize,
        on_token: &mut dyn FnMut(u32) -> bool,
    ) -> Result<Vec<u32>> {
        let PlacedPrompt { ids, images } = self.place_with(prompt, tokenizer.unwrap_or(&self.tokenizer))?;
        self.decoder.prefill_with_images(self.sequence, &ids, &images, |_, _| true)?;
        self.continue_ids(n, on_token)
    }

    /// Returns the rows of each image, `[rows, width]`, as the text model takes them.
    ///
    /// # Errors
    /// As [`prefill_images`](Self::prefill_images).
    #[doc(hidden)]
    pub fn image_embeddings(&self, images: &[Image]) -> Result<Vec<f32>> {
        let vision = self.vision()?;
        let layouts = images.iter().map(|image| vision.layout(image)).collect::<Result<Vec<_>>>()?;
        let place = |rows: &Arc<ImageRows>| PlacedImage { start: 0, rows: rows.clone() };
        let placed = layouts.iter().flat_map(|layout| &layout.rows).map(place).collect();
        let images = PromptImages { placed, encoder: Some(vision.clone()) };
        images.encode(0, |_, _| true)?;
        let rows = images.placed.iter().filter_map(|image| image.rows.elements());
        Ok(rows.flatten().copied().collect())
    }

    pub(super) fn vision(&self) -> Result<&Arc<Vision>> {
        self.vision.as_ref().map_err(|reason| {
            let what = match reason {
                NoVision::Unusable { path, error } => {
                    return Error::VisionEncoder { path: path.clone(), error: error.clone() };
                }
                NoVision::Unwanted => "the model was loaded with `without_vision()`: leave it out",
                NoVision::Missing => {
                    "the model was loaded without vision, because no file `mmproj*.gguf` is beside it: pass the file \
                     that belongs to it with `Runner::builder().vision(..)`"
                }
            };
            Error::Unsupported(what.into())
        })
    }
}
