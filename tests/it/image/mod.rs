//! Images: files of every kind, resizing, the sizes that encoders take, and hostile files.

mod files;
mod hostile;
mod llama_cpp;
mod resize;
mod sizes;

use std::{fs, path::PathBuf};

use inkstone::Image;
use serde_json::Value;

use crate::support;

/// Returns a fixture of tests/data/images.
fn data(name: &str) -> PathBuf {
    support::data("images").join(name)
}

fn json(name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(data(name)).unwrap()).unwrap()
}

fn usize_of(value: &Value) -> usize {
    value.as_u64().unwrap() as usize
}

/// The CRC-32 of zlib and PNG.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc: u32, &byte| (0..8).fold(crc ^ u32::from(byte), |crc, _| step(crc)))
}

/// Returns the noise of make.py, which has only 0 and 255 if it is `extreme`.
fn noise(width: usize, height: usize, extreme: bool) -> Image {
    let mut state = (width * 65536 + height) as u32;
    let bytes: Vec<u8> = (0..width * height * 3)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if extreme { (state >> 31) as u8 * 255 } else { (state >> 24) as u8 }
        })
        .collect();
    Image::from_rgb(bytes, width, height).unwrap()
}

#[test]
fn images_are_made_of_rgb_bytes() {
    let image = Image::from_rgb(vec![1, 2, 3, 4, 5, 6], 1, 2).unwrap();
    assert_eq!((image.width(), image.height(), image.rgb()), (1, 2, [1, 2, 3, 4, 5, 6].as_slice()));
    assert_eq!(image, Image::from_rgb([1, 2, 3, 4, 5, 6], 1, 2).unwrap());
    assert_ne!(image, Image::from_rgb([1, 2, 3, 4, 5, 6], 2, 1).unwrap());
    assert_ne!(image, Image::from_rgb([1, 2, 3, 4, 5, 7], 1, 2).unwrap());
    assert_eq!(format!("{image:?}"), "Image(1 x 2)");
    let message = |bytes: usize, width, height| Image::from_rgb(vec![0; bytes], width, height).unwrap_err().to_string();
    assert_eq!(message(0, 0, 5), "width: must be from 1 to 65535 pixels, not 0");
    assert_eq!(message(0, 5, 0), "height: must be from 1 to 65535 pixels, not 0");
    assert_eq!(message(300_000, 100_000, 1), "width: must be from 1 to 65535 pixels, not 100000");
    assert_eq!(message(12, 2, 3), "bytes: has 12 bytes, but 2 x 3 pixels of RGB have 18");
    assert_eq!(message(1, 65535, 65535), "bytes: has 1 bytes, but 65535 x 65535 pixels of RGB have 12884508675");
}
