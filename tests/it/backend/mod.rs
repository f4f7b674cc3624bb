//! Backends: ops, formats, and devices.

mod cpu;
#[cfg(any(feature = "wgpu", feature = "metal"))]
mod gpu;
mod invariance;
mod ops;
mod profile;
mod quant;
