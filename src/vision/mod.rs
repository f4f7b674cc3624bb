//! Turns images into rows of a text model.
//!
//! An image becomes one or more pictures of exact sizes ([`ImagePictures`]), and a picture becomes
//! patches ([`Patches`]), the tokens of the encoder's step. [`VisionEncoder`] runs the graph of
//! `models::vision` on them like any other graph.

mod encoder;
mod patches;
mod pictures;

pub use encoder::{EncodedPicture, VisionEncoder};
pub use patches::{Patches, Picture};
pub use pictures::{ImagePart, ImagePictures};
