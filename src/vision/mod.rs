//! Turns images into rows of a text model.
//!
//! An image becomes one or more pictures of exact sizes ([`ImagePictures`]), and a picture becomes
//! patches ([`Patches`]), the tokens of the encoder's step. [`EncoderPlan`] compiles the graph of
//! `models::vision` like any other graph, and [`VisionEncoder`] runs it.

mod encoder;
mod patches;
mod pictures;
mod plan;
mod shares;

pub use encoder::{EncodedPicture, VisionEncoder};
pub use patches::{Patches, Picture};
pub use pictures::{ImagePart, ImagePictures};
pub use plan::{EncoderMemory, EncoderPlan};
