//! Divides pictures into patches, block by block.

use std::{array, ops::Range};

use super::shares::for_each_share;
use crate::{
    Error, Result,
    backend::Taps,
    models::vision::{Convention, PositionTable, Projector, VisionConfig},
};

/// A picture of a size that the encoder takes: the whole image or a part of it.
#[derive(Clone, Copy, Debug)]
pub struct Picture<'a> {
    /// `[height, width, 3]`: 8-bit RGB.
    pub rgb: &'a [u8],
    /// The number of columns of pixels.
    pub width: usize,
    /// The number of rows of pixels.
    pub height: usize,
}

/// The place of a patch in its picture, in patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    row: usize,
    column: usize,
}

/// The patches of a picture, as tokens of the encoder's step. Four or more patches in succession
/// are a block, which becomes one row of the text model.
#[derive(Debug)]
pub struct Patches {
    /// The number of blocks below and beside each other.
    pub grid: [usize; 2],
    /// `[patches, 3 * patch * patch]`: the normalised pixels of each patch, channel after channel.
    /// A class token after the patches has none.
    pub pixels: Vec<f32>,
    /// The number of tokens: of the patches, and of the class token if there is one.
    pub len: usize,
    /// The rotary positions of each token: 0, and the two that the encoder's axes name.
    pub rotary: Vec<[u32; 3]>,
    /// The windows of attention, as ranges of tokens.
    pub windows: Vec<Range<usize>>,
    /// The sets of taps, by number, for each token.
    pub taps: Vec<Vec<Taps>>,
    /// The place of each block in the picture, row by row, in the order of the tokens.
    pub blocks: Vec<usize>,
}

impl Patches {
    /// Divides a picture into patches.
    ///
    /// # Errors
    /// [`Error::Internal`] for a picture whose sides are not multiples of a block's.
    pub fn new(config: &VisionConfig, picture: &Picture<'_>) -> Result<Self> {
        let unit = config.patch * config.block;
        let Picture { rgb, width, height } = *picture;
        if width == 0 || height == 0 || !width.is_multiple_of(unit) || !height.is_multiple_of(unit) {
            return Err(Error::internal(format!("a picture of {width} by {height} pixels has no whole blocks")));
        }
        if rgb.len() != 3 * width * height {
            return Err(Error::internal(format!("a picture of {width} by {height} pixels has {} bytes", rgb.len())));
        }
        let grid = [height / unit, width / unit];
        let (blocks, windows) = order_of_blocks(config, grid);
        let places: Vec<_> = blocks.iter().flat_map(|block| places_in(config.block, grid, *block)).collect();
        let has_class = config.projector == Projector::InternVl;
        Ok(Self {
            grid,
            pixels: normalised(config, picture, &places),
            len: places.len() + usize::from(has_class),
            rotary: rotary(config, &places),
            windows,
            taps: taps(config, [height / config.patch, width / config.patch], &places)?,
            blocks,
        })
    }
}

/// Returns the blocks window by window, and the tokens of each window; without windows, row by row.
fn order_of_blocks(config: &VisionConfig, [rows, columns]: [usize; 2]) -> (Vec<usize>, Vec<Range<usize>>) {
    let Some((side, _)) = config.windows else { return ((0..rows * columns).collect(), vec![]) };
    let (mut blocks, mut windows) = (vec![], vec![]);
    let patches = config.block.pow(2);
    for top in (0..rows).step_by(side) {
        for left in (0..columns).step_by(side) {
            let first = blocks.len();
            for row in top..rows.min(top + side) {
                blocks.extend((left..columns.min(left + side)).map(|column| row * columns + column));
            }
            windows.push(first * patches..blocks.len() * patches);
        }
    }
    (blocks, windows)
}

/// Returns the places of a block's patches, row by row.
fn places_in(side: usize, [_, columns]: [usize; 2], block: usize) -> impl Iterator<Item = Place> {
    let (top, left) = (block / columns * side, block % columns * side);
    (0..side * side).map(move |patch| Place { row: top + patch / side, column: left + patch % side })
}

