//! Saves images with serde, as a part of saved conversations.

use std::borrow::Cow;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::Image;

/// An image as serde writes it.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Image", deny_unknown_fields)]
struct SavedImage<'a> {
    width: usize,
    height: usize,
    /// The bytes of [`Image::rgb`] in base64.
    rgb: Cow<'a, str>,
}

/// Writes `width`, `height` and `rgb`, the bytes of [`Image::rgb`] in base64.
impl Serialize for Image {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rgb = BASE64_STANDARD.encode(self.rgb()).into();
        SavedImage { width: self.width(), height: self.height(), rgb }.serialize(serializer)
    }
}

/// Reads an image as [`Serialize`] writes it.
impl<'de> Deserialize<'de> for Image {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let SavedImage { width, height, rgb } = SavedImage::deserialize(deserializer)?;
        let bytes = BASE64_STANDARD.decode(&*rgb).map_err(|e| D::Error::custom(format!("`rgb` is not base64: {e}")))?;
        Self::from_rgb(bytes, width, height).map_err(D::Error::custom)
    }
}
