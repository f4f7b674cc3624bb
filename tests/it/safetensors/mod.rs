//! Tests directories of safetensors: loading and errors.

mod errors;
mod load;
mod mutation;
