//! What several test files share.

pub mod graphs;
pub mod interpret;
pub mod quantize;
