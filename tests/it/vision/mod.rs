//! Image encoders and prompts with images, against transformers and llama.cpp.

#[cfg(feature = "image")]
mod expected;
