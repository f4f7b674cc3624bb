//! The CPU.
mod simd;
