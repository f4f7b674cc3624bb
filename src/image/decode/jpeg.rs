//! Decodes JPEG: baseline and progressive, in grey, YCbCr, RGB, CMYK and YCCK.

use zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions};
use zune_jpeg::{JpegDecoder, errors::DecodeErrors};

use super::{super::MAX_SIDE, Channels, Failure, Limit, Picture, exif::Orientation};

pub(super) fn decode(bytes: &[u8], limit: Limit) -> Result<Picture, Failure> {
    // Without the strict mode, all that follows an invalid code becomes grey.
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(MAX_SIDE)
        .set_max_height(MAX_SIDE)
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(failure)?;
    let (width, height) = decoder.dimensions().unwrap_or((0, 0));
    let (width, height) = limit.check(width as u64, height as u64)?;
    if !has_end(bytes) {
        return Err(Failure::malformed("JPEG", "its end is missing"));
    }
    let rgb = decoder.decode().map_err(failure)?;
    let exif = decoder.exif();
    let orientation = exif.map_or(Orientation::UPRIGHT, |exif| Orientation::of_exif(exif));
    Ok(Picture { width, height, channels: Channels::Rgb, bytes: rgb, orientation })
}

fn failure(error: DecodeErrors) -> Failure {
    match error {
        DecodeErrors::Unsupported(scheme) => {
            Failure::Invalid(format!("is a JPEG image of an unsupported kind: {scheme:?} Convert it to PNG"))
        }
        error => Failure::malformed("JPEG", error),
    }
}

/// Returns whether a JPEG file ends with its end marker (EOI), which the decoder does not check.
/// Markers inside of segments do not count: EXIF data holds a small JPEG.
fn has_end(bytes: &[u8]) -> bool {
    const EOI: u8 = 0xd9;
    // Markers without a segment: TEM, restarts and the start of the image.
    let is_alone = |marker: u8| matches!(marker, 0x01 | 0xd0..=0xd8);
    let mut rest = bytes;
    while let Some(at) = rest.windows(2).position(|pair| pair[0] == 0xff && !matches!(pair[1], 0 | 0xff)) {
        let marker = rest[at + 1];
        rest = &rest[at + 2..];
        if marker == EOI {
            return true;
        }
        if !is_alone(marker) {
            // The length counts its own two bytes.
            let length = rest.first_chunk().map_or(0, |length| usize::from(u16::from_be_bytes(*length)));
            let Some(after) = rest.get(length..) else { return false };
            rest = after;
        }
    }
    false
}
