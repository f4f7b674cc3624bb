//! Turns an image into pictures of the sizes that an encoder takes, and says where the rows of each
//! stand among the text that a model expects around an image.

use super::patches::Picture;
use crate::{
    Result,
    image::{
        Image,
        resize::Filter,
        size::{Convention, Grid, Size, gemma4_size, idefics3_sizes, internvl_grid, smart_resize},
    },
    models::vision::{Pictures, VisionConfig},
};

/// A part of a prompt that stands for an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImagePart {
    /// Text, which is tokenized by itself, with special tokens.
    Text(String),
    /// The rows of the picture with this number.
    Rows(usize),
}

/// The pictures of an image, and the text around their rows.
#[derive(Debug)]
pub struct ImagePictures {
    /// The pictures, by number.
    pub pictures: Vec<Image>,
    /// The parts in the order of the prompt.
    pub parts: Vec<ImagePart>,
}

impl ImagePictures {
    /// Resizes and divides an image.
    ///
    /// # Errors
    /// [`Error::Image`](crate::Error::Image) for an aspect ratio that the model does not take.
    pub fn new(config: &VisionConfig, image: &Image) -> Result<Self> {
        let size = Size { width: image.width(), height: image.height() };
        let unit = config.patch * config.block;
        let convention = config.convention;
        match config.pictures {
            Pictures::Dynamic { min_pixels, max_pixels } => {
                let size = smart_resize(size, unit, min_pixels..=max_pixels, convention)?;
                Ok(Self::whole(
                    fitted(image, size, Filter::Bicubic, convention),
                    ["<|vision_start|>", "<|vision_end|>"],
                ))
            }
            Pictures::Filling { max_blocks } => {
                let size = gemma4_size(size, config.patch, config.block, max_blocks, convention)?;
                Ok(Self::whole(fitted(image, size, Filter::Bicubic, convention), ["<|image>", "<image|>"]))
            }
            Pictures::Square => {
                let size = Size { width: config.image_size, height: config.image_size };
                Ok(Self::whole(
                    fitted(image, size, Filter::Bilinear, convention),
                    ["<start_of_image>", "<end_of_image>"],
                ))
            }
            Pictures::Tiles { longest } => {
                let tile = config.image_size;
                let sizes = idefics3_sizes(size, longest, tile, convention);
                let scaled = stretched(image, sizes.scaled, Filter::Lanczos, convention);
                let canvas = stretched(&scaled, sizes.canvas, Filter::Lanczos, convention);
                let mut pictures = sizes.grid.map_or_else(Vec::new, |grid| tiles(&canvas, grid, tile));
                let whole = Size { width: tile, height: tile };
                pictures.push(stretched(&canvas, whole, Filter::Lanczos, convention));
                Ok(Self { pictures, parts: idefics3_parts(sizes.grid) })
            }
            Pictures::Canvas { min_tiles, max_tiles } => {
                let tile = config.image_size;
                let mut pictures = vec![];
                if let Some(grid) = internvl_grid(size, tile, min_tiles, max_tiles, convention) {
                    let size = Size { width: grid.columns * tile, height: grid.rows * tile };
                    pictures = tiles(&fitted(image, size, Filter::Bicubic, convention), grid, tile);
                }
                let whole = Size { width: tile, height: tile };
                pictures.push(stretched(image, whole, Filter::Bicubic, convention));
                let rows = (0..pictures.len()).map(ImagePart::Rows);
                let parts = [text("<img>")].into_iter().chain(rows).chain([text("</img>")]).collect();
                Ok(Self { pictures, parts })
            }
        }
    }

    /// Returns an image that is a single picture, with the text before and after its rows.
    fn whole(picture: Image, [before, after]: [&str; 2]) -> Self {
        Self { pictures: vec![picture], parts: vec![text(before), ImagePart::Rows(0), text(after)] }
    }
}

impl<'a> From<&'a Image> for Picture<'a> {
    fn from(image: &'a Image) -> Self {
        Self { rgb: image.rgb(), width: image.width(), height: image.height() }
    }
}

fn text(text: &str) -> ImagePart {
    ImagePart::Text(text.into())
}

/// Returns the image at a size: stretched, or as in llama.cpp within black bars.
fn fitted(image: &Image, size: Size, filter: Filter, convention: Convention) -> Image {
    match convention {
        Convention::Transformers => image.resize(size.width, size.height, filter),
        Convention::LlamaCpp => image.letterbox(size.width, size.height, filter),
    }
}

/// Returns the image stretched to a size. The two implementations differ in the order of the passes
/// over rows and columns, which changes the rounding.
fn stretched(image: &Image, size: Size, filter: Filter, convention: Convention) -> Image {
    match convention {
        Convention::Transformers => image.resize(size.width, size.height, filter),
        Convention::LlamaCpp => image.resize_width_first(size.width, size.height, filter),
    }
}

/// Returns the tiles of a picture, row by row.
fn tiles(canvas: &Image, grid: Grid, tile: usize) -> Vec<Image> {
    let place = |number: usize| (number % grid.columns * tile, number / grid.columns * tile);
    (0..grid.columns * grid.rows).map(place).map(|(x, y)| canvas.crop(x, y, tile, tile)).collect()
}

/// Returns the parts of an image with a tag for each tile, a line for each row of tiles, and the
/// whole image at the end.
fn idefics3_parts(grid: Option<Grid>) -> Vec<ImagePart> {
    const FRAME: &str = "<fake_token_around_image>";
    let mut parts = vec![];
    let mut number = 0;
    if let Some(grid) = grid {
        for row in 1..=grid.rows {
            for column in 1..=grid.columns {
                parts.extend([text(FRAME), text(&format!("<row_{row}_col_{column}>")), ImagePart::Rows(number)]);
                number += 1;
            }
            parts.push(text(if row < grid.rows { "\n" } else { "\n\n" }));
        }
    }
    parts.extend([text(FRAME), text("<global-img>"), ImagePart::Rows(number), text(FRAME)]);
    parts
}
