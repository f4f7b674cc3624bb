//! Decodes an image, and resizes it in every way.
//!
//! Input: the file. A program may allow more pixels, but only time grows with them.

#![no_main]

use inkstone::{
    Error, Image,
    image::Alpha,
    internals::image::{Filter, Convention, Size, gemma4_size, idefics3_sizes, internvl_grid, smart_resize},
};
use libfuzzer_sys::fuzz_target;

/// The most pixels of an image.
const MAX_PIXELS: usize = 1 << 18;

fuzz_target!(|input: &[u8]| {
    let image = match Image::options().max_pixels(MAX_PIXELS).decode(input) {
        Ok(image) => image,
        Err(Error::Image { .. } | Error::ImageTooLarge { .. }) => return,
        Err(error) => panic!("{error}"),
    };
    let (width, height) = (image.width(), image.height());
    assert!(width * height <= MAX_PIXELS && image.rgb().len() == width * height * 3);
    let dropped = Image::options().alpha(Alpha::Drop).decode(input).expect("the same file");
    assert_eq!((dropped.width(), dropped.height()), (width, height));
    for filter in [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos] {
        assert_eq!(image.resize(13, 7, filter).rgb().len(), 13 * 7 * 3);
        assert_eq!(image.letterbox(30, 40, filter).rgb().len(), 30 * 40 * 3);
    }
    for like in [Convention::Transformers, Convention::LlamaCpp] {
        let size = Size { width, height };
        if let Ok(size) = smart_resize(size, 28, 3_136..=12_845_056, like) {
            assert!(size.width.is_multiple_of(28) && size.height.is_multiple_of(28) && size.width * size.height > 0);
        }
        if let Ok(size) = gemma4_size(size, 16, 3, 280, like) {
            assert!(size.width.is_multiple_of(48) && size.height.is_multiple_of(48) && size.width * size.height > 0);
        }
        if let Some(grid) = internvl_grid(size, 448, 1, 12, like) {
            assert!((1..=12).contains(&(grid.columns * grid.rows)));
        }
        let sizes = idefics3_sizes(size, 1456, 364, like);
        assert!(sizes.canvas.width.is_multiple_of(364) && sizes.canvas.height.is_multiple_of(364));
    }
});
