//! Memory for kernels: aligned allocations, and pools of cache pages and recurrent states.

pub(super) mod aligned;
pub(super) mod pages;
