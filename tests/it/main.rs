//! The integration tests, as one binary.

mod graph;
mod interpret;
mod optimize;
mod plan;
mod quant;
mod support;
