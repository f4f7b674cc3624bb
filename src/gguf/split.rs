//! Joins the shards of a split model, `name-00001-of-00003.gguf` and so on, as llama.cpp's
//! `gguf-split` writes them.
//!
//! The first shard holds the model's metadata; every shard holds some of the tensors.

use std::{fmt, path::Path};

use super::{
    Fault,
    metadata::Metadata,
    read::{Parsed, quoted},
    shard::Shard,
};
use crate::{Error, Result};

const INDEX_KEY: &str = "split.no";
const COUNT_KEY: &str = "split.count";
const TENSOR_COUNT_KEY: &str = "split.tensors.count";

/// Keys that describe a single shard, not the model.
const PER_SHARD_KEYS: &[&str] = &[INDEX_KEY, "general.alignment"];

/// Position of a shard in its model, counted from 1.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ShardNumber {
    number: u64,
    count: u64,
}

impl ShardNumber {
    /// Reads the position from the metadata of a file. Returns `None` for a model in a single file.
    fn read(metadata: &Metadata) -> Parsed<Option<Self>> {
        match (metadata.file_integer(INDEX_KEY)?, metadata.file_integer(COUNT_KEY)?) {
            (_, None | Some(0 | 1)) => Ok(None),
            (Some(index), Some(count)) if index < count => Ok(Some(Self { number: index + 1, count })),
            (Some(index), Some(count)) => {
                Err(format!("`{INDEX_KEY}` is {index}: it must be less than `{COUNT_KEY}`, which is {count}"))
            }
            (None, Some(count)) => Err(format!("`{COUNT_KEY}` is {count}, but `{INDEX_KEY}` is missing")),
        }
    }

    /// Returns the end of the shard's file name.
    fn suffix(self) -> String {
        format!("-{:05}-of-{:05}.gguf", self.number, self.count)
    }

    /// Returns the beginning of the file name, which all shards share, or `None` if the name does
    /// not end in [`suffix`](Self::suffix).
    fn stem(self, path: &Path) -> Option<&str> {
        path.file_name()?.to_str()?.strip_suffix(&self.suffix())
    }
}

impl fmt::Display for ShardNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {} of {}", self.number, self.count)
    }
}

/// Returns the whole model whose first shard lies at `path`: `model`, which is that shard, with the
/// metadata, tensors and faults of all other shards added. A model in a single file is returned
/// unchanged.
pub(super) fn join(path: &Path, mut model: Shard) -> Shard {
    if let Err(error) = add_shards(path, &mut model) {
        model.faults.push(Fault::of_file(error));
    }
    model
}

fn add_shards(path: &Path, model: &mut Shard) -> Result<()> {
    let invalid = |what| Error::InvalidFile { path: path.into(), what };
    let Some(first) = first_of_several(path, &model.metadata).map_err(invalid)? else { return Ok(()) };
    let count = first.count;
    let stem = first.stem(path).ok_or_else(|| {
        let suffix = first.suffix();
        invalid(format!("is {first} of a model: rename it to end in `{suffix}`, so that the other shards are found"))
    })?;
    for number in 2..=count {
        let expected = ShardNumber { number, count };
        let path = path.with_file_name(stem.to_owned() + &expected.suffix());
        if !path.exists() {
            let what = format!("is missing: it is {expected} of the model");
            model.faults.push(Fault::of_file(Error::InvalidFile { path, what }));
            continue;
        }
        let shard = open_shard(&path, expected)?;
        model.tensors.extend(shard.tensors);
        model.faults.extend(shard.faults);
        model.metadata.merge(shard.metadata, PER_SHARD_KEYS).map_err(|what| Error::InvalidFile { path, what })?;
    }
    let found = model.tensors.len();
    match model.metadata.file_integer(TENSOR_COUNT_KEY).map_err(invalid)? {
        Some(declared) if declared != found as u64 && model.faults.is_empty() => {
            Err(invalid(format!("`{TENSOR_COUNT_KEY}` is {declared}, but the {count} shards have {found} tensors")))
        }
        _ => Ok(()),
    }
}

fn open_shard(path: &Path, expected: ShardNumber) -> Result<Shard> {
    let invalid = |what| Error::InvalidFile { path: path.into(), what };
    let shard = Shard::open(path)?;
    match ShardNumber::read(&shard.metadata).map_err(invalid)? {
        Some(found) if found == expected => Ok(shard),
        Some(found) => Err(invalid(format!("is {expected} by its name, but {found} by its metadata"))),
        None => Err(invalid(format!("is {expected} by its name, but its metadata has no `{COUNT_KEY}`"))),
    }
}

/// Returns the position of a file that must be the first shard, or `None` for a model in a single
/// file.
fn first_of_several(path: &Path, metadata: &Metadata) -> Parsed<Option<ShardNumber>> {
    match ShardNumber::read(metadata)? {
        Some(shard) if shard.number != 1 => {
            let first = ShardNumber { number: 1, ..shard };
            let name = shard.stem(path).map(|stem| quoted(&(stem.to_owned() + &first.suffix())));
            let name = name.map(|name| format!(", {name}")).unwrap_or_default();
            Err(format!("is {shard} of a model: open the first shard{name}"))
        }
        first => Ok(first),
    }
}
