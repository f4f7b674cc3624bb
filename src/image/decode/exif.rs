//! Turns images upright, as the orientation in EXIF data says.

use super::super::{CHANNELS, Image};

/// EXIF's number of the tag.
const ORIENTATION: u16 = 0x0112;
/// EXIF's number of the type of 16-bit integers.
const SHORT: u16 = 3;

/// The way to turn stored pixels upright.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Orientation {
    /// Whether stored rows become columns; happens before mirroring.
    transposed: bool,
    /// Whether stored columns count from the right.
    mirrored_x: bool,
    /// Whether stored rows count from the bottom.
    mirrored_y: bool,
}

impl Orientation {
    /// The orientation of files without EXIF data.
    pub(super) const UPRIGHT: Self = Self { transposed: false, mirrored_x: false, mirrored_y: false };

    /// Reads the orientation from EXIF data: a TIFF header and its first directory. Data that is
    /// malformed or lacks the tag means upright, as for all viewers.
    pub(super) fn of_exif(exif: &[u8]) -> Self {
        Self::read(exif.strip_prefix(b"Exif\0\0").unwrap_or(exif)).unwrap_or(Self::UPRIGHT)
    }

    fn read(tiff: &[u8]) -> Option<Self> {
        let little_endian = match tiff.get(..4)? {
            b"II*\0" => true,
            b"MM\0*" => false,
            _ => return None,
        };
        let u16_at = |bytes: &[u8], at: usize| {
            let number = *bytes.get(at..)?.first_chunk()?;
            Some(if little_endian { u16::from_le_bytes(number) } else { u16::from_be_bytes(number) })
        };
        let start = *tiff.get(4..)?.first_chunk()?;
        let start = if little_endian { u32::from_le_bytes(start) } else { u32::from_be_bytes(start) };
        let directory = tiff.get(start as usize..)?;
        // The number of entries, then 12 bytes for each: tag, type, count (u32), value.
        let entries = directory.get(2..)?.chunks_exact(12).take(u16_at(directory, 0)?.into());
        let mut orientations = entries.filter(|entry| u16_at(entry, 0) == Some(ORIENTATION));
        let entry = orientations.find(|entry| u16_at(entry, 2) == Some(SHORT))?;
        Self::of_number(u16_at(entry, 8)?)
    }

    /// Returns the orientation of EXIF's number: 1 is upright, 2 to 4 are mirrored and turned by
    /// 180 degrees, 5 to 8 have rows and columns exchanged.
    fn of_number(number: u16) -> Option<Self> {
        let (transposed, mirrored_x, mirrored_y) = match number {
            1 => (false, false, false),
            2 => (false, true, false),
            3 => (false, true, true),
            4 => (false, false, true),
            5 => (true, false, false),
            6 => (true, false, true),
            7 => (true, true, true),
            8 => (true, true, false),
            _ => return None,
        };
        Some(Self { transposed, mirrored_x, mirrored_y })
    }

    /// Turns an image upright.
    pub(super) fn apply(self, image: Image) -> Image {
        if self == Self::UPRIGHT {
            return image;
        }
        let (stored_width, stored_height) = (image.width, image.height);
        let (width, height) =
            if self.transposed { (stored_height, stored_width) } else { (stored_width, stored_height) };
        let pixels = image.pixels.as_chunks::<CHANNELS>().0;
        let mut upright = Vec::with_capacity(image.pixels.len());
        for y in 0..height {
            for x in 0..width {
                let (x, y) = if self.transposed { (y, x) } else { (x, y) };
                let column = if self.mirrored_x { stored_width - 1 - x } else { x };
                let row = if self.mirrored_y { stored_height - 1 - y } else { y };
                upright.extend_from_slice(&pixels[row * stored_width + column]);
            }
        }
        Image::from_parts(upright, width, height)
    }
}
