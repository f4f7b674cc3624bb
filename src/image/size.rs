//! Computes the sizes at which vision encoders see images of any size.
//!
//! transformers and llama.cpp differ in rounding, and in the choice of tiles. Models were trained
//! with the sizes of transformers.

use std::ops::RangeInclusive;

use crate::error::{Error, Result};

/// The implementation that is followed where two of them compute images differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Convention {
    /// transformers, with which the models were trained: images are stretched, and halves of sizes
    /// round to even.
    #[default]
    Transformers,
    /// llama.cpp, for comparisons with it: images are letterboxed, and halves of sizes round away
    /// from zero.
    LlamaCpp,
}

/// A width and a height in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Pixels in a row.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
}

/// The number of tiles in a row and in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Tiles in a row.
    pub columns: usize,
    /// Number of rows of tiles.
    pub rows: usize,
}

impl Size {
    fn map(self, f: impl Fn(usize) -> usize) -> Self {
        Self { width: f(self.width), height: f(self.height) }
    }

    /// Returns the number of pixels, or the largest number if it does not fit.
    fn pixels(self) -> usize {
        self.width.saturating_mul(self.height)
    }

    fn refuse(self, what: &str) -> Error {
        Error::Image { path: None, what: format!("is {} x {} pixels: {what}", self.width, self.height) }
    }
}

/// Returns the size of an image of Qwen's encoders: sides that are multiples of `factor`, about the
/// image's aspect ratio, and a number of pixels within `pixels` where that is possible.
///
/// # Errors
/// transformers refuses images whose sides differ by more than a factor of 200.
pub fn smart_resize(image: Size, factor: usize, pixels: RangeInclusive<usize>, like: Convention) -> Result<Size> {
    match like {
        Convention::Transformers => {
            let (long, short) = (image.width.max(image.height), image.width.min(image.height));
            if long > 200 * short {
                return Err(image.refuse("one side is more than 200 times as long as the other: crop the image"));
            }
            Ok(smart_resize_f64(image, factor, pixels))
        }
        Convention::LlamaCpp => Ok(smart_resize_f32(image, factor, pixels)),
    }
}

fn smart_resize_f64(image: Size, factor: usize, pixels: RangeInclusive<usize>) -> Size {
    let multiple = |tiles: f64| tiles as usize * factor;
    let size = image.map(|side| multiple((side as f64 / factor as f64).round_ties_even()));
    let area = image.pixels() as f64;
    if size.pixels() > *pixels.end() {
        let shrink = (area / *pixels.end() as f64).sqrt();
        image.map(|side| multiple((side as f64 / shrink / factor as f64).floor()).max(factor))
    } else if size.pixels() < *pixels.start() {
        let grow = (*pixels.start() as f64 / area).sqrt();
        image.map(|side| multiple((side as f64 * grow / factor as f64).ceil()))
    } else {
        // A limit of 0 pixels lets sides through that rounded to 0.
        size.map(|side| side.max(factor))
    }
}

fn smart_resize_f32(image: Size, factor: usize, pixels: RangeInclusive<usize>) -> Size {
    let multiple = |tiles: f32| tiles as usize * factor;
    let size = image.map(|side| multiple((side as f32 / factor as f32).round()).max(factor));
    let area = image.height as f32 * image.width as f32;
    if size.pixels() > *pixels.end() {
        let shrink = (area / *pixels.end() as f32).sqrt();
        image.map(|side| multiple((side as f32 / shrink / factor as f32).floor()).max(factor))
    } else if size.pixels() < *pixels.start() {
        let grow = (*pixels.start() as f32 / area).sqrt();
        image.map(|side| multiple((side as f32 * grow / factor as f32).ceil()))
    } else {
        size
    }
}

/// Returns the size of an image of Gemma 4's encoder, which averages squares of `pooling` x
/// `pooling` patches of `patch` x `patch` pixels into tokens.
///
/// As in transformers, images are scaled, up or down, to the largest size of at most `max_tokens`.
/// llama.cpp leaves images alone that have from 70 to 1,120 tokens, whatever `max_tokens` is.
///
/// # Errors
/// transformers refuses images for which no such size exists.
pub fn gemma4_size(image: Size, patch: usize, pooling: usize, max_tokens: usize, like: Convention) -> Result<Size> {
    let factor = patch * pooling;
    if like == Convention::LlamaCpp {
        let pixels = 70 * factor * factor..=1120 * factor * factor;
        return smart_resize(image, factor, pixels, like);
    }
    let max_pixels = max_tokens * factor * factor;
    let scale = (max_pixels as f64 / image.pixels() as f64).sqrt();
    let size = image.map(|side| (scale * side as f64 / factor as f64).floor() as usize * factor);
    let longest = max_tokens * factor;
    let size = match (size.width, size.height) {
        (0, 0) => return Err(image.refuse("the model's images have fewer pixels than a token needs")),
        (_, 0) => Size { width: (image.width / image.height * factor).min(longest), height: factor },
        (0, _) => Size { width: factor, height: (image.height / image.width * factor).min(longest) },
        _ => size,
    };
    if size.pixels() > max_pixels {
        return Err(image.refuse("at this aspect ratio it exceeds the model's number of tokens: crop the image"));
    }
    Ok(size)
}

