//! Decodes the first picture of a GIF file.

use gif::{ColorOutput, DecodeOptions};

use super::{Channels, Failure, Limit, Picture, exif::Orientation};

pub(super) fn decode(bytes: &[u8], limit: Limit) -> Result<Picture, Failure> {
    let failure = |error| Failure::malformed("GIF", error);
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::RGBA);
    options.check_frame_consistency(true);
    let mut decoder = options.read_info(bytes).map_err(failure)?;
    let (width, height) = limit.check(decoder.width().into(), decoder.height().into())?;
    let frame = decoder.next_frame_info().map_err(failure)?;
    let frame = frame.ok_or_else(|| Failure::malformed("GIF", "it holds no picture"))?;
    let [left, top, columns, rows] = [frame.left, frame.top, frame.width, frame.height].map(usize::from);
    let mut pixels = vec![0; decoder.buffer_size()];
    decoder.read_into_buffer(&mut pixels).map_err(failure)?;
    let mut bytes = pixels;
    if (columns, rows) != (width, height) {
        // Pixels around the picture are transparent.
        let mut canvas = vec![0; 4 * width * height];
        let places = canvas.chunks_exact_mut(4 * width).skip(top);
        for (place, row) in places.zip(bytes.chunks_exact((4 * columns).max(1))) {
            place[4 * left..4 * (left + columns)].copy_from_slice(row);
        }
        bytes = canvas;
    }
    Ok(Picture { width, height, channels: Channels::Rgba, bytes, orientation: Orientation::UPRIGHT })
}
