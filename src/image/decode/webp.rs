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
    if !frames_fit(bytes.get(12..).unwrap_or_default(), width, height) {
        return Err(Failure::malformed("WebP", "a picture is larger than the image"));
    }
    let mut pixels = vec![0; decoder.output_buffer_size().unwrap_or(0)];
    decoder.read_image(&mut pixels).map_err(failure)?;
    let channels = if decoder.has_alpha() { Channels::Rgba } else { Channels::Rgb };
    let exif = decoder.exif_metadata().map_err(failure)?;
    let orientation = exif.map_or(Orientation::UPRIGHT, |exif| Orientation::of_exif(&exif));
    Ok(Picture { width, height, channels, bytes: pixels, orientation })
}

/// Returns whether no lossy picture among these chunks is larger than the image. The decoder
/// allocates a picture's memory before it compares the sizes.
fn frames_fit(mut chunks: &[u8], width: usize, height: usize) -> bool {
    /// Bytes before the chunks of an animation's picture.
    const FRAME_HEADER: usize = 16;
    /// What follows the first three bytes of a lossy picture.
    const START_CODE: [u8; 3] = [0x9d, 0x01, 0x2a];
    while let Some((header, rest)) = chunks.split_first_chunk::<8>() {
        let [kind, length] = [&header[..4], &header[4..]];
        let length = length.iter().rev().fold(0, |length, &byte| length << 8 | usize::from(byte));
        let (data, after) = rest.split_at(length.min(rest.len()));
        // The decoder takes some chunks for pictures without a look at their kind.
        if let Some(&[_, _, _, a, b, c, w0, w1, h0, h1]) = data.first_chunk()
            && [a, b, c] == START_CODE
            && (usize::from(u16::from_le_bytes([w0, w1]) & 0x3fff) > width
                || usize::from(u16::from_le_bytes([h0, h1]) & 0x3fff) > height)
        {
            return false;
        }
        if kind == b"ANMF" && !frames_fit(data.get(FRAME_HEADER..).unwrap_or_default(), width, height) {
            return false;
        }
        // Chunks of odd lengths are padded by a byte.
        chunks = after.get(length % 2..).unwrap_or_default();
    }
    true
}
