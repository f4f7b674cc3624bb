//! The bytes that tensors lie in, and what the system is told about those of a file.
//!
//! Hints change speed and resident memory, never a result, so where the system lacks them or refuses them nothing is
//! reported.

use std::{
    fs::{self, File},
    ops::{Deref, Range},
    path::Path,
};

use memmap2::Mmap;

use crate::{Error, Result};

/// The bytes of a file, or some made in memory.
#[derive(Debug)]
pub(crate) enum Map {
    File(Mmap),
    /// Words rather than bytes for their alignment.
    Memory(Box<[u64]>),
}

impl Map {
    /// Maps the file at `path`, which may name anything.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let io = |source| Error::Io { path: path.into(), source };
        let invalid = |what: &str| Error::InvalidFile { path: path.into(), what: what.into() };
        // Asked before opening, since opening a pipe waits for its writer.
        let status = fs::metadata(path).map_err(io)?;
        if status.is_dir() {
            return Err(invalid("is a directory, not a file"));
        }
        if !status.is_file() {
            return Err(invalid(
                "is not a regular file: a model is mapped, so it cannot be read from a pipe or device",
            ));
        }
        if status.len() == 0 {
            return Err(invalid("is empty"));
        }
        let file = File::open(path).map_err(io)?;
        // SAFETY: the mapping is read-only and private to this crate; `Gguf::open` asks of the caller that nobody
        // changes the file meanwhile, as every reader of a mapped file must.
        unsafe { Mmap::map(&file) }.map(Self::File).map_err(io)
    }

    /// A copy in memory, at a multiple of 8; it may end in a few zeros more.
    pub(super) fn copy(bytes: &[u8]) -> Self {
        let mut words = vec![0; bytes.len().div_ceil(size_of::<u64>())];
        bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Self::Memory(words.into())
    }
}

/// Hints about a range of the bytes, which lies in the file.
#[cfg(unix)]
impl Map {
    /// It will be read soon, so that reading ahead from the disk can start.
    pub(super) fn will_need(&self, range: Range<usize>) {
        let Self::File(map) = self else { return };
        // For one call Linux reads at most its window for reading ahead, which is this or more.
        const WINDOW: usize = 128 << 10;
        for start in range.clone().step_by(WINDOW) {
            let len = WINDOW.min(range.end - start);
            let _ = map.advise_range(memmap2::Advice::WillNeed, start, len);
        }
    }

    /// It has been read, so that its pages can be given back.
    pub(crate) fn done_with(&self, range: Range<usize>) {
        let Self::File(map) = self else { return };
        // SAFETY: the mapping is shared and read-only, so pages that are dropped come back from the file unchanged,
        // also for those who hold a slice of them.
        let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len()) };
    }
}

#[cfg(not(unix))]
impl Map {
    pub(super) fn will_need(&self, _range: Range<usize>) {}

    pub(crate) fn done_with(&self, _range: Range<usize>) {}
}

impl Deref for Map {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::File(map) => map,
            Self::Memory(words) => bytemuck::cast_slice(words),
        }
    }
}