/// Returns the pixels of each patch, normalised.
fn normalised(config: &VisionConfig, picture: &Picture<'_>, places: &[Place]) -> Vec<f32> {
    let VisionConfig { patch, mean, std, .. } = *config;
    /// Patches that a thread takes at a time: starting a thread takes as long as some hundred.
    const SHARE: usize = 256;
    // A channel has 256 values only.
    let table: [[f32; 256]; 3] =
        array::from_fn(|channel| array::from_fn(|value| (value as f32 / 255.0 - mean[channel]) / std[channel]));
    let mut pixels = vec![0.0; places.len() * 3 * patch * patch];
    let shares = places.chunks(SHARE).zip(pixels.chunks_mut(SHARE * 3 * patch * patch));
    for_each_share(shares, |(places, pixels)| {
        for (place, pixels) in places.iter().zip(pixels.chunks_exact_mut(3 * patch * patch)) {
            for y in 0..patch {
                let first = (place.row * patch + y) * picture.width + place.column * patch;
                let row = &picture.rgb[3 * first..3 * (first + patch)];
                for (channel, table) in table.iter().enumerate() {
                    let to = &mut pixels[(channel * patch + y) * patch..][..patch];
                    for (to, pixel) in to.iter_mut().zip(row.chunks_exact(3)) {
                        *to = table[usize::from(pixel[channel])];
                    }
                }
            }
        }
    });
    pixels
}

/// Returns the positions that turn the first half of the pairs and the second half.
fn rotary(config: &VisionConfig, places: &[Place]) -> Vec<[u32; 3]> {
    let position = |place: &Place| {
        let [row, column] = [place.row as u32, place.column as u32];
        match config.projector {
            Projector::Gemma4 => [0, column, row],
            _ => [0, row, column],
        }
    };
    match config.rope_base {
        Some(_) => places.iter().map(position).collect(),
        None => vec![],
    }
}

/// Returns the sets of taps of the encoder's tables.
fn taps(config: &VisionConfig, grid: [usize; 2], places: &[Place]) -> Result<Vec<Vec<Taps>>> {
    const NONE: (u32, f32) = (0, 0.0);
    let one = |row: usize| [(row as u32, 1.0), NONE, NONE, NONE];
    let within = |len: usize| {
        let [rows, columns] = grid;
        if rows <= len && columns <= len {
            return Ok(());
        }
        let what = format!(
            "becomes {columns} x {rows} patches, but the encoder has positions for {len} x {len}: crop the image"
        );
        Err(Error::Image { path: None, what })
    };
    Ok(match config.positions {
        PositionTable::None => vec![],
        PositionTable::Square { side } if config.projector == Projector::Qwen3Vl => {
            vec![places.iter().map(|place| between(side, grid, *place)).collect()]
        }
        PositionTable::Square { side } => {
            within(side)?;
            vec![places.iter().map(|place| one(place.row * side + place.column)).collect()]
        }
        PositionTable::Axes { len } => {
            within(len)?;
            let of = |place: &Place| [(place.column as u32, 1.0), ((len + place.row) as u32, 1.0), NONE, NONE];
            vec![places.iter().map(of).collect()]
        }
        PositionTable::WithClass { side } => {
            within(side)?;
            // llama.cpp's class token follows the patches, which so take the rows before their own.
            let (class, first) = match config.convention {
                Convention::Transformers => (0, 1),
                Convention::LlamaCpp => (side * side, 0),
            };
            let of_patches = places.iter().map(|place| one(first + place.row * side + place.column));
            let flags = |patch: f32, class: f32| {
                let patches = vec![[(0, patch), NONE, NONE, NONE]; places.len()];
                patches.into_iter().chain([[(0, class), NONE, NONE, NONE]]).collect()
            };
            vec![of_patches.chain([one(class)]).collect(), flags(0.0, 1.0), flags(1.0, 0.0)]
        }
    })
}

/// Returns the bilinear weights of a place in a table whose corners are the picture's corners.
fn between(side: usize, [rows, columns]: [usize; 2], place: Place) -> Taps {
    let along = |place: usize, len: usize| {
        let at = if len > 1 { place as f32 * ((side - 1) as f32 / (len - 1) as f32) } else { 0.0 };
        let low = (at as usize).min(side - 1);
        (low, (low + 1).min(side - 1), at - low as f32)
    };
    let (top, bottom, down) = along(place.row, rows);
    let (left, right, across) = along(place.column, columns);
    let tap = |row: usize, column: usize, weight: f32| ((row * side + column) as u32, weight);
    [
        tap(top, left, (1.0 - down) * (1.0 - across)),
        tap(top, right, (1.0 - down) * across),
        tap(bottom, left, down * (1.0 - across)),
        tap(bottom, right, down * across),
    ]
}
