//! What several test files share.

pub mod allocation;
pub mod drive;
pub mod gguf_file;
pub mod graphs;
pub mod interpret;
pub mod quantize;
