//! Directories of safetensors with vision encoders, one of each kind: `tests/data/vision/make.py`
//! writes the directories and the results of transformers, `tests/data/vision/llama_cpp.py` the
//! results of llama.cpp.

mod errors;
mod heads;
mod hostile;
mod prompts;
mod results;

use std::{
    fs,
    path::{Path, PathBuf},
};

use inkstone::{CacheType, Device, Image, Runner, RunnerBuilder};
use serde_json::Value;

use crate::support::{
    checkpoint::{Checkpoint, Tensor},
    data,
    tiny::nmse,
};

/// The models, each with an encoder and a projector of another kind.
const MODELS: [&str; 11] = [
    "gemma3",
    "gemma4",
    "idefics3",
    "internvl",
    "qwen2_5_vl",
    "qwen2_vl",
    "qwen3_5",
    "qwen3_5_moe",
    "qwen3_vl",
    "qwen3_vl_moe",
    "smolvlm",
];

/// A model's prompt, its images and the results.
struct Case {
    folder: PathBuf,
    info: Value,
}

impl Case {
    fn new(name: &str) -> Self {
        let folder = data("vision").join(name);
        let info = serde_json::from_slice(&fs::read(folder.join("info.json")).unwrap()).unwrap();
        Self { folder, info }
    }

    /// Returns the files of the directory, to be written elsewhere with changes.
    fn checkpoint(&self) -> Checkpoint {
        let names = fs::read_dir(&self.folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let is_json = |name: &String| name.ends_with(".json") && name != "info.json";
        let files = names.filter(is_json).map(|name| (name.clone(), fs::read(self.folder.join(name)).unwrap()));
        Checkpoint { files: files.collect(), tensors: tensors(&self.folder.join("model.safetensors")) }
    }

    fn prompt(&self) -> &str {
        self.info["prompt"].as_str().unwrap()
    }

    fn images(&self) -> Vec<Image> {
        let names = self.info["images"].as_array().unwrap().iter().map(|name| name.as_str().unwrap());
        names.map(|name| Image::open(data("vision").join(name)).unwrap()).collect()
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        let bytes = fs::read(self.folder.join(name)).unwrap();
        bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }

    /// Returns the ids of the prompt, with 0 in the place of an image's rows.
    fn ids(&self) -> Vec<u32> {
        let ids = self.info["ids"].as_array().unwrap().iter();
        ids.map(|id| id.as_u64().unwrap() as u32).collect()
    }

    fn greedy(&self, who: &str) -> Vec<u32> {
        let ids = self.info[who]["greedy"].as_array().unwrap().iter();
        ids.map(|id| id.as_u64().unwrap() as u32).collect()
    }
}

/// Reads the tensors of a safetensors file.
fn tensors(path: &Path) -> Vec<Tensor> {
    let bytes = fs::read(path).unwrap();
    let (len, rest) = bytes.split_first_chunk().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*len) as usize);
    let header: serde_json::Map<String, Value> = serde_json::from_slice(header).unwrap();
    let number = |value: &Value| value.as_u64().unwrap() as usize;
    let tensor = |(name, info): (&String, &Value)| Tensor {
        name: name.clone(),
        dtype: info["dtype"].as_str().unwrap().into(),
        shape: info["shape"].as_array().unwrap().iter().map(number).collect(),
        data: data[number(&info["data_offsets"][0])..number(&info["data_offsets"][1])].to_vec(),
    };
    header.iter().filter(|(name, _)| *name != "__metadata__").map(tensor).collect()
}

fn largest(logits: &[f32]) -> u32 {
    (0..logits.len()).fold(0, |best, id| if logits[id] > logits[best] { id } else { best }) as u32
}

fn builder() -> RunnerBuilder {
    Runner::builder().device(Device::Cpu).cache_type(CacheType::F32)
}
