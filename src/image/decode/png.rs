//! Decodes PNG; of an animation the default image.

use std::io::Cursor;

use png::{ColorType, Decoder, Limits, Transformations};

use super::{Channels, Failure, Limit, Picture, exif::Orientation};

/// Bytes that the decoder may allocate beside the pixels: rows, and metadata.
const MAX_MEMORY: usize = 64 << 20;

pub(super) fn decode(bytes: &[u8], limit: Limit) -> Result<Picture, Failure> {
    let failure = |error| Failure::malformed("PNG", error);
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), Limits { bytes: MAX_MEMORY });
    // Palettes, bits and transparent colours become bytes, and 16-bit samples their upper bytes.
    decoder.set_transformations(Transformations::normalize_to_color8());
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let header = decoder.read_header_info().map_err(failure)?;
    let (width, height) = limit.check(header.width.into(), header.height.into())?;
    let mut reader = decoder.read_info().map_err(failure)?;
    // The decoder would panic at a colour of fewer than three bytes.
    if reader.info().palette.as_ref().is_some_and(|palette| palette.len() % 3 != 0) {
        return Err(Failure::malformed("PNG", "the length of the palette is not a multiple of 3"));
    }
    let mut bytes = vec![0; reader.output_buffer_size().unwrap_or(0)];
    let frame = reader.next_frame(&mut bytes).map_err(failure)?;
    // Reads to the end of the file, where EXIF data may be, and whose absence means truncation.
    reader.finish().map_err(failure)?;
    if (frame.width as usize, frame.height as usize) != (width, height) {
        return Err(failure_of_frame(frame.width, frame.height));
    }
    let channels = match frame.color_type {
        ColorType::Grayscale => Channels::Grey,
        ColorType::GrayscaleAlpha => Channels::GreyAlpha,
        ColorType::Rgb => Channels::Rgb,
        ColorType::Rgba => Channels::Rgba,
        ColorType::Indexed => return Err(Failure::malformed("PNG", "it has no palette")),
    };
    let exif = reader.info().exif_metadata.as_deref();
    Ok(Picture { width, height, channels, bytes, orientation: exif.map_or(Orientation::UPRIGHT, Orientation::of_exif) })
}

/// Returns the failure of an animation whose first picture does not cover the image.
fn failure_of_frame(width: u32, height: u32) -> Failure {
    Failure::malformed("PNG", format!("the first picture has another size than the image: {width} x {height}"))
}
