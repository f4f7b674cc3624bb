//! Converts decoded pixels to RGB.

use super::{Alpha, Channels};

/// Converts pixels of any channels to RGB.
pub(super) fn to_rgb(bytes: Vec<u8>, channels: Channels, alpha: Alpha) -> Vec<u8> {
    match channels {
        Channels::Grey => bytes.iter().flat_map(|&grey| [grey; 3]).collect(),
        Channels::GreyAlpha => {
            let pixels = bytes.as_chunks().0.iter();
            pixels.flat_map(|&[grey, opacity]| opaque([grey; 3], opacity, alpha)).collect()
        }
        Channels::Rgb => bytes,
        Channels::Rgba => {
            let pixels = bytes.as_chunks().0.iter();
            pixels.flat_map(|&[red, green, blue, opacity]| opaque([red, green, blue], opacity, alpha)).collect()
        }
    }
}

/// Returns an opaque colour for one with alpha.
fn opaque(colour: [u8; 3], opacity: u8, alpha: Alpha) -> [u8; 3] {
    match alpha {
        Alpha::Over(background) => std::array::from_fn(|i| blend(colour[i], background[i], opacity)),
        Alpha::Drop => colour,
    }
}

/// Returns `(colour * opacity + background * (255 - opacity)) / 255`, rounded as Pillow's
/// `alpha_composite` does: in fixed point with 7 more bits.
fn blend(colour: u8, background: u8, opacity: u8) -> u8 {
    let [colour, background, opacity] = [colour, background, opacity].map(u32::from);
    let sum = colour * opacity + background * (255 - opacity);
    let fixed = (sum + 128) << 7;
    (((fixed >> 8) + fixed) >> 15) as u8
}
