//! What several test files share.

pub mod allocation;
pub mod gguf_file;
pub mod quantize;
