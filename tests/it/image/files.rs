//! Compares decoded files with Pillow.

use std::fs;

use inkstone::{Error, Image, image::Alpha};
use serde_json::Value;

use super::{crc32, data, json, usize_of};

/// The largest difference of decoded JPEGs. ITU-T T.83 allows a decoder one level in each of Y, Cb
/// and Cr: 1 + 1.772 levels of blue, and half a level for rounding.
const JPEG_TOLERANCE: u8 = 3;

fn assert_crc(name: &str, image: &Image, expected: &Value) {
    assert_eq!(u64::from(crc32(image.rgb())), expected.as_u64().unwrap(), "{name}: {:?}", image.rgb());
}

fn assert_close(name: &str, image: &Image, expected: &str) {
    let expected =
        expected.as_bytes().chunks(2).map(|hex| u8::from_str_radix(str::from_utf8(hex).unwrap(), 16).unwrap());
    let differences: Vec<u8> = image.rgb().iter().zip(expected).map(|(&a, b)| a.abs_diff(b)).collect();
    let most = *differences.iter().max().unwrap();
    assert!(differences.len() == image.rgb().len() && most <= JPEG_TOLERANCE, "{name}: differs by {most}");
}

#[test]
fn files_decode_as_in_pillow() {
    let files = json("files.json");
    let files = files.as_object().unwrap();
    assert!(files.len() > 50);
    for (name, expected) in files {
        let image = Image::open(data(name)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(image, Image::decode(&fs::read(data(name)).unwrap()).unwrap());
        assert_eq!(
            (image.width(), image.height()),
            (usize_of(&expected["width"]), usize_of(&expected["height"])),
            "{name}"
        );
        match expected["rgb"].as_str() {
            Some(rgb) => assert_close(name, &image, rgb),
            None => assert_crc(name, &image, &expected["crc"]),
        }
        let dropped = Image::options().alpha(Alpha::Drop).open(data(name)).unwrap();
        match &expected["crc_dropped"] {
            Value::Null if name.starts_with("part") => assert_ne!(dropped, image),
            Value::Null => assert_eq!(dropped, image, "{name} has no alpha"),
            crc => assert_crc(name, &dropped, crc),
        }
    }
}

#[test]
fn transparent_pixels_show_the_background() {
    let image = Image::options().alpha(Alpha::Over([10, 200, 30])).open(data("part_transparent.gif")).unwrap();
    assert_eq!(image.rgb()[..3], [10, 200, 30]);
    let opaque = Image::options().alpha(Alpha::Over([10, 200, 30])).open(data("rgb.png")).unwrap();
    assert_eq!(opaque, Image::open(data("rgb.png")).unwrap());
}

/// Cameras append videos and further pictures.
#[test]
fn bytes_after_the_end_are_ignored() {
    let other = fs::read(data("halved.jpg")).unwrap();
    for name in ["exif_6.jpg", "progressive.jpg", "cmyk.jpg", "rgba.png", "lossy_alpha.webp", "plain.gif"] {
        let bytes = fs::read(data(name)).unwrap();
        let longer = [bytes.as_slice(), b"\0\0", &other].concat();
        assert_eq!(Image::decode(&longer).unwrap(), Image::decode(&bytes).unwrap(), "{name}");
    }
}

#[test]
fn the_number_of_pixels_is_limited() {
    let path = data("rgb.png");
    assert!(Image::options().max_pixels(13 * 9).open(&path).is_ok());
    for name in ["rgb.png", "halved.jpg", "lossy.webp", "plain.gif", "animated.webp"] {
        let expected = Image::open(data(name)).unwrap();
        let pixels = expected.width() * expected.height();
        let error = Image::options().max_pixels(pixels - 1).open(data(name)).unwrap_err();
        let Error::ImageTooLarge { path, width, height, max_pixels } = &error else { panic!("{error}") };
        assert_eq!((path.as_deref(), *max_pixels), (Some(&*data(name)), pixels - 1));
        assert_eq!((*width, *height), (expected.width(), expected.height()));
        let message =
            format!("{}: is {width} x {height} pixels, but at most {max_pixels} are allowed", data(name).display());
        assert!(error.to_string().starts_with(&message), "{error}");
    }
}

#[test]
fn other_files_are_refused_by_name() {
    let refused = |bytes: &[u8], what: &str| {
        let error = Image::decode(bytes).unwrap_err();
        assert!(matches!(&error, Error::Image { path: None, .. }));
        assert!(error.to_string().starts_with(&format!("image: is {what}")), "{error}");
    };
    refused(b"", "empty");
    refused(b"hello", "of an unknown format, but PNG, JPEG, WebP and GIF are supported: convert it to PNG");
    refused(b"\0\0\0\x18ftypheic", "an HEIC image");
    refused(b"\0\0\0\x18ftypavif", "an AVIF image");
    refused(b"<svg>", "an SVG image");
    refused(b"\xff\xd8\xff", "a malformed or truncated JPEG image");
    let missing = Image::open("missing.png").unwrap_err();
    assert!(matches!(missing, Error::Io { .. }) && missing.to_string().starts_with("missing.png: "));
    let json = Image::open(data("files.json")).unwrap_err().to_string();
    assert!(json.starts_with(&format!("{}: is of an unknown format", data("files.json").display())), "{json}");
}
