//! Compares resized noise with Pillow, and with llama.cpp's rules.

use inkstone::{Image, internals::image::Filter};

use super::{crc32, json, noise, usize_of};

#[test]
fn resized_images_have_pillows_bytes() {
    let cases = json("resize.json");
    let cases = cases.as_array().unwrap();
    assert!(cases.len() > 300);
    let mut by_order = 0;
    for case in cases {
        let side = |of: usize, at: usize| usize_of(&case[of][at]);
        let source = noise(side(0, 0), side(0, 1), case[1] == 1);
        let filter = match case[3].as_str().unwrap() {
            "bilinear" => Filter::Bilinear,
            "bicubic" => Filter::Bicubic,
            "lanczos" => Filter::Lanczos,
            other => panic!("{other}"),
        };
        let (width, height) = (side(2, 0), side(2, 1));
        let result = match case[4].as_str().unwrap() {
            "resize" => source.resize(width, height, filter),
            "width_first" => source.resize_width_first(width, height, filter),
            "letterbox" => source.letterbox(width, height, filter),
            other => panic!("{other}"),
        };
        assert_eq!((result.width(), result.height()), (width, height));
        assert_eq!(u64::from(crc32(result.rgb())), case[5].as_u64().unwrap(), "{case}");
        by_order +=
            usize::from(source.resize(width, height, filter) != source.resize_width_first(width, height, filter));
    }
    assert!(by_order > 20, "the order of passes matters in {by_order} cases");
}

#[test]
fn a_size_that_stays_is_shared() {
    let image = noise(9, 7, false);
    for same in [image.resize(9, 7, Filter::Lanczos), image.letterbox(9, 7, Filter::Bilinear)] {
        assert_eq!(same.rgb().as_ptr(), image.rgb().as_ptr());
    }
}

#[test]
fn rectangles_are_cut_out() {
    let image = Image::from_rgb((0..36).collect::<Vec<u8>>(), 4, 3).unwrap();
    let cut = image.crop(1, 1, 2, 2);
    assert_eq!((cut.width(), cut.height()), (2, 2));
    assert_eq!(cut.rgb(), [15, 16, 17, 18, 19, 20, 27, 28, 29, 30, 31, 32]);
    assert_eq!(image.crop(0, 0, 4, 3), image);
}
