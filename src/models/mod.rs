//! The model families: how each is wired.
//!
//! In: a file's metadata and the names, shapes and formats of its tensors. Out: a [`Model`], that is its [`Config`] and
//! the [`Graph`] of one step. A family is one file and one row of the table below; every such file has a `build`,
//! and what it shares with others is in `block` and `wiring`. Families use the plain ops only: what may be fused is the
//! optimizer's to find. Nothing here knows what will run the graph.

mod block;
mod checkpoint;
mod config;
mod experts;
mod gemma;
mod gemma2;
mod gemma3;
mod gemma4;
mod gemma4_layers;
mod granite;
mod keys;
mod llama;
mod phi3;
mod qwen2;
mod qwen3;
mod qwen35;
mod qwen35_moe;
mod qwen3_moe;
mod rope;
mod smollm3;
mod wiring;

use std::collections::HashSet;

use checkpoint::Checkpoint;
pub use checkpoint::open;
#[cfg(feature = "safetensors")]
pub(crate) use checkpoint::open_directory;
pub use config::{Config, LayerConfig};
pub use experts::Experts;
use keys::Keys;
pub use rope::{RopeConfig, RopeScaling};
use wiring::Wiring;

use crate::{
    Error, Result,
    gguf::Gguf,
    graph::{Graph, Source},
    weights::Weights,
};

/// A family that this crate builds.
#[derive(Debug)]
#[non_exhaustive]
pub struct Family {
    /// `general.architecture` in the file.
    pub architecture: &'static str,
    /// The models that are of it.
    pub models: &'static str,
    /// Reads the config, and wires a step's graph up to the logits.
    build: fn(&Keys, Wiring) -> Result<Model>,
    /// How transformers stores its models, where that is known here: some under several names, in several ways.
    checkpoints: &'static [&'static Checkpoint],
}

impl Family {
    /// The `model_type`s in the `config.json` of directories of safetensors that are of it.
    pub fn model_types(&self) -> impl Iterator<Item = &'static str> {
        self.checkpoints.iter().flat_map(|checkpoint| checkpoint.model_types).copied()
    }

    fn model(&self, gguf: &Gguf, weights: &Weights, positions: usize) -> Result<Model> {
        let keys = Keys::new(gguf, positions)?;
        let model = (self.build)(&keys, Wiring::new(weights))?;
        keys.refuse_unread()?;
        refuse_unused(gguf, &model)?;
        Ok(model)
    }
}

/// Every family.
#[rustfmt::skip]
pub const FAMILIES: &[Family] = &[
    Family { architecture: "gemma", models: "Gemma, the first", build: gemma::build, checkpoints: &[&gemma::CHECKPOINT] },
    Family { architecture: "gemma2", models: "Gemma 2", build: gemma2::build, checkpoints: &[&gemma2::CHECKPOINT] },
    Family { architecture: "gemma3", models: "Gemma 3, text", build: gemma3::build, checkpoints: &[&gemma3::CHECKPOINT] },
    Family { architecture: "gemma4", models: "Gemma 4, text", build: gemma4::build, checkpoints: &[&gemma4::CHECKPOINT] },
    Family { architecture: "granite", models: "Granite 3, dense", build: granite::build, checkpoints: &[&granite::CHECKPOINT] },
    Family { architecture: "llama", models: "Llama, Mistral, Mixtral and what is wired like them", build: llama::build, checkpoints: &[&llama::CHECKPOINT, &llama::MIXTRAL] },
    Family { architecture: "phi3", models: "Phi-3, Phi-3.5 and Phi-4", build: phi3::build, checkpoints: &[&phi3::CHECKPOINT] },
    Family { architecture: "qwen2", models: "Qwen2, Qwen2.5", build: qwen2::build, checkpoints: &[&qwen2::CHECKPOINT] },
    Family { architecture: "qwen3", models: "Qwen3, dense", build: qwen3::build, checkpoints: &[&qwen3::CHECKPOINT] },
    Family { architecture: "qwen35", models: "Qwen3.5, dense, text", build: qwen35::build, checkpoints: &[&qwen35::CHECKPOINT] },
    Family { architecture: "qwen35moe", models: "Qwen3.5 with experts, text", build: qwen35_moe::build, checkpoints: &[&qwen35_moe::CHECKPOINT] },
    Family { architecture: "qwen3moe", models: "Qwen3 with experts", build: qwen3_moe::build, checkpoints: &[&qwen3_moe::CHECKPOINT] },
    Family { architecture: "smollm3", models: "SmolLM3", build: smollm3::build, checkpoints: &[&smollm3::CHECKPOINT] },
];

