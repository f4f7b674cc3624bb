//! Decodes image files into upright 8-bit RGB.

mod alpha;
mod exif;
mod gif;
mod jpeg;
mod png;
mod webp;

use std::panic::{AssertUnwindSafe, catch_unwind};

use self::exif::Orientation;
use super::{Alpha, Image, MAX_SIDE};

/// Tells why a file could not be decoded.
#[derive(Debug)]
pub(super) enum Failure {
    /// The header states more pixels than allowed.
    TooLarge { width: usize, height: usize },
    /// The message for [`Error::Image`](crate::Error::Image).
    Invalid(String),
}

impl Failure {
    /// Returns the failure of a file that breaks the rules of its format, with a decoder's message.
    fn malformed(format: &str, error: impl std::fmt::Display) -> Self {
        Self::Invalid(format!("is a malformed or truncated {format} image: {error}"))
    }
}

/// The channels of a decoded pixel, one byte each.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Channels {
    Grey = 1,
    GreyAlpha = 2,
    Rgb = 3,
    Rgba = 4,
}

/// The pixels of a file as they are stored.
struct Picture {
    width: usize,
    height: usize,
    channels: Channels,
    /// `[height, width, channels]`.
    bytes: Vec<u8>,
    orientation: Orientation,
}

/// Limits the number of pixels in an image.
#[derive(Clone, Copy)]
struct Limit {
    max_pixels: usize,
}

impl Limit {
    /// Checks the size that a header states and returns it.
    fn check(self, width: u64, height: u64) -> Result<(usize, usize), Failure> {
        let max_pixels = self.max_pixels as u64;
        let sides = 1..=MAX_SIDE as u64;
        if width == 0 || height == 0 {
            return Err(Failure::Invalid(format!("has no pixels: it is {width} x {height}")));
        }
        let size = (width as usize, height as usize);
        if !sides.contains(&width) || !sides.contains(&height) || width * height > max_pixels {
            return Err(Failure::TooLarge { width: size.0, height: size.1 });
        }
        Ok(size)
    }
}

/// The decoder of a format.
type Decode = fn(&[u8], Limit) -> Result<Picture, Failure>;

/// Decodes a file of any supported format.
pub(super) fn decode(bytes: &[u8], alpha: Alpha, max_pixels: usize) -> Result<Image, Failure> {
    let decode = decoder_of(bytes)?;
    // Unwind safe: the decoder's state is lost. A panic would be a fault in a crate that decodes.
    let picture = catch_unwind(AssertUnwindSafe(|| decode(bytes, Limit { max_pixels })))
        .unwrap_or_else(|_| Err(Failure::Invalid("cannot be decoded: its decoder panicked".into())))?;
    let Picture { width, height, channels, bytes, orientation } = picture;
    let rgb = alpha::to_rgb(bytes, channels, alpha);
    Ok(orientation.apply(Image::from_parts(rgb, width, height)))
}

/// Returns the decoder of the format that the file's first bytes state.
fn decoder_of(bytes: &[u8]) -> Result<Decode, Failure> {
    let has = |at: usize, magic: &[u8]| bytes.get(at..).is_some_and(|rest| rest.starts_with(magic));
    if has(0, b"\x89PNG\r\n\x1a\n") {
        return Ok(png::decode);
    }
    if has(0, b"\xff\xd8\xff") {
        return Ok(jpeg::decode);
    }
    if has(0, b"RIFF") && has(8, b"WEBP") {
        return Ok(webp::decode);
    }
    if has(0, b"GIF87a") || has(0, b"GIF89a") {
        return Ok(gif::decode);
    }
    if bytes.is_empty() {
        return Err(Failure::Invalid("is empty".into()));
    }
    let others: [(usize, &[u8], &str); 8] = [
        (4, b"ftypavif", "an AVIF image"),
        (4, b"ftyp", "an HEIC image or a video"),
        (0, b"BM", "a BMP image"),
        (0, b"II*\0", "a TIFF image"),
        (0, b"MM\0*", "a TIFF image"),
        (0, b"\xff\x0a", "a JPEG XL image"),
        (0, b"%PDF", "a PDF document"),
        (0, b"<", "an SVG image or another text"),
    ];
    let other = others.iter().find(|(at, magic, _)| has(*at, magic)).map_or("of an unknown format", |(.., name)| name);
    Err(Failure::Invalid(format!("is {other}, but PNG, JPEG, WebP and GIF are supported: convert it to PNG")))
}
