//! The bytes that tensors lie in, and what the system is told about those of a file.
//!
//! Hints change speed and resident memory, never a result, so where the system lacks them or refuses them nothing is
//! reported.

use std::{
    fs::{self, File},
    io,
    ops::{Deref, Range},
    path::{Path, PathBuf},
};

use memmap2::Mmap;

use crate::{Error, Result};

/// The bytes of a file, or some made in memory.
#[derive(Debug)]
pub(crate) enum Map {
    File {
        map: Mmap,
        file: File,
        path: PathBuf,
    },
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
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        Ok(Self::File { map, file, path: path.into() })
    }

    /// Copies bytes to memory, at a multiple of 8; a few zeros may follow them.
    pub(super) fn copy(bytes: &[u8]) -> Self {
        let mut words = vec![0; bytes.len().div_ceil(size_of::<u64>())];
        bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Self::Memory(words.into())
    }

    /// Makes bytes in memory, at a multiple of 8, that `fill` writes; a few zeros may follow them. `None` where there
    /// is no room for them.
    pub(super) fn filled(len: usize, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Option<Result<Self>> {
        let count = len.div_ceil(size_of::<u64>());
        let mut words: Vec<u64> = vec![];
        words.try_reserve_exact(count).ok()?;
        words.resize(count, 0);
        let filled = fill(&mut bytemuck::cast_slice_mut(&mut words)[..len]);
        Some(filled.map(|()| Self::Memory(words.into())))
    }

    /// Whether the bytes are those of a mapped file.
    pub(super) fn is_mapped(&self) -> bool {
        matches!(self, Self::File { .. })
    }

    /// Copies the bytes from `start` on to `out`: those of a file by ordinary reads, as its mapping ends the process
    /// where the file has been shortened.
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be read, or ends too early.
    pub(super) fn read(&self, start: usize, out: &mut [u8]) -> Result<()> {
        match self {
            Self::File { file, path, .. } => {
                read_exact_at(file, start as u64, out).map_err(|source| match source.kind() {
                    io::ErrorKind::UnexpectedEof => {
                        let what =
                            format!("was shortened while it was read: byte {} is missing", start + out.len() - 1);
                        Error::Io { path: path.clone(), source: io::Error::new(source.kind(), what) }
                    }
                    _ => Error::Io { path: path.clone(), source },
                })
            }
            Self::Memory(_) => {
                out.copy_from_slice(&self[start..start + out.len()]);
                Ok(())
            }
        }
    }
}

/// Fills `out` with the bytes of a file from `start` on.
fn read_exact_at(file: &File, mut start: u64, mut out: &mut [u8]) -> io::Result<()> {
    while !out.is_empty() {
        match read_at(file, start, out) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                start += count as u64;
                out = &mut out[count..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads at a position, whatever other threads read of the same file.
#[cfg(unix)]
fn read_at(file: &File, start: u64, out: &mut [u8]) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, out, start)
}

#[cfg(windows)]
fn read_at(file: &File, start: u64, out: &mut [u8]) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, out, start)
}

#[cfg(not(any(unix, windows)))]
fn read_at(_: &File, _: u64, _: &mut [u8]) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Hints about a range of the bytes, which lies in the file.
#[cfg(unix)]
impl Map {
    /// It will be read soon, so that reading ahead from the disk can start.
    pub(super) fn will_need(&self, range: Range<usize>) {
        let Self::File { map, .. } = self else { return };
        // For one call Linux reads at most its window for reading ahead, which is this or more.
        const WINDOW: usize = 128 << 10;
        for start in range.clone().step_by(WINDOW) {
            let len = WINDOW.min(range.end - start);
            let _ = map.advise_range(memmap2::Advice::WillNeed, start, len);
        }
    }

    /// It has been read, so that its pages can be given back.
    pub(crate) fn done_with(&self, range: Range<usize>) {
        let Self::File { map, .. } = self else { return };
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
            Self::File { map, .. } => map,
            Self::Memory(words) => bytemuck::cast_slice(words),
        }
    }
}
