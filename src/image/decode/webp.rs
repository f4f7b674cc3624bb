//! Decodes WebP; of an animation the first picture.

use std::io::Cursor;

use image_webp::WebPDecoder;

use super::{Channels, Failure, Limit, Picture, exif::Orientation};

/// WebP's own limit, below which the decoder's 32-bit products do not overflow.
const MAX_PIXELS: usize = (1 << 14) * (1 << 14);

pub(super) fn decode(bytes: &[u8], limit: Limit) -> Result<Picture, Failure> {
    let failure = |error| Failure::malformed("WebP", error);
    // The decoder accepts files that end after their pixels, with metadata missing.
    let stated = bytes.get(4..).and_then(|rest| rest.first_chunk()).map_or(0, |size| u32::from_le_bytes(*size));
    if (bytes.len() as u64) < 8 + u64::from(stated) {
        return Err(Failure::malformed("WebP", format!("{} of {stated} bytes are there", bytes.len())));
    }
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(failure)?;
    // Bounds the allocation for metadata of a stated size.
    decoder.set_memory_limit(bytes.len());
    let (width, height) = decoder.dimensions();
    let limit = Limit { max_pixels: limit.max_pixels.min(MAX_PIXELS) };
    let (width, height) = limit.check(width.into(), height.into())?;
    let mut pixels = vec![0; decoder.output_buffer_size().unwrap_or(0)];
    decoder.read_image(&mut pixels).map_err(failure)?;
    let channels = if decoder.has_alpha() { Channels::Rgba } else { Channels::Rgb };
    let exif = decoder.exif_metadata().map_err(failure)?;
    let orientation = exif.map_or(Orientation::UPRIGHT, |exif| Orientation::of_exif(&exif));
    Ok(Picture { width, height, channels, bytes: pixels, orientation })
}
