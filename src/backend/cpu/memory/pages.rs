//! Allocates the pages of the KV cache, and the states of recurrent layers.

use super::aligned::AlignedBytes;
use crate::{Error, Result};

/// Bytes of a slab. Pages are allocated in slabs, so that they lie in huge pages of memory at any
/// size; the unused end of a slab is not resident.
const SLAB_BYTES: usize = 32 << 20;

/// Pages of one size, numbered from 0.
pub(crate) struct PageSlabs {
    page_bytes: usize,
    pages_per_slab: usize,
    slabs: Vec<AlignedBytes>,
}

impl PageSlabs {
    /// Returns an empty pool of pages of `page_bytes` bytes.
    pub fn new(page_bytes: usize) -> Self {
        Self { page_bytes, pages_per_slab: (SLAB_BYTES / page_bytes.max(1)).max(1), slabs: Vec::new() }
    }

    /// Allocates slabs until the pool has at least `count` pages.
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub fn grow(&mut self, count: usize) -> Result<()> {
        while self.slabs.len() * self.pages_per_slab < count {
            let bytes = self.page_bytes.saturating_mul(self.pages_per_slab);
            self.slabs
                .push(AlignedBytes::new(bytes).ok_or_else(|| Error::out_of_memory("pages of the KV cache", bytes))?);
        }
        Ok(())
    }

    /// Returns the number of pages.
    pub fn len(&self) -> usize {
        self.slabs.len() * self.pages_per_slab
    }

    /// Returns the first byte of a page below the pool's size.
    pub fn start(&self, page: usize) -> *mut u8 {
        let slab = self.slabs[page / self.pages_per_slab].as_ptr();
        slab.wrapping_add(page % self.pages_per_slab * self.page_bytes)
    }

    /// Copies a page to another one.
    pub fn copy(&mut self, from: usize, to: usize) {
        // SAFETY: both are whole pages of the pool; no thread reads or writes them while `self` is
        // borrowed.
        unsafe { self.start(to).copy_from(self.start(from), self.page_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri itself runs out of memory")]
    fn refused_memory_is_an_error_with_its_size() {
        let bytes = isize::MAX as usize - 4096;
        let mut pool = PageSlabs::new(bytes);
        pool.grow(0).unwrap();
        let error = pool.grow(1).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { bytes: refused, .. } if refused == bytes as u64), "{error}");
    }
}
