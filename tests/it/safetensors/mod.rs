//! Directories of safetensors.

mod errors;
mod load;
mod mutation;
