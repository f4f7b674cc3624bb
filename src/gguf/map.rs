//! A file in memory, and what the system is told about its bytes.
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

/// The bytes of a file.
#[derive(Debug)]
pub(super) struct Map(Mmap);

impl Map {
    /// Maps the file at `path`, which may name anything.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let io = |source| Error::Io { path: path.into(), source };
        let invalid = |what: &str| Error::InvalidFile { path: path.into(), what: what.into() };
        // Asked before opening, since opening a pipe waits for its writer.
        let status = fs::metadata(path).map_err(io)?;
        if status.is_dir() {
            return Err(invalid("is a directory: name the .gguf file in it"));
        }
        if !status.is_file() {
            return Err(invalid(
                "is not a regular file: a model is mapped, so it cannot be read from a pipe or device",
            ));
        }
        if status.len() == 0 {
            return Err(invalid("is empty: it is no GGUF file"));
        }
        let file = File::open(path).map_err(io)?;
        // SAFETY: the mapping is read-only and private to this crate; `Gguf::open` asks of the caller that nobody
        // changes the file meanwhile, as every reader of a mapped file must.
        unsafe { Mmap::map(&file) }.map(Self).map_err(io)
    }
}

/// Hints about a range of the bytes, which lies in the file.
#[cfg(unix)]
impl Map {
    /// It will be read soon, so that reading ahead from the disk can start.
    pub(super) fn will_need(&self, range: Range<usize>) {
        // For one call Linux reads at most its window for reading ahead, which is this or more.
        const WINDOW: usize = 128 << 10;
        for start in range.clone().step_by(WINDOW) {
            let len = WINDOW.min(range.end - start);
            let _ = self.0.advise_range(memmap2::Advice::WillNeed, start, len);
        }
    }

    /// It has been read, so that its pages can be given back.
    pub(super) fn done_with(&self, range: Range<usize>) {
        // SAFETY: the mapping is shared and read-only, so pages that are dropped come back from the file unchanged,
        // also for those who hold a slice of them.
        let _ = unsafe { self.0.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, range.start, range.len()) };
    }
}

#[cfg(not(unix))]
impl Map {
    pub(super) fn will_need(&self, _range: Range<usize>) {}

    pub(super) fn done_with(&self, _range: Range<usize>) {}
}

impl Deref for Map {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
