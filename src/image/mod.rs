//! Reads images, and resizes them as the models' own preprocessing does.
//!
//! An [`Image`] holds 8-bit RGB. [`Image::from_rgb`] takes pixels, and with the feature `image`
//! [`Image::open`] and [`Image::decode`] read PNG, JPEG, WebP and GIF. [`Image::options`] changes
//! the treatment of transparent pixels, and the limit of an image's size.

#[cfg(feature = "image")]
mod decode;
#[cfg(feature = "image")]
mod options;
pub(crate) mod resize;
mod saved;
pub(crate) mod size;

use std::{fmt, sync::Arc};

use crate::error::{Error, Result};

#[cfg(feature = "image")]
pub use self::options::{Alpha, ImageOptions};

/// Largest number of pixels in a row or column. It bounds the memory that resizing takes, and no
/// encoder sees anything in an image of such a shape.
const MAX_SIDE: usize = u16::MAX as usize;

/// Bytes of a pixel: red, green, blue.
const CHANNELS: usize = 3;

/// A picture in 8-bit RGB.
///
/// Clones share the pixels. Two images are equal if their sizes and pixels are.
///
/// ```
/// use inkstone::Image;
///
/// // Two pixels side by side: red and blue.
/// let image = Image::from_rgb([255, 0, 0, 0, 0, 255], 2, 1)?;
/// assert_eq!((image.width(), image.height()), (2, 1));
/// assert_eq!(image.rgb()[..3], [255, 0, 0]);
/// # Ok::<(), inkstone::Error>(())
/// ```
#[derive(Clone)]
pub struct Image {
    /// `[height, width, 3]`.
    pixels: Arc<Vec<u8>>,
    width: usize,
    height: usize,
}

impl Image {
    /// Makes an image of bytes in the order `[height, width, 3]`: the pixels row by row from the
    /// top left, each as red, green and blue.
    ///
    /// # Errors
    /// Fails if the width or height is 0 or above 65,535, or if the number of bytes is not
    /// `width * height * 3`.
    pub fn from_rgb(bytes: impl Into<Vec<u8>>, width: usize, height: usize) -> Result<Self> {
        for (name, side) in [("width", width), ("height", height)] {
            if !(1..=MAX_SIDE).contains(&side) {
                return Err(Error::argument(name, format!("must be from 1 to {MAX_SIDE} pixels, not {side}")));
            }
        }
        let bytes = bytes.into();
        // Cannot overflow in 64 bits, as no side exceeds 16.
        let expected = width as u64 * height as u64 * CHANNELS as u64;
        if bytes.len() as u64 != expected {
            let what = format!("has {} bytes, but {width} x {height} pixels of RGB have {expected}", bytes.len());
            return Err(Error::argument("bytes", what));
        }
        Ok(Self::from_parts(bytes, width, height))
    }

    /// Makes an image of `width * height * 3` bytes.
    fn from_parts(bytes: Vec<u8>, width: usize, height: usize) -> Self {
        debug_assert_eq!(bytes.len(), width * height * CHANNELS);
        Self { pixels: Arc::new(bytes), width, height }
    }

    /// Returns the number of pixels in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the number of rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// Returns the pixels as `[height, width, 3]`, row by row from the top left.
    pub fn rgb(&self) -> &[u8] {
        &self.pixels
    }

    /// Returns the rectangle of `width` x `height` pixels whose top left pixel is at column `x` and
    /// row `y`. It must lie within the image.
    #[doc(hidden)]
    pub fn crop(&self, x: usize, y: usize, width: usize, height: usize) -> Self {
        let rows = self.pixels.chunks_exact(self.width * CHANNELS).skip(y).take(height);
        let pixels = rows.flat_map(|row| &row[x * CHANNELS..(x + width) * CHANNELS]).copied().collect();
        Self::from_parts(pixels, width, height)
    }
}

#[cfg(feature = "image")]
impl Image {
    /// Opens a PNG, JPEG, WebP or GIF file; of an animation the first picture.
    ///
    /// The result is upright, as the orientation in the file's EXIF data says. Transparent pixels
    /// are composited on white. 16-bit samples keep their upper 8 bits. Colour profiles are not
    /// applied.
    ///
    /// ```no_run
    /// use inkstone::Image;
    ///
    /// let image = Image::open("cat.jpg")?;
    /// println!("{} x {} pixels", image.width(), image.height());
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the file cannot be read, is malformed or truncated, has another format, or is
    /// larger than 100 million pixels ([`ImageOptions::max_pixels`]).
    pub fn open(path: impl AsRef<std::path::Path>) -> Result<Self> {
        Self::options().open(path)
    }

    /// Decodes the bytes of a PNG, JPEG, WebP or GIF file, as [`open`](Self::open) does.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        Self::options().decode(bytes)
    }

    /// Returns options for opening and decoding images.
    ///
    /// ```no_run
    /// use inkstone::{Image, image::Alpha};
    ///
    /// let logo = Image::options().alpha(Alpha::Over([0, 0, 0])).max_pixels(4_000_000).open("logo.png")?;
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    pub fn options() -> ImageOptions {
        ImageOptions::default()
    }
}

impl PartialEq for Image {
    fn eq(&self, other: &Self) -> bool {
        let same_size = (self.width, self.height) == (other.width, other.height);
        same_size && (Arc::ptr_eq(&self.pixels, &other.pixels) || self.pixels == other.pixels)
    }
}

impl Eq for Image {}

/// Prints the size, as millions of pixels say nothing.
impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({} x {})", self.width, self.height)
    }
}
