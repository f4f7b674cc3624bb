//! Holds the bytes of tensors, mapped from a file or allocated, and gives the operating system
//! hints about mapped ranges.
//!
//! Hints change speed and resident memory, never a result. A system that lacks or refuses a hint is
//! therefore not an error.

use std::{
    fs::{self, File},
    io,
    ops::{Deref, Range},
    path::{Path, PathBuf},
};

use memmap2::Mmap;

use crate::{Error, Result};

/// Read-only bytes: a mapped file, or an allocation aligned to 8 bytes.
#[derive(Debug)]
pub(crate) enum Map {
    File {
        map: Mmap,
        file: File,
        path: PathBuf,
    },
    /// Words instead of bytes, for their alignment.
    Memory(Box<[u64]>),
}

impl Map {
    /// Maps the regular, non-empty file at `path`.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be opened or mapped, [`Error::InvalidFile`] if `path` is a
    /// directory, a pipe, a device or an empty file.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let io = |source| Error::Io { path: path.into(), source };
        let invalid = |what: &str| Error::InvalidFile { path: path.into(), what: what.into() };
        // Checked before opening, since opening a pipe waits for its writer.
        let status = fs::metadata(path).map_err(io)?;
        if status.is_dir() {
            return Err(invalid("is a directory, not a file"));
        }
        if !status.is_file() {
            return Err(invalid(
                "is not a regular file: models are memory-mapped and cannot be read from a pipe or device",
            ));
        }
        if status.len() == 0 {
            return Err(invalid("is empty"));
        }
        let file = File::open(path).map_err(io)?;
        // SAFETY: the mapping is read-only and private to this crate. `Gguf::open` documents that
        // the file must not change while it is mapped, as every reader of a mapped file must.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        Ok(Self::File { map, file, path: path.into() })
    }

    /// Copies `bytes` to an allocation aligned to 8 bytes, padded with zeros to a multiple of 8.
    pub(super) fn copy(bytes: &[u8]) -> Self {
        let mut words = vec![0; bytes.len().div_ceil(size_of::<u64>())];
        bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
        Self::Memory(words.into())
    }

    /// Allocates `len` bytes, aligned and padded as by [`copy`](Self::copy), and calls `fill` to
    /// write them. Returns `None` if the allocation fails.
    pub(super) fn filled(len: usize, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Option<Result<Self>> {
        let count = len.div_ceil(size_of::<u64>());
        let mut words: Vec<u64> = vec![];
        words.try_reserve_exact(count).ok()?;
        words.resize(count, 0);
        let filled = fill(&mut bytemuck::cast_slice_mut(&mut words)[..len]);
        Some(filled.map(|()| Self::Memory(words.into())))
    }

    /// Returns whether the bytes are mapped from a file.
    pub(super) fn is_mapped(&self) -> bool {
        matches!(self, Self::File { .. })
    }

    /// Copies the bytes from `start` on to `out`. Uses ordinary reads for a file: reading a mapping
    /// past the end of a file that was truncated meanwhile ends the process.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read or was truncated.
    pub(super) fn read(&self, start: usize, out: &mut [u8]) -> Result<()> {
        match self {
            Self::File { file, path, .. } => {
                read_exact_at(file, start as u64, out).map_err(|source| match source.kind() {
                    io::ErrorKind::UnexpectedEof => {
                        let what =
                            format!("was truncated while it was read: byte {} is missing", start + out.len() - 1);
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

/// Fills `out` with the bytes of the file from `start` on.
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

/// Reads at a position, without the file offset that other threads could move.
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

/// Hints about a range within the file; no effect on allocated bytes.
#[cfg(unix)]
impl Map {
    /// Hints that the range will be read soon, so that read-ahead from the disk can start.
    pub(super) fn will_need(&self, range: Range<usize>) {
        let Self::File { map, .. } = self else { return };
        // Linux reads at most its read-ahead window per call, which is this or more.
        const WINDOW: usize = 128 << 10;
        for start in range.clone().step_by(WINDOW) {
            let len = WINDOW.min(range.end - start);
            let _ = map.advise_range(memmap2::Advice::WillNeed, start, len);
        }
    }

    /// Hints that the range has been read and its pages can be released.
    pub(crate) fn done_with(&self, range: Range<usize>) {
        let Self::File { map, .. } = self else { return };
        // SAFETY: the mapping is shared and read-only, so dropped pages are read from the file
        // again, unchanged, also through slices that are still held.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_memory_are_aligned_and_read_from_anywhere() {
        for len in [0, 1, 7, 8, 9, 4099] {
            let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let filled = Map::filled(len, |out| {
                out.copy_from_slice(&bytes);
                Ok(())
            });
            for map in [Map::copy(&bytes), filled.unwrap().unwrap()] {
                assert!(!map.is_mapped() && map.as_ptr().addr().is_multiple_of(8));
                assert_eq!(map[..len], bytes);
                assert!(map[len..].iter().all(|&byte| byte == 0) && map.len() < len + 8);
                let mut end = vec![0; len - len / 3];
                map.read(len / 3, &mut end).unwrap();
                assert_eq!(end, bytes[len / 3..]);
            }
        }
    }

    #[test]
    fn memory_that_there_is_not_is_none() {
        assert!(Map::filled(usize::MAX, |_| Ok(())).is_none());
    }
}
