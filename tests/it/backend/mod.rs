//! Backends: ops, formats, and devices.

mod cpu;
#[cfg(any(feature = "wgpu", feature = "metal"))]
mod gpu;
mod invariance;
pub mod ops;
mod profile;
mod quant;
