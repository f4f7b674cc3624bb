//! Allocates zeroed memory that is aligned for vectors, in huge pages where it is large.

use std::{alloc, ptr::NonNull, slice};

use memmap2::{MmapMut, MmapOptions};

/// Bytes from which an allocation is a separate mapping, in huge pages where the system has them.
/// Weights are read in full for every token: with huge pages, TLB misses and page faults occur once
/// in 2 MB rather than once in 4 KB.
const LARGE: usize = 4 << 20;

/// Bytes of a huge page on x86-64, and on aarch64 with ordinary pages of 4 KB.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Memory that is aligned for any vector, and zero at first.
pub(crate) struct AlignedBytes {
    start: NonNull<u8>,
    len: usize,
    /// The mapping that `start` points into; `None` if the memory came from the allocator.
    map: Option<MmapMut>,
}

// SAFETY: the value owns its memory, as a `Box<[u8]>` does.
unsafe impl Send for AlignedBytes {}
// SAFETY: as above.
unsafe impl Sync for AlignedBytes {}

impl AlignedBytes {
    /// Alignment of the first byte.
    pub const ALIGN: usize = 64;

    /// Allocates `len` zero bytes. Returns `None` if the system refuses them.
    pub fn new(len: usize) -> Option<Self> {
        // Miri knows neither huge pages nor the addresses around a mapping.
        if len >= LARGE && !cfg!(miri) { Self::map(len) } else { Self::allocate(len) }
    }

    fn allocate(len: usize) -> Option<Self> {
        let layout = alloc::Layout::from_size_align(len.max(1), Self::ALIGN).ok()?;
        // SAFETY: the layout has a size above 0.
        let start = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?;
        Some(Self { start, len, map: None })
    }

    fn map(len: usize) -> Option<Self> {
        // One huge page more, to start at the boundary of one. The bytes before and after are never
        // touched, and so never resident.
        let mut map = MmapOptions::new().len(len.checked_add(HUGE_PAGE)?).map_anon().ok()?;
        let before = map.as_ptr().addr().next_multiple_of(HUGE_PAGE) - map.as_ptr().addr();
        // Without the last huge page if it is used in part: all of it would be resident.
        advise_huge_pages(&map, before, len / HUGE_PAGE * HUGE_PAGE);
        let start = NonNull::new(map.as_mut_ptr().wrapping_add(before))?;
        Some(Self { start, len, map: Some(map) })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `len` bytes were allocated or mapped, and zeroed.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        if self.map.is_none() {
            // SAFETY: `allocate` allocated it with this layout, which was valid there.
            unsafe {
                let layout = alloc::Layout::from_size_align_unchecked(self.len.max(1), Self::ALIGN);
                alloc::dealloc(self.start.as_ptr(), layout);
            }
        }
    }
}

/// Requests huge pages. If the system refuses, ordinary pages are used, which are slower.
#[cfg(target_os = "linux")]
fn advise_huge_pages(map: &MmapMut, start: usize, len: usize) {
    let _ = map.advise_range(memmap2::Advice::HugePage, start, len);
}

#[cfg(not(target_os = "linux"))]
fn advise_huge_pages(_map: &MmapMut, _start: usize, _len: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_any_size_is_zeroed_aligned_and_disjoint() {
        let large = [LARGE - 1, LARGE, LARGE + 1, LARGE + HUGE_PAGE - 1, 5 * HUGE_PAGE];
        // Miri maps no memory, and takes minutes for megabytes.
        let large = if cfg!(miri) { &[] } else { large.as_slice() };
        for len in [&[0, 1, 63, 4097], large].concat() {
            let all = [0xa5, 0x5a].map(|byte| {
                let memory = AlignedBytes::new(len).unwrap();
                assert_eq!(memory.len(), len);
                assert!(memory.as_ptr().addr().is_multiple_of(AlignedBytes::ALIGN), "{len}");
                assert!(memory.as_slice().iter().all(|&byte| byte == 0), "{len}");
                // SAFETY: the bytes belong to `memory`, which has no other reference.
                unsafe { memory.as_ptr().write_bytes(byte, len) };
                (memory, byte)
            });
            for (memory, byte) in all {
                assert!(memory.as_slice().iter().all(|&found| found == byte), "{len}");
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri itself runs out of memory")]
    fn impossible_sizes_return_none() {
        for len in [usize::MAX, usize::MAX - HUGE_PAGE, isize::MAX as usize, 1 << 60] {
            assert!(AlignedBytes::new(len).is_none(), "{len}");
        }
    }
}
