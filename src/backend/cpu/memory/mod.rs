//! Aligned memory, and the key-value pages that are made of it.

pub(super) mod aligned;
pub(super) mod pages;