/// The other architectures that llama.cpp's converter writes (`MODEL_ARCH_NAMES` of gguf-py 0.17).
#[rustfmt::skip]
const KNOWN: &[&str] = &[
    "clip", "llama4", "deci", "falcon", "baichuan", "grok", "gpt2", "gptj", "gptneox", "mpt", "starcoder", "refact",
    "bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3", "eurobert",
    "bloom", "stablelm", "qwen", "qwen2moe", "qwen2vl", "qwen3next", "qwen3vl", "qwen3vlmoe",
    "phi2", "phimoe", "plamo", "plamo2", "plamo3", "codeshell", "orion", "internlm2",
    "minicpm", "minicpm3", "gemma3n", "gemma-embedding", "starcoder2", "rwkv6",
    "rwkv6qwen2", "rwkv7", "arwkv7", "mamba", "mamba2", "jamba", "xverse", "command-r", "cohere2", "dbrx", "olmo",
    "olmo2", "olmoe", "openelm", "arctic", "deepseek", "deepseek2", "deepseek2-ocr", "chatglm", "glm4", "glm4moe",
    "glm-dsa", "bitnet", "t5", "t5encoder", "jais", "jais2", "nemotron", "nemotron_h", "nemotron_h_moe", "exaone",
    "exaone4", "exaone-moe", "granitemoe", "granitehybrid", "chameleon", "wavtokenizer-dec", "plm",
    "bailingmoe", "bailingmoe2", "dots1", "arcee", "afmoe", "ernie4_5", "ernie4_5-moe", "falcon-h1", "hunyuan-moe",
    "hunyuan-dense", "hunyuan_vl", "gpt-oss", "lfm2", "lfm2moe", "dream", "smallthinker", "llada",
    "llada-moe", "seed_oss", "grovemoe", "apertus", "minimax-m2", "cogvlm", "rnd1", "pangu-embedded", "mistral3",
    "mistral4", "paddleocr", "mimo2", "step35", "llama-embed", "maincoder", "kimi-linear",
];

/// A model as its file describes it.
#[derive(Clone, Debug)]
pub struct Model {
    /// Its sizes and constants.
    pub config: Config,
    /// The computation of one step, of plain ops.
    pub graph: Graph,
}

impl Model {
    /// Reads the config and wires the graph; reads no weight. `weights` are those of the file.
    ///
    /// # Errors
    /// [`Error::Architecture`] for a family that is not built, [`Error::Metadata`] for a key that is missing or out of
    /// its range, [`Error::Tensor`] for a tensor that is missing, of another shape than the config says, in a format
    /// that is not computed on, or that the family has no use for. Of a directory, [`Error::InvalidFile`] names the setting
    /// in `config.json` that a key comes from.
    pub fn from_gguf(gguf: &Gguf, weights: &Weights) -> Result<Self> {
        Self::for_positions(gguf, weights, usize::MAX)
    }

    /// As [`from_gguf`](Self::from_gguf) for sequences of no more than so many `positions`, and than the model was trained
    /// for: models that were stretched to a longer context by LongRoPE encode positions in one way within the context that
    /// they had before, and in another where a sequence may be longer.
    ///
    /// # Errors
    /// As there.
    pub fn for_positions(gguf: &Gguf, weights: &Weights, positions: usize) -> Result<Self> {
        let name = gguf.architecture()?;
        let family = FAMILIES.iter().find(|family| family.architecture == name).ok_or_else(|| {
            let supported: Vec<_> = FAMILIES.iter().map(|family| family.architecture).collect();
            unbuilt(name, &supported)
        })?;
        family.model(gguf, weights, positions).map_err(|error| match gguf.version() {
            Some(_) => error,
            None => checkpoint::reword(family, gguf.path(), error),
        })
    }
}

/// A model that is computed without some of its tensors would be another model.
fn refuse_unused(gguf: &Gguf, model: &Model) -> Result<()> {
    let used: HashSet<&str> = model
        .graph
        .values()
        .iter()
        .filter_map(|value| match &value.source {
            Source::Weight { slice, .. } => Some(&*slice.name),
            Source::Tokens | Source::Constant(_) | Source::Node { .. } => None,
        })
        .collect();
    let left_out = |name: &str| model.config.left_out.iter().any(|start| name.starts_with(start));
    match gguf.tensors().iter().find(|tensor| !used.contains(tensor.name.as_str()) && !left_out(&tensor.name)) {
        Some(unused) => {
            let what = "is in the file, but this architecture as it is built here has no use for it";
            Err(Error::tensor(&unused.name, what))
        }
        None => Ok(()),
    }
}

/// `name` is none of the `supported` ones.
fn unbuilt(name: &str, supported: &[&str]) -> Error {
    // transformers writes `qwen3_moe` where GGUF has `qwen3moe`.
    let plain = |name: &str| name.replace(['_', '-'], "");
    let names = FAMILIES.iter().map(|family| family.architecture).chain(KNOWN.iter().copied());
    let known = names.into_iter().any(|known| plain(known) == plain(name));
    Error::Architecture { name: name.into(), known, supported: supported.join(", ") }
}