/// Returns the grid of tiles of `tile` x `tile` pixels that InternVL sees an image in, or `None` if
/// it sees only the whole image. The grid has from `min_tiles` to `max_tiles` tiles.
pub fn internvl_grid(image: Size, tile: usize, min_tiles: usize, max_tiles: usize, like: Convention) -> Option<Grid> {
    match like {
        Convention::Transformers => {
            let grid = grid_of_nearest_ratio(image, tile, min_tiles, max_tiles);
            (grid.columns * grid.rows > 1).then_some(grid)
        }
        Convention::LlamaCpp => {
            (image.width > tile || image.height > tile).then(|| grid_of_largest_area(image, tile, min_tiles, max_tiles))
        }
    }
}

/// Returns the grid whose aspect ratio differs least from the image's. Of equal ones, grids of more
/// tiles are preferred while the image has more than half of their pixels.
fn grid_of_nearest_ratio(image: Size, tile: usize, min_tiles: usize, max_tiles: usize) -> Grid {
    let ratio = image.width as f64 / image.height as f64;
    let mut grids: Vec<_> = (1..=max_tiles)
        .flat_map(|columns| (1..=max_tiles / columns).map(move |rows| Grid { columns, rows }))
        .filter(|grid| grid.columns * grid.rows >= min_tiles)
        .collect();
    grids.sort_by_key(|grid| grid.columns * grid.rows);
    let mut best = (f64::INFINITY, Grid { columns: 1, rows: 1 });
    for grid in grids {
        let difference = (ratio - grid.columns as f64 / grid.rows as f64).abs();
        let half_of_grid = 0.5 * (tile * tile * grid.columns * grid.rows) as f64;
        if difference < best.0 || difference == best.0 && image.pixels() as f64 > half_of_grid {
            best = (difference, grid);
        }
    }
    best.1
}

/// Returns the grid in which the letterboxed image is largest; of equal ones the smallest grid.
fn grid_of_largest_area(image: Size, tile: usize, min_tiles: usize, max_tiles: usize) -> Grid {
    let grids = (min_tiles.max(1)..=max_tiles).flat_map(|columns| {
        let rows = min_tiles.div_ceil(columns).max(min_tiles).max(1)..=max_tiles / columns;
        rows.map(move |rows| Grid { columns, rows })
    });
    let fit = |grid: &Grid| {
        let (width, height) = (grid.columns * tile, grid.rows * tile);
        let scale = (width as f32 / image.width as f32).min(height as f32 / image.height as f32);
        let area = image.map(|side| (side as f32 * scale) as usize).pixels().min(image.pixels());
        (area, std::cmp::Reverse(width * height))
    };
    // The first of equal grids, where `max_by_key` would return the last.
    grids.reduce(|best, grid| if fit(&grid) > fit(&best) { grid } else { best }).unwrap_or(Grid { columns: 1, rows: 1 })
}

/// The sizes through which Idefics 3 resizes an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idefics3Sizes {
    /// The first size: the image at its aspect ratio.
    pub scaled: Size,
    /// The second size, to which the scaled image is stretched: a multiple of the tile's sides.
    pub canvas: Size,
    /// The tiles that the canvas is cut into, which the encoder sees before the whole canvas at one
    /// tile's size; `None` if it sees only the latter.
    pub grid: Option<Grid>,
}

/// Returns the sizes of an image for Idefics 3, with the longer side scaled to `longest` pixels and
/// tiles of `tile` x `tile` pixels.
pub fn idefics3_sizes(image: Size, longest: usize, tile: usize, like: Convention) -> Idefics3Sizes {
    let ratio = image.width as f64 / image.height as f64;
    let even = |side: f64| (side as usize).next_multiple_of(2).max(1);
    let mut scaled = if image.width >= image.height {
        Size { width: longest, height: even(longest as f64 / ratio) }
    } else {
        Size { width: even(longest as f64 * ratio), height: longest }
    };
    if like == Convention::LlamaCpp {
        let canvas = scaled.map(|side| side.next_multiple_of(tile));
        return Idefics3Sizes { scaled, canvas, grid: Some(tiles_of(canvas, tile)) };
    }
    scaled = at_most(scaled, 4096);
    let ratio = scaled.width as f64 / scaled.height as f64;
    let canvas = if scaled.width >= scaled.height {
        let width = scaled.width.next_multiple_of(tile);
        Size { width, height: ((width as f64 / ratio) as usize).next_multiple_of(tile) }
    } else {
        let height = scaled.height.next_multiple_of(tile);
        Size { width: ((height as f64 * ratio) as usize).next_multiple_of(tile), height }
    };
    let grid = tiles_of(canvas, tile);
    Idefics3Sizes { scaled, canvas, grid: (grid.columns * grid.rows > 1).then_some(grid) }
}

/// Shrinks a size so that no side is longer than `longest`.
fn at_most(size: Size, longest: usize) -> Size {
    let ratio = size.width as f64 / size.height as f64;
    if size.width >= size.height && size.width > longest {
        Size { width: longest, height: ((longest as f64 / ratio) as usize).max(1) }
    } else if size.height > size.width && size.height > longest {
        Size { width: ((longest as f64 * ratio) as usize).max(1), height: longest }
    } else {
        size
    }
}

fn tiles_of(canvas: Size, tile: usize) -> Grid {
    Grid { columns: canvas.width / tile, rows: canvas.height / tile }
}
