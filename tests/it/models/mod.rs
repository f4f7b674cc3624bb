//! Tests model families.

mod changed;
mod families;
mod qwen35;
mod step_sizes;
pub mod storyteller;
mod windows;
