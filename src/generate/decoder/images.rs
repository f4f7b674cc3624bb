//! The images of a prompt, whose rows a sequence has in the place of tokens.

use std::{
    fmt,
    ops::Range,
    sync::{Arc, OnceLock},
};

use crate::{Error, Result, image::Image};

/// A picture and its rows, which an encoder computes when a prefill needs them.
#[derive(Debug)]
pub struct ImageRows {
    /// The picture, at the size that the encoder takes.
    pub picture: Image,
    /// The number of rows.
    pub count: usize,
    /// The rows below and beside each other, in models that rotate an image's rows by both; `None`
    /// in models where a row has a token's position.
    pub grid: Option<[usize; 2]>,
    /// Whether the rows see each other, so that one step has to compute all.
    pub whole: bool,
    elements: OnceLock<Vec<f32>>,
}

impl ImageRows {
    /// Returns the rows of a picture that is not encoded yet.
    pub fn new(picture: Image, count: usize, grid: Option<[usize; 2]>, whole: bool) -> Self {
        Self { picture, count, grid, whole, elements: OnceLock::new() }
    }

    /// Returns the rows, `[count, row_width]`; `None` before they are computed.
    pub fn elements(&self) -> Option<&[f32]> {
        self.elements.get().map(Vec::as_slice)
    }

    /// Sets the rows, `[count, row_width]`, unless they are set.
    pub fn set(&self, elements: Vec<f32>) {
        self.elements.get_or_init(|| elements);
    }
}

/// An image in a sequence.
#[derive(Clone, Debug)]
pub struct PlacedImage {
    /// The index of the first row among the sequence's tokens.
    pub start: usize,
    /// The rows; two images are the same if they share the rows.
    pub rows: Arc<ImageRows>,
}

impl PlacedImage {
    /// Returns the tokens that the rows replace.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.rows.count
    }

    /// Returns the row of a token of the sequence, if it is one of the image.
    ///
    /// # Errors
    /// An internal error if the rows are not computed.
    pub(super) fn row(&self, token: usize) -> Result<Option<&[f32]>> {
        if !self.range().contains(&token) {
            return Ok(None);
        }
        let elements = self.rows.elements().ok_or_else(|| Error::internal("a step has an image without rows"))?;
        let width = elements.len() / self.rows.count;
        let first = (token - self.start) * width;
        Ok(elements.get(first..first + width))
    }

    /// Returns whether two images are the same at the same place.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.start == other.start && Arc::ptr_eq(&self.rows, &other.rows)
    }
}

/// Computes the rows of images.
pub trait EncodeImages: Send + Sync {
    /// Sets the rows of images that have none. `progress` is called with the number of computed
    /// rows, several times for each image. If it returns false, the function returns false, and
    /// some images have no rows.
    ///
    /// # Errors
    /// Errors of the device.
    fn encode(&self, images: &[Arc<ImageRows>], progress: &mut dyn FnMut(usize) -> bool) -> Result<bool>;
}

/// The images of a prompt.
#[derive(Clone, Default)]
pub struct PromptImages {
    /// The images, in the order of their places.
    pub placed: Vec<PlacedImage>,
    /// The encoder of the images; `None` if there are none.
    pub encoder: Option<Arc<dyn EncodeImages>>,
}

impl PromptImages {
    /// Encodes the images from the token `start` on, unless they were encoded before, and returns
    /// the number of rows that this took; `None` if `progress` returned false. `progress` is called
    /// with the number of computed rows and the number of all of them.
    ///
    /// # Errors
    /// As [`EncodeImages::encode`].
    pub fn encode(&self, start: usize, mut progress: impl FnMut(usize, usize) -> bool) -> Result<Option<usize>> {
        let mut new: Vec<Arc<ImageRows>> = vec![];
        for PlacedImage { rows, .. } in self.placed.iter().filter(|image| image.start >= start) {
            if rows.elements().is_none() && !new.iter().any(|known| Arc::ptr_eq(known, rows)) {
                new.push(rows.clone());
            }
        }
        let count = new.iter().map(|rows| rows.count).sum();
        let complete = match &self.encoder {
            Some(encoder) if count > 0 => encoder.encode(&new, &mut |done| progress(done, count))?,
            _ => true,
        };
        Ok(complete.then_some(count))
    }
}

impl fmt::Debug for PromptImages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromptImages").field("placed", &self.placed).finish_non_exhaustive()
    }
}

/// The token ids and images of a prompt.
#[derive(Clone, Debug, Default)]
pub struct PlacedPrompt {
    /// The ids; 0 in the place of an image's rows.
    pub ids: Vec<u32>,
    pub images: PromptImages,
}

impl PlacedPrompt {
    /// Returns the ids that are not in the place of an image's rows.
    pub fn text_ids(&self) -> impl Iterator<Item = u32> {
        let mut images = self.images.placed.iter().map(PlacedImage::range).peekable();
        self.ids.iter().enumerate().filter_map(move |(index, id)| {
            while images.next_if(|image| image.end <= index).is_some() {}
            (!images.peek().is_some_and(|image| image.contains(&index))).then_some(*id)
        })
    }
}

impl From<Vec<u32>> for PlacedPrompt {
    fn from(ids: Vec<u32>) -> Self {
        Self { ids, ..Self::default() }
    }
}
