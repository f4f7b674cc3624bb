//! The model's tensors by name.

/// Placeholder until the reader lands.
#[derive(Debug)]
pub struct Weights;
