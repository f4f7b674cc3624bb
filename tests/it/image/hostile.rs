//! Gives decoders truncated, damaged and huge files: errors are all that may happen.

use std::fs;

use inkstone::{Error, Image};
use proptest::prelude::*;

use super::data;
use crate::support::allocation::peak_during;

/// A small file of each kind.
const FILES: [&str; 21] = [
    "rgb.png",
    "rgb_16_interlaced.png",
    "palette_alpha.png",
    "grey_key.png",
    "animated.png",
    "exif_at_end.png",
    "full.jpg",
    "halved.jpg",
    "progressive.jpg",
    "restarts.jpg",
    "cmyk.jpg",
    "ycck.jpg",
    "exif_6.jpg",
    "lossy.webp",
    "lossy_alpha.webp",
    "lossless_alpha.webp",
    "animated.webp",
    "animated_lossy.webp",
    "exif.webp",
    "interlaced.gif",
    "part_transparent.gif",
];

/// Bytes that a damaged small file may allocate: WebP states lengths of 24 bits for parts of lossy
/// pictures, which are allocated before they are read; pictures and tables are far smaller.
const MEMORY: usize = (16 << 20) + (4 << 20);

/// Decodes with a limit of 16,384 pixels and checks the memory taken and the error.
fn decode(bytes: &[u8]) -> Option<Image> {
    let (result, peak) = peak_during(|| Image::options().max_pixels(1 << 14).decode(bytes));
    assert!(peak <= MEMORY, "{peak} bytes allocated");
    match result {
        Ok(image) => Some(image),
        Err(error) => {
            assert!(matches!(error, Error::Image { path: None, .. } | Error::ImageTooLarge { path: None, .. }));
            assert!(error.to_string().starts_with("image: ") && !error.to_string().contains("panicked"), "{error}");
            None
        }
    }
}

#[test]
fn truncated_files_are_errors_or_whole() {
    for name in FILES {
        let bytes = fs::read(data(name)).unwrap();
        let whole = decode(&bytes).unwrap();
        // GIF's first picture ends long before an animated file, and before its last byte anyway.
        let complete = (0..bytes.len()).filter_map(|length| decode(&bytes[..length])).inspect(|image| {
            assert!(name.ends_with(".gif") && *image == whole, "{name} decodes though it is truncated");
        });
        assert!(complete.count() <= 3, "{name}");
    }
}

/// Replaces the data before the end marker by ones, which are not a Huffman code. JPEG has no
/// checksum, so other damage may go unseen, in all decoders.
#[test]
fn jpegs_with_invalid_codes_are_errors() {
    for name in ["full.jpg", "halved.jpg", "grey.jpg", "cmyk.jpg", "progressive.jpg"] {
        let mut bytes = fs::read(data(name)).unwrap();
        let end = bytes.len() - 2;
        assert_eq!(bytes[end..], [0xff, 0xd9]);
        bytes[end - 16..end].copy_from_slice(&[0xff, 0].repeat(8));
        let error = Image::decode(&bytes).unwrap_err().to_string();
        assert!(error.starts_with("image: is a malformed or truncated JPEG image: "), "{name}: {error}");
    }
}

#[test]
fn huge_files_are_refused_before_memory_is_taken() {
    let header = |name: &str, at: usize, size: &[u8]| {
        let mut bytes = fs::read(data(name)).unwrap();
        bytes[at..at + size.len()].copy_from_slice(size);
        bytes
    };
    // The header's checksum follows its fields.
    let png = |width: u32, height: u32| {
        let mut bytes = header("rgb.png", 16, &[width.to_be_bytes(), height.to_be_bytes()].concat());
        let crc = super::crc32(&bytes[12..29]);
        bytes[29..33].copy_from_slice(&crc.to_be_bytes());
        bytes
    };
    let frame = |name: &str| fs::read(data(name)).unwrap().windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    let files = [
        (png(100_000, 100_000), (100_000, 100_000)),
        (png(100_000, 1), (100_000, 1)),
        (png(1, 0x7fff_ffff), (1, 0x7fff_ffff)),
        (header("full.jpg", frame("full.jpg") + 5, &[0xff, 0xff, 0xff, 0xfe]), (65534, 65535)),
        (header("plain.gif", 6, &[0xff; 4]), (65535, 65535)),
        (header("exif.webp", 24, &[0xff, 0xff, 0, 0xff, 0xfe, 0]), (65536, 65280)),
    ];
    for (bytes, (width, height)) in files {
        let (result, peak) = peak_during(|| Image::decode(&bytes));
        let error = result.unwrap_err();
        assert!(
            matches!(error, Error::ImageTooLarge { width: w, height: h, .. } if (w, h) == (width, height)),
            "{error}"
        );
        assert!(peak < 1 << 20, "{peak} bytes for {width} x {height} pixels");
    }
}

#[test]
fn pictures_larger_than_their_image_are_refused_before_memory_is_taken() {
    for name in ["lossy_alpha.webp", "animated_lossy.webp"] {
        let mut bytes = fs::read(data(name)).unwrap();
        let start = bytes.windows(3).position(|code| code == [0x9d, 0x01, 0x2a]).unwrap();
        bytes[start + 3..start + 7].copy_from_slice(&[0xff, 0x3f, 0xff, 0x3f]);
        let (result, peak) = peak_during(|| Image::decode(&bytes));
        assert!(result.unwrap_err().to_string().ends_with("a picture is larger than the image"));
        assert!(peak < 1 << 20, "{peak} bytes");
    }
}

#[test]
fn images_without_pixels_are_errors() {
    let mut gif = fs::read(data("plain.gif")).unwrap();
    gif[6..8].fill(0);
    let error = Image::decode(&gif).unwrap_err().to_string();
    assert_eq!(error, "image: has no pixels: it is 0 x 9");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_are_handled(
        index in 0..FILES.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = fs::read(data(FILES[index])).unwrap();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        decode(&bytes);
    }
}
