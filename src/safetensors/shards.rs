//! The files of tensors: `model.safetensors`, or the several that `model.safetensors.index.json` lists.
//!
//! The format: <https://huggingface.co/docs/safetensors>. The crate `safetensors` reads a file's header and holds its
//! tensors to the file: they lie one after the other, each as long as its shape and format say, up to the end.

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

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// The most bytes of a header, which is parsed to some fifty times as many: ten times what a model of 20,000 tensors has.
const MAX_HEADER: u64 = 1 << 24;

/// Buffers that old checkpoints hold beside the weights and that transformers does not read.
const BUFFERS: &[&str] = &[".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"];

#[derive(Deserialize)]
struct Index {
    /// The file of each tensor.
    weight_map: BTreeMap<String, String>,
}

/// Every tensor of the model in the directory, by the name that it has there.
pub(super) fn tensors(directory: &Path) -> Result<Vec<TensorInfo>> {
    if directory.join(SINGLE).exists() {
        return shard(&directory.join(SINGLE));
    }
    let path = directory.join(INDEX);
    let Some(Index { weight_map }) = json::optional(&path, json::MAX_FIELDS)? else {
        let what =
            format!("holds neither {SINGLE} nor {INDEX}: weights in other formats are to be saved as safetensors");
        return Err(Error::InvalidFile { path: directory.into(), what });
    };
    let invalid = |what| Error::InvalidFile { path: path.clone(), what };
    let mut tensors = vec![];
    let mut places = HashMap::new();
    for file in weight_map.values().collect::<BTreeSet<_>>() {
        if !is_plain(file) {
            return Err(invalid(format!("names the file {}, which is no .safetensors file beside it", quoted(file))));
        }
        for tensor in shard(&directory.join(file))? {
            if let Some(other) = places.insert(tensor.name.clone(), file) {
                let what = format!("tensor {} is in {} and in {}", quoted(&tensor.name), quoted(other), quoted(file));
                return Err(invalid(what));
            }
            tensors.push(tensor);
        }
    }
    match weight_map.iter().find(|(name, file)| !is_buffer(name) && places.get(*name) != Some(file)) {
        Some((name, file)) => Err(invalid(format!("tensor {} is not in {}", quoted(name), quoted(file)))),
        None => Ok(tensors),
    }
}

/// Whether it names a file in the index's own directory, on every system.
fn is_plain(file: &str) -> bool {
    file.ends_with(".safetensors") && !file.contains(['/', '\\', ':'])
}

fn is_buffer(name: &str) -> bool {
    BUFFERS.iter().any(|buffer| name.ends_with(buffer))
}

/// The tensors of one file.
fn shard(path: &Path) -> Result<Vec<TensorInfo>> {
    let invalid = |what| Error::InvalidFile { path: path.into(), what };
    let map = Map::open(path)?;
    if map.starts_with(b"version https://git-lfs") {
        return Err(invalid(
            "is a Git LFS pointer to the tensors, not the tensors: fetch them with `git lfs pull`".into(),
        ));
    }
    if let Some(len) = map.first_chunk().map(|len| u64::from_le_bytes(*len)).filter(|&len| len > MAX_HEADER) {
        return Err(invalid(format!("claims a header of {len} bytes, so it is damaged or no safetensors file")));
    }
    let (header, metadata) = SafeTensors::read_metadata(&map)
        .map_err(|e| invalid(format!("is no sound safetensors file, or cut off: {e}")))?;
    let start = size_of::<u64>() + header;
    map.done_with(0..start);
    let map = Arc::new(map);
    let mut tensors = vec![];
    for name in metadata.offset_keys() {
        let Some(info) = metadata.info(&name).filter(|_| !is_buffer(&name)) else { continue };
        if info.shape.contains(&0) {
            return Err(Error::tensor(name, format!("has a dimension of length 0: {:?}", info.shape)));
        }
        let dtype = dtype(&name, info.dtype)?;
        // No overflow: the crate has held the offsets to the file.
        let (begin, end) = info.data_offsets;
        tensors.push(TensorInfo::in_file(name, dtype, info.shape.clone(), &map, start + begin..start + end)?);
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
                format!("is stored as {other:?}: of safetensors, F32, F16 and BF16 are computed on; use a GGUF file");
            Err(Error::tensor(name, what))
        }
    }
}
