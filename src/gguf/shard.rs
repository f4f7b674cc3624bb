//! Maps one GGUF file and checks it from its first byte to the end of its last tensor.
//!
//! Files that are not GGUF version 2 or 3, little-endian, are refused with a message for each case.

use std::{path::Path, sync::Arc};

use super::{
    Fault, TensorInfo,
    map::Map,
    metadata::Metadata,
    read::{ByteReader, Parsed, ReadElement},
    table::{TableFault, TensorTable},
};
use crate::{Error, Result};

/// The first four bytes of every GGUF file.
const MAGIC: &[u8] = b"GGUF";

/// The first four bytes of files of ggml before GGUF, which read `ggml`, `ggmf` and `ggjt` as
/// little-endian numbers.
const OLD_MAGICS: [&[u8]; 3] = [b"lmgg", b"fmgg", b"tjgg"];

/// Alignment of tensor data in bytes if the key `general.alignment` is absent.
const DEFAULT_ALIGNMENT: u64 = 32;

/// Maximum `general.alignment` in bytes. Real files have 32 to 4096.
const MAX_ALIGNMENT: u64 = 1 << 20;

/// The content of a GGUF file: a whole model, or one shard of a split model.
pub(super) struct Shard {
    pub(super) version: u32,
    pub(super) metadata: Metadata,
    pub(super) tensors: Vec<TensorInfo>,
    pub(super) faults: Vec<Fault>,
}

impl Shard {
    /// Maps the file at `path` and checks it.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read, [`Error::InvalidFile`] if its header is not that
    /// of a GGUF file.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let map = Map::open(path)?;
        let invalid = |what| Error::InvalidFile { path: path.into(), what };
        Self::parse(map, &invalid).map_err(invalid)
    }

    fn parse(map: Map, invalid: &dyn Fn(String) -> Error) -> Parsed<Self> {
        check_magic(&map)?;
        let mut reader = ByteReader::new(&map);
        let _magic: u32 = read_header(&mut reader)?;
        let version = read_header(&mut reader)?;
        check_version(version)?;
        let (tensor_count, key_count) = (read_header(&mut reader)?, read_header(&mut reader)?);
        let metadata = Metadata::read(&mut reader, key_count)?;
        let alignment = alignment(&metadata)?;
        let table = TensorTable::read(&mut reader, tensor_count)?;
        // No overflow: a position is at most `isize::MAX`, the size of the largest mapping.
        let data_start = reader.position().next_multiple_of(alignment as usize);
        // The header was copied to owned values.
        map.done_with(0..reader.position());
        let (tensors, faults) = table.resolve(&Arc::new(map), data_start, alignment);
        let fault = |TableFault { kind, what, tensors }| Fault { kind, error: invalid(what), tensors };
        let faults = faults.into_iter().map(fault).collect();
        Ok(Self { version, metadata, tensors, faults })
    }
}

/// Reads the next number of the file's header.
fn read_header<T: ReadElement>(reader: &mut ByteReader) -> Parsed<T> {
    reader.read().map_err(|what| format!("the header {what}"))
}

fn check_magic(bytes: &[u8]) -> Parsed<()> {
    if bytes.starts_with(MAGIC) {
        return Ok(());
    }
    if bytes.starts_with(b"version https://git-lfs") {
        return Err("is a Git LFS pointer, not the model: download the model with `git lfs pull`".into());
    }
    if OLD_MAGICS.iter().any(|magic| bytes.starts_with(magic)) {
        return Err("is a file of whisper.cpp, or of llama.cpp before GGUF: convert the original model to GGUF".into());
    }
    if bytes.starts_with(b"PK\x03\x04") {
        return Err("is a zip archive, perhaps a PyTorch checkpoint: convert the model to GGUF or safetensors".into());
    }
    let start = &bytes[..bytes.len().min(MAGIC.len())];
    Err(format!("is not a GGUF file: it starts with \"{}\" instead of \"GGUF\"", start.escape_ascii()))
}

fn check_version(version: u32) -> Parsed<()> {
    match version {
        2 | 3 => Ok(()),
        1 => Err("has GGUF version 1, which is obsolete: convert the original model again".into()),
        _ if (1..=3).contains(&version.swap_bytes()) => {
            Err("is a big-endian GGUF file: convert it with gguf-py's `gguf_convert_endian`".into())
        }
        _ => Err(format!("has GGUF version {version}: versions 2 and 3 are supported")),
    }
}

fn alignment(metadata: &Metadata) -> Parsed<u64> {
    let alignment = metadata.file_integer("general.alignment")?.unwrap_or(DEFAULT_ALIGNMENT);
    if alignment.is_power_of_two() && (8..=MAX_ALIGNMENT).contains(&alignment) {
        return Ok(alignment);
    }
    Err(format!("metadata key `general.alignment` is {alignment}: it must be a power of two from 8 to {MAX_ALIGNMENT}"))
}
