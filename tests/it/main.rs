//! The integration tests, as one binary.

mod quant;
mod support;
