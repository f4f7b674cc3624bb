//! Maps the safetensors files of a directory: `model.safetensors`, or the shards listed in
//! `model.safetensors.index.json`.
//!
//! The [format](https://huggingface.co/docs/safetensors) is parsed by the crate `safetensors`,
//! which checks that the tensors lie without gaps, that each has the length of its shape and type,
//! and that the last one ends at the end of the file.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
    sync::Arc,
};

use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

use super::json;
use crate::{
    DType, Error, Result,
    gguf::{Map, TensorInfo, quoted},
};

const SINGLE_FILE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Maximum size of a header in bytes: ten times that of a model of 20,000 tensors. A parsed header
/// takes about fifty times its size.
const MAX_HEADER: u64 = 1 << 24;

/// Name suffixes of buffers that old checkpoints contain and that transformers ignores.
const BUFFERS: &[&str] = &[".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"];

#[derive(Deserialize)]
struct Index {
    /// File name of each tensor.
    weight_map: BTreeMap<String, String>,
}

/// Maps all tensors of the model in the directory, under their original names.
pub(super) fn tensors(directory: &Path) -> Result<Vec<TensorInfo>> {
    if directory.join(SINGLE_FILE).exists() {
        return open_shard(&directory.join(SINGLE_FILE));
    }
    let path = directory.join(INDEX);
    let Some(Index { weight_map }) = json::optional(&path, json::MAX_FIELDS)? else {
        let what = format!("contains neither {SINGLE_FILE} nor {INDEX}: save the weights as safetensors");
        return Err(Error::InvalidFile { path: directory.into(), what });
    };
    let invalid = |what| Error::InvalidFile { path: path.clone(), what };
    let mut tensors = vec![];
    let mut files = HashMap::new();
    for file in weight_map.values().collect::<BTreeSet<_>>() {
        if !is_file_name(file) {
            let what = format!("lists {}, which is not a .safetensors file in the same directory", quoted(file));
            return Err(invalid(what));
        }
        for tensor in open_shard(&directory.join(file))? {
            if let Some(other) = files.insert(tensor.name.clone(), file) {
                let what =
                    format!("tensor {} occurs in {} and in {}", quoted(&tensor.name), quoted(other), quoted(file));
                return Err(invalid(what));
            }
            tensors.push(tensor);
        }
    }
    match weight_map.iter().find(|(name, file)| !is_buffer(name) && files.get(*name) != Some(file)) {
        Some((name, file)) => Err(invalid(format!("tensor {} is missing in {}", quoted(name), quoted(file)))),
        None => Ok(tensors),
    }
}

/// Returns whether `file` is a plain file name on every operating system, without a directory or
/// drive.
fn is_file_name(file: &str) -> bool {
    file.ends_with(".safetensors") && !file.contains(['/', '\\', ':'])
}

fn is_buffer(name: &str) -> bool {
    BUFFERS.iter().any(|buffer| name.ends_with(buffer))
}

/// Maps the tensors of one file.
fn open_shard(path: &Path) -> Result<Vec<TensorInfo>> {
    let invalid = |what| Error::InvalidFile { path: path.into(), what };
    let map = Map::open(path)?;
    if map.starts_with(b"version https://git-lfs") {
        return Err(invalid("is a Git LFS pointer, not the tensors: download the tensors with `git lfs pull`".into()));
    }
    if let Some(len) = map.first_chunk().map(|len| u64::from_le_bytes(*len)).filter(|&len| len > MAX_HEADER) {
        let what =
            format!("has a header of {len} bytes, more than {MAX_HEADER}: it is damaged or not a safetensors file");
        return Err(invalid(what));
    }
    let (header, metadata) = SafeTensors::read_metadata(&map)
        .map_err(|e| invalid(format!("is truncated or not a valid safetensors file: {e}")))?;
    let data_start = size_of::<u64>() + header;
    map.done_with(0..data_start);
    let map = Arc::new(map);
    let mut tensors = vec![];
    for name in metadata.offset_keys() {
        let Some(info) = metadata.info(&name).filter(|_| !is_buffer(&name)) else { continue };
        if info.shape.contains(&0) {
            return Err(Error::tensor(name, format!("has a dimension of length 0: {:?}", info.shape)));
        }
        let dtype = dtype(&name, info.dtype)?;
        // No overflow: the crate has checked the offsets against the file size.
        let (start, end) = info.data_offsets;
        let range = data_start + start..data_start + end;
        tensors.push(TensorInfo::in_file(name, dtype, info.shape.clone(), &map, range)?);
    }
    Ok(tensors)
}

fn dtype(name: &str, dtype: Dtype) -> Result<DType> {
    match dtype {
        Dtype::F32 => Ok(DType::F32),
        Dtype::F16 => Ok(DType::F16),
        Dtype::BF16 => Ok(DType::BF16),
        other => {
            let what =
                format!("is stored as {other:?}: safetensors can be F32, F16 or BF16; use a GGUF file for other types");
            Err(Error::tensor(name, what))
        }
    }
}
