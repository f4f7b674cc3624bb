//! Tests model families.

mod changed;
mod families;
mod qwen35;
mod refused;
mod step_sizes;
pub mod storyteller;
mod windows;
