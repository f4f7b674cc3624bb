//! Tests model families.

mod families;
mod qwen35;
mod step_sizes;
mod storyteller;
mod windows;
