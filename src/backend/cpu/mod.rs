//! The CPU.
mod packed;
mod simd;
