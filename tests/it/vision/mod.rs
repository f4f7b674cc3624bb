//! Image encoders and prompts with images, against transformers and llama.cpp.

#[cfg(feature = "image")]
mod checkpoints;
#[cfg(all(feature = "chat", feature = "image"))]
mod conversations;
mod encoders;
#[cfg(feature = "image")]
mod expected;
#[cfg(all(feature = "chat", feature = "image"))]
mod memory;
#[cfg(feature = "image")]
mod seer;
