//! Parts that the APIs of OpenAI share.

pub mod format;
pub mod image;
pub mod output;
pub mod sampling;
pub mod tools;
