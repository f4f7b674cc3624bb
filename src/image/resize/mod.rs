//! Resizes images with the bytes of Pillow and of llama.cpp.
//!
//! Both filter along rows and along columns in two passes, with weights of 22 fractional bits, and
//! round to 8 bits after each pass. The order of the passes changes the rounding. llama.cpp always
//! changes the width first, Pillow (13.0, `src/libImaging/Resample.c`) except where the height
//! shrinks by more than twice as many pixels as the width.

mod sums;
mod windows;

use self::{
    sums::Sums,
    windows::{PAIR, Windows},
};
use super::{CHANNELS, Image};

/// The function that weighs the source pixels around an output pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// A triangle, from -1 to 1.
    Bilinear,
    /// Keys' cubic with a = -0.5, from -2 to 2.
    Bicubic,
    /// A windowed sinc, from -3 to 3.
    Lanczos,
}

/// The order of the two passes.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    WidthFirst,
    HeightFirst,
}

impl Image {
    /// Stretches the image to a size, at least 1 x 1, with the bytes of Pillow's `Image.resize`.
    #[doc(hidden)]
    pub fn resize(&self, width: usize, height: usize, filter: Filter) -> Self {
        let shrinks_by = |from: usize, to: usize| from as i64 - to as i64;
        let (by_width, by_height) = (shrinks_by(self.width, width), shrinks_by(self.height, height));
        let height_first = by_height > 0 && by_height > 2 * by_width;
        self.resize_in(if height_first { Order::HeightFirst } else { Order::WidthFirst }, width, height, filter)
    }

    /// Stretches the image to a size, at least 1 x 1, with the bytes of llama.cpp.
    #[doc(hidden)]
    pub fn resize_width_first(&self, width: usize, height: usize, filter: Filter) -> Self {
        self.resize_in(Order::WidthFirst, width, height, filter)
    }

    /// Fits the image into a size, at least 1 x 1, with its aspect ratio kept and black bars around
    /// it, with the bytes of llama.cpp.
    #[doc(hidden)]
    pub fn letterbox(&self, width: usize, height: usize, filter: Filter) -> Self {
        if (self.width, self.height) == (width, height) {
            return self.clone();
        }
        let scale = (width as f32 / self.width as f32).min(height as f32 / self.height as f32);
        let fitted = |side: usize, limit: usize| ((side as f32 * scale).ceil() as usize).min(limit);
        let inner = self.resize_width_first(fitted(self.width, width), fitted(self.height, height), filter);
        let (left, top) = ((width - inner.width) / 2, (height - inner.height) / 2);
        let mut pixels = vec![0; width * height * CHANNELS];
        let rows = pixels.chunks_exact_mut(width * CHANNELS).skip(top);
        for (row, source) in rows.zip(inner.pixels.chunks_exact(inner.width * CHANNELS)) {
            row[left * CHANNELS..][..source.len()].copy_from_slice(source);
        }
        Self::from_parts(pixels, width, height)
    }

    fn resize_in(&self, order: Order, width: usize, height: usize, filter: Filter) -> Self {
        let change_height =
            |image: Self| if image.height == height { image } else { with_height(&image, height, filter) };
        let change_width = |image: Self| if image.width == width { image } else { with_width(&image, width, filter) };
        match order {
            Order::WidthFirst => change_height(change_width(self.clone())),
            Order::HeightFirst => change_width(change_height(self.clone())),
        }
    }
}

/// Filters along rows.
fn with_width(image: &Image, width: usize, filter: Filter) -> Image {
    let windows = Windows::new(image.width, width, filter);
    // Windows at the right edge have weights of 0 beyond it.
    let mut pairs = vec![[0; 8]; image.width.div_ceil(PAIR) + windows.pairs()];
    let mut pixels = vec![0; width * image.height * CHANNELS];
    let rows = pixels.chunks_exact_mut(width * CHANNELS);
    for (row, source) in rows.zip(image.pixels.chunks_exact(image.width * CHANNELS)) {
        pair_pixels(source, &mut pairs);
        for (pixel, (start, weights)) in row.as_chunks_mut::<CHANNELS>().0.iter_mut().zip(windows.iter()) {
            let mut sums = Sums::new();
            for (pair, weights) in pairs[start..].iter().zip(weights) {
                sums.add(pair, weights);
            }
            let [red, green, blue, _] = sums.bytes();
            *pixel = [red, green, blue];
        }
    }
    Image::from_parts(pixels, width, image.height)
}

/// Lays out the pixels of a row by twos: both reds, both greens, both blues, and two zeros.
fn pair_pixels(row: &[u8], pairs: &mut [[i16; 8]]) {
    let (whole, last) = row.as_chunks::<{ PAIR * CHANNELS }>();
    for (pair, pixels) in pairs.iter_mut().zip(whole) {
        let [r0, g0, b0, r1, g1, b1] = pixels.map(i16::from);
        *pair = [r0, r1, g0, g1, b0, b1, 0, 0];
    }
    if let &[red, green, blue] = last {
        let [red, green, blue] = [red, green, blue].map(i16::from);
        pairs[whole.len()] = [red, 0, green, 0, blue, 0, 0, 0];
    }
}

/// Filters along columns.
fn with_height(image: &Image, height: usize, filter: Filter) -> Image {
    /// Bytes of a row that are computed at a time.
    const BLOCK: usize = 16;
    let windows = Windows::new(image.height, height, filter);
    let stride = image.width * CHANNELS;
    // Windows at the lower edge have weights of 0 beyond it.
    let source = |row: usize| &image.pixels[row.min(image.height - 1) * stride..][..stride];
    let mut pixels = vec![0; stride * height];
    for (row, (start, weights)) in pixels.chunks_exact_mut(stride).zip(windows.iter()) {
        for (index, block) in row.chunks_mut(BLOCK).enumerate() {
            let bytes = index * BLOCK..index * BLOCK + block.len();
            let mut sums = [Sums::new(); BLOCK / 4];
            for (pair, weights) in (start..).zip(weights) {
                let (mut upper, mut lower) = ([0; BLOCK], [0; BLOCK]);
                copy(&source(PAIR * pair)[bytes.clone()], &mut upper);
                copy(&source(PAIR * pair + 1)[bytes.clone()], &mut lower);
                for (quarter, sums) in sums.iter_mut().enumerate() {
                    let pair = |i: usize| {
                        if i.is_multiple_of(2) { upper[4 * quarter + i / 2] } else { lower[4 * quarter + i / 2] }
                    };
                    sums.add(&std::array::from_fn(|i| i16::from(pair(i))), weights);
                }
            }
            let result = sums.map(Sums::bytes);
            block.copy_from_slice(&result.as_flattened()[..block.len()]);
        }
    }
    Image::from_parts(pixels, image.width, height)
}

/// Copies bytes to the front of a block; quickly if there are as many.
#[inline(always)]
fn copy<const N: usize>(bytes: &[u8], block: &mut [u8; N]) {
    match bytes.first_chunk() {
        Some(bytes) => *block = *bytes,
        None => block[..bytes.len()].copy_from_slice(bytes),
    }
}
