//! One file of a model: mapped, and checked from its first byte to the end of its last tensor.
//!
//! In comes a path, out come its metadata and tensors. What is no GGUF file is told apart here, each kind with a message
//! of its own.

use std::{path::Path, sync::Arc};

use super::{
    TensorInfo,
    map::Map,
    metadata::Metadata,
    read::{Cursor, Element, Parsed},
    table::Table,
};
use crate::{Error, Result};

/// The first four bytes of every GGUF file.
const MAGIC: &[u8] = b"GGUF";

/// Where `general.alignment` is absent.
const DEFAULT_ALIGNMENT: u64 = 32;

/// Alignments in use are 32 to 4096; the largest page is a gigabyte, but padding that much serves nobody.
const MAX_ALIGNMENT: u64 = 1 << 20;

/// A GGUF file, whole or one of several that make up a model.
pub(super) struct Part {
    pub(super) version: u32,
    pub(super) metadata: Metadata,
    pub(super) tensors: Vec<TensorInfo>,
}

impl Part {
    /// Maps and checks the file at `path`.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let map = Map::open(path)?;
        Self::parse(map).map_err(|what| Error::InvalidFile { path: path.into(), what })
    }

    fn parse(map: Map) -> Parsed<Self> {
        check_magic(&map)?;
        let mut cursor = Cursor::new(&map);
        let _magic: u32 = header(&mut cursor)?;
        let version = header(&mut cursor)?;
        check_version(version)?;
        let [tensors, keys] = [header(&mut cursor)?, header(&mut cursor)?];
        let metadata = Metadata::read(&mut cursor, keys)?;
        let alignment = alignment(&metadata)?;
        let table = Table::read(&mut cursor, tensors)?;
        // No overflow: a position is at most `isize::MAX`, the size of the largest mapping.
        let start = cursor.position().next_multiple_of(alignment as usize);
        // All of it has been copied.
        map.done_with(0..cursor.position());
        let tensors = table.resolve(&Arc::new(map), start, alignment)?;
        Ok(Self { version, metadata, tensors })
    }
}

/// The next number of the file's header.
fn header<T: Element>(cursor: &mut Cursor) -> Parsed<T> {
    cursor.read().map_err(|what| format!("the header {what}"))
}

fn check_magic(bytes: &[u8]) -> Parsed<()> {
    if bytes.starts_with(MAGIC) {
        return Ok(());
    }
    if bytes.starts_with(b"version https://git-lfs") {
        return Err("is a Git LFS pointer to the model, not the model: fetch it with `git lfs pull`".into());
    }
    let start = &bytes[..bytes.len().min(MAGIC.len())];
    Err(format!("is not a GGUF file: it starts with \"{}\" and not with \"GGUF\"", start.escape_ascii()))
}

fn check_version(version: u32) -> Parsed<()> {
    match version {
        2 | 3 => Ok(()),
        1 => Err("is of GGUF version 1, which is no longer in use: convert the original model again".into()),
        _ if (1..=3).contains(&version.swap_bytes()) => {
            Err("is a big-endian GGUF file: convert it with gguf-py's gguf_convert_endian".into())
        }
        _ => Err(format!("is of GGUF version {version}: versions 2 and 3 are supported")),
    }
}

fn alignment(metadata: &Metadata) -> Parsed<u64> {
    let alignment = metadata.layout("general.alignment")?.unwrap_or(DEFAULT_ALIGNMENT);
    if alignment.is_power_of_two() && (8..=MAX_ALIGNMENT).contains(&alignment) {
        return Ok(alignment);
    }
    Err(format!("metadata key `general.alignment` is {alignment}: it must be a power of two from 8 to {MAX_ALIGNMENT}"))
}
