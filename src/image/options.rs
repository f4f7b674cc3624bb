//! The options for opening and decoding images.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    Image,
    decode::{self, Failure},
};
use crate::error::{Error, Result};

/// Says how transparent pixels become opaque.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alpha {
    /// Composites the image on this colour, in 8 bits with the rounding of Pillow.
    Over([u8; 3]),
    /// Ignores alpha and takes the colours as they are stored, as llama.cpp does. The colours of
    /// transparent pixels are often arbitrary.
    Drop,
}

/// The options for opening and decoding images; [`Image::options`] returns the defaults.
#[derive(Clone, Debug)]
pub struct ImageOptions {
    alpha: Alpha,
    max_pixels: usize,
}

impl Default for ImageOptions {
    fn default() -> Self {
        Self { alpha: Alpha::Over([255; 3]), max_pixels: 100_000_000 }
    }
}

impl ImageOptions {
    /// Sets how transparent pixels become opaque. Default: over white.
    pub fn alpha(mut self, alpha: Alpha) -> Self {
        self.alpha = alpha;
        self
    }

    /// Limits the number of pixels. Default 100 million, which take 300 MB, and up to five times as
    /// much while they are decoded. The file's header is checked before memory is allocated.
    /// Whatever the limit, no side may be longer than 65,535 pixels.
    pub fn max_pixels(mut self, max_pixels: usize) -> Self {
        self.max_pixels = max_pixels;
        self
    }

    /// Opens a file, as [`Image::open`].
    ///
    /// # Errors
    /// As [`Image::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Image> {
        let path = path.as_ref();
        let bytes = fs::read(path).map_err(|source| Error::Io { path: path.into(), source })?;
        self.decode_file(&bytes, Some(path))
    }

    /// Decodes the bytes of a file, as [`Image::decode`].
    ///
    /// # Errors
    /// As [`Image::decode`].
    pub fn decode(&self, bytes: &[u8]) -> Result<Image> {
        self.decode_file(bytes, None)
    }

    fn decode_file(&self, bytes: &[u8], path: Option<&Path>) -> Result<Image> {
        let path = || path.map(PathBuf::from);
        decode::decode(bytes, self.alpha, self.max_pixels).map_err(|failure| match failure {
            Failure::TooLarge { width, height } => {
                Error::ImageTooLarge { path: path(), width, height, max_pixels: self.max_pixels }
            }
            Failure::Invalid(what) => Error::Image { path: path(), what },
        })
    }
}
