//! Allocates memory for kernels: aligned memory, and slabs of cache pages and recurrent states.

pub(super) mod aligned;
pub(super) mod pages;
