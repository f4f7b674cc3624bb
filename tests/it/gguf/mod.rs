//! Tests GGUF files: reading, errors, mapping and weights.

mod errors;
mod mapping;
mod mutation;
mod read;
mod weights;
