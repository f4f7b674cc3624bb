//! Reads and writes sections: bytes of a length that the reader knows, and a checksum.
//!
//! The checksum is the CRC-32 of the header's checksum, the number of the section and its bytes, so
//! sections of another session or in another order do not pass.

use std::io::{self, Read, Write};

use crate::{Error, Result};

/// Writes sections one after the other.
pub(super) struct SectionWriter<'a> {
    writer: &'a mut dyn Write,
    next: SectionKey,
}

/// Reads sections one after the other.
pub(super) struct SectionReader<'a> {
    reader: &'a mut dyn Read,
    next: SectionKey,
}

/// A section that is not checked yet.
pub(super) struct Section {
    key: SectionKey,
    bytes: Vec<u8>,
    checksum: [u8; 4],
}

/// The place of a section: the checksum of the header and the section's number.
#[derive(Clone, Copy)]
struct SectionKey {
    header: u32,
    number: u32,
}

impl SectionKey {
    fn take(&mut self) -> Self {
        let key = *self;
        self.number = self.number.wrapping_add(1);
        key
    }

    fn checksum(self, bytes: &[u8]) -> [u8; 4] {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.header.to_le_bytes());
        hasher.update(&self.number.to_le_bytes());
        hasher.update(bytes);
        hasher.finalize().to_le_bytes()
    }
}

impl<'a> SectionWriter<'a> {
    /// Returns a writer of the sections after a header with this checksum.
    pub fn new(writer: &'a mut dyn Write, header: u32) -> Self {
        Self { writer, next: SectionKey { header, number: 0 } }
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let checksum = self.next.take().checksum(bytes);
        self.writer.write_all(bytes).and_then(|()| self.writer.write_all(&checksum)).map_err(write_failed)
    }

    /// Writes what the writer has buffered.
    pub fn finish(self) -> Result<()> {
        self.writer.flush().map_err(write_failed)
    }
}

impl<'a> SectionReader<'a> {
    /// Returns a reader of the sections after a header with this checksum.
    pub fn new(reader: &'a mut dyn Read, header: u32) -> Self {
        Self { reader, next: SectionKey { header, number: 0 } }
    }

    /// Reads and checks a section of `len` bytes. Memory is allocated as bytes arrive.
    pub fn read(&mut self, len: usize) -> Result<Vec<u8>> {
        let (key, mut bytes) = (self.next.take(), vec![]);
        let read = self.reader.take(len as u64).read_to_end(&mut bytes).map_err(read_failed)?;
        if read != len {
            return Err(ends_early());
        }
        self.checked_by(key, bytes)?.check()
    }

    /// Reads a section of `len` bytes into a buffer, without a check.
    pub fn read_into(&mut self, mut bytes: Vec<u8>, len: usize) -> Result<Section> {
        let key = self.next.take();
        bytes.resize(len, 0);
        self.reader.read_exact(&mut bytes).map_err(read_failed)?;
        self.checked_by(key, bytes)
    }

    fn checked_by(&mut self, key: SectionKey, bytes: Vec<u8>) -> Result<Section> {
        let mut checksum = [0; 4];
        self.reader.read_exact(&mut checksum).map_err(read_failed)?;
        Ok(Section { key, bytes, checksum })
    }
}

impl Section {
    /// Returns the bytes if they have the right checksum.
    pub fn check(self) -> Result<Vec<u8>> {
        // Fuzzing is to get past the checksums.
        if cfg!(fuzzing) || self.key.checksum(&self.bytes) == self.checksum { Ok(self.bytes) } else { Err(damaged()) }
    }
}

pub(super) fn damaged() -> Error {
    Error::session("is damaged: save it again, or compute the text again")
}

fn ends_early() -> Error {
    Error::session("ends early: it was not written to its end, so save it again")
}

pub(super) fn read_failed(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => ends_early(),
        _ => Error::session(format!("could not be read: {error}")),
    }
}

pub(super) fn write_failed(error: io::Error) -> Error {
    Error::session(format!("could not be written: {error}"))
}
