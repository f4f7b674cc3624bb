//! Models in several files, `name-00001-of-00003.gguf` and so on, as llama.cpp's `gguf-split` writes them.
//!
//! In comes the first part, out come the others. The first holds the model's metadata, each of them some tensors.

use std::path::Path;

use super::{
    metadata::Metadata,
    read::{Parsed, quoted},
    shard::Part,
};
use crate::{Error, Result};

const NUMBER: &str = "split.no";
const COUNT: &str = "split.count";
const TENSOR_COUNT: &str = "split.tensors.count";

/// Keys that describe a part rather than the model.
const OWN_KEYS: &[&str] = &[NUMBER, "general.alignment"];

/// The whole model whose first part lies at `path`: that part, with what the others hold added.
pub(super) fn join(path: &Path, mut model: Part) -> Result<Part> {
    let invalid = |what| Error::InvalidFile { path: path.into(), what };
    let Some(count) = part_count(path, &model.metadata).map_err(invalid)? else { return Ok(model) };
    let stem = stem(path, 1, count).ok_or_else(|| {
        let end = suffix(1, count);
        invalid(format!("is part 1 of {count} of a model, so for the others to be found its name must end in `{end}`"))
    })?;
    for number in 2..=count {
        let path = path.with_file_name(stem.to_owned() + &suffix(number, count));
        let part = open_other(&path, number, count)?;
        model.tensors.extend(part.tensors);
        model.metadata.merge(part.metadata, OWN_KEYS).map_err(|what| Error::InvalidFile { path, what })?;
    }
    let found = model.tensors.len();
    match model.metadata.layout(TENSOR_COUNT).map_err(invalid)? {
        Some(declared) if declared != found as u64 => {
            Err(invalid(format!("`{TENSOR_COUNT}` is {declared}, but the model's {count} parts have {found} tensors")))
        }
        _ => Ok(model),
    }
}

fn open_other(path: &Path, number: u64, count: u64) -> Result<Part> {
    let invalid = |what| Error::InvalidFile { path: path.into(), what };
    if !path.exists() {
        return Err(invalid(format!("is missing: it is part {number} of {count} of the model")));
    }
    let part = Part::open(path)?;
    match place(&part.metadata).map_err(invalid)? {
        Some(place) if place == (number, count) => Ok(part),
        Some((number, count)) => Err(invalid(format!("is part {number} of {count} by its metadata, not by its name"))),
        None => Err(invalid(format!("is part {number} of {count} by its name, but not by its metadata"))),
    }
}

/// How many parts a model has, of which this must be the first; `None` where it is all in one file.
fn part_count(path: &Path, metadata: &Metadata) -> Parsed<Option<u64>> {
    match place(metadata)? {
        None => Ok(None),
        Some((1, count)) => Ok(Some(count)),
        Some((number, count)) => {
            let first = stem(path, number, count).map(|stem| quoted(&(stem.to_owned() + &suffix(1, count))));
            let first = first.map(|name| format!(", {name}")).unwrap_or_default();
            Err(format!("is part {number} of {count} of a model: open the first{first}"))
        }
    }
}

/// Which part this is, counted from 1, and of how many; `None` where it is all in one file.
fn place(metadata: &Metadata) -> Parsed<Option<(u64, u64)>> {
    match (metadata.layout(NUMBER)?, metadata.layout(COUNT)?) {
        (_, None | Some(0 | 1)) => Ok(None),
        (Some(index), Some(count)) if index < count => Ok(Some((index + 1, count))),
        (Some(index), Some(count)) => Err(format!("`{NUMBER}` is {index}, but `{COUNT}` is {count}")),
        (None, Some(count)) => Err(format!("`{COUNT}` is {count}, but there is no `{NUMBER}`")),
    }
}

/// What the name of a part ends in.
fn suffix(number: u64, count: u64) -> String {
    format!("-{number:05}-of-{count:05}.gguf")
}

/// The part of the file's name that all parts share.
fn stem(path: &Path, number: u64, count: u64) -> Option<&str> {
    path.file_name()?.to_str()?.strip_suffix(&suffix(number, count))
}
