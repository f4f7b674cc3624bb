//! The memory that the cache's pages live in, and the states of sequences.

use super::aligned::AlignedBytes;
use crate::{Error, Result};

/// Pages are made together up to this many bytes, so that they lie in huge pages of memory whatever their size. What
/// is not used yet is not resident.
const SLAB: usize = 32 << 20;

/// Pages of one size, by number, made when they are first named.
pub(crate) struct Pages {
    page_bytes: usize,
    /// How many pages a slab has.
    in_slab: usize,
    slabs: Vec<AlignedBytes>,
}

impl Pages {
    pub fn new(page_bytes: usize) -> Self {
        Self { page_bytes, in_slab: (SLAB / page_bytes.max(1)).max(1), slabs: Vec::new() }
    }

    /// Makes room for `count` pages.
    pub fn grow(&mut self, count: usize) -> Result<()> {
        while self.slabs.len() * self.in_slab < count {
            let bytes = self.page_bytes.saturating_mul(self.in_slab);
            let slab = AlignedBytes::new(bytes);
            let memory = Error::Memory { what: "pages of the cache", needed: bytes as u64, limit: 0 };
            self.slabs.push(slab.ok_or(memory)?);
        }
        Ok(())
    }

    /// The first byte of a page, for which there is room.
    pub fn start(&self, page: usize) -> *mut u8 {
        let slab = self.slabs[page / self.in_slab].as_ptr();
        slab.wrapping_add(page % self.in_slab * self.page_bytes)
    }

    /// Copies a page. Nobody uses either meanwhile.
    pub fn copy(&mut self, from: usize, to: usize) {
        // SAFETY: two pages of one size, which nobody else has while `self` is borrowed.
        unsafe { self.start(to).copy_from(self.start(from), self.page_bytes) };
    }
}
