//! The CPU.
mod activations;
mod attention;
mod float;
mod kernels;
mod math;
mod matrix;
mod packed;
mod pool;
mod product;
mod rope;
mod simd;
