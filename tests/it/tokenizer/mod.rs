//! Tests of tokenizers.

mod bert;
mod encode;
pub mod errors;
mod json;
mod pre;
