//! One file for each format in which models write their tool calls.

pub(super) mod gemma;
pub(super) mod json;
pub(super) mod mistral;
pub(super) mod parameters;
pub(super) mod pythonic;
