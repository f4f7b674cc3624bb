//! Builds the graph of each model family.
//!
//! The input is a file's metadata and the names, shapes and formats of its tensors; the output is a
//! [`Model`]: its [`Config`] and the [`Graph`] of one step. A family is one file with a `build`
//! function and one row of [`FAMILIES`]. Code that several families share is in `block` (a layer)
//! and `model_builder` (parts of a layer). Families use plain ops only: the optimizer fuses them.
//! Nothing here depends on the backend that will run the graph.

mod arcee;
mod block;
mod checkpoint;
mod cohere2;
mod command_r;
mod config;
mod content;
mod deepseek2;
mod ernie4_5;
mod exaone4;
mod experts;
mod falcon_h1;
mod gemma;
mod gemma2;
mod gemma3;
mod gemma3n;
mod gemma4;
mod gemma4_layers;
mod glm4;
mod glm4_moe;
mod gpt_oss;
mod granite;
mod hunyuan;
mod internlm2;
mod keys;
mod lfm2;
mod llama;
mod llama4;
mod mamba;
mod minimax_m2;
mod mistral3;
mod mixture;
mod model_builder;
mod mtp;
mod muse_glimmer;
mod nanbeige;
mod nemotron_h;
mod olmo2;
mod phi2;
mod phi3;
mod qwen2;
mod qwen2_moe;
mod qwen2_vl;
mod qwen3;
mod qwen35;
mod qwen35_moe;
mod qwen3_moe;
mod qwen3_next;
mod qwen3_vl;
mod rope;
mod seed_oss;
mod smollm3;
mod stablelm;
mod starcoder2;
mod streams;
pub mod vision;

use std::collections::HashSet;

use checkpoint::Checkpoint;
#[cfg(feature = "safetensors")]
pub(crate) use checkpoint::open_directory;
pub use checkpoint::{open, open_encoder};
pub use config::{Config, LayerConfig, NormKind, Temperature};
pub use content::FileContent;
pub use experts::{Experts, SharedExpert};
use keys::Keys;
use model_builder::ModelBuilder;
pub use mtp::{is_only_head, join_head};
pub use rope::{RopeConfig, RopeScaling};
use vision::ImageInputs;

use crate::{
    Error, Result,
    gguf::{Gguf, Origin},
    graph::{Graph, Source},
    weights::Weights,
};

/// A family of models that this crate runs.
#[derive(Debug)]
#[non_exhaustive]
pub struct Family {
    /// The family's name in GGUF files, `general.architecture`.
    pub architecture: &'static str,
    /// The names of the family's models, for readers.
    pub models: &'static str,
    /// Reads the config, and builds a step's graph up to the logits.
    build: fn(&Keys, ModelBuilder) -> Result<Model>,
    /// The formats in which transformers stores models of the family.
    checkpoints: &'static [&'static Checkpoint],
}

impl Family {
    /// Returns the values of `model_type` in `config.json` that directories of safetensors of this
    /// family have.
    pub fn model_types(&self) -> impl Iterator<Item = &'static str> {
        self.checkpoints.iter().flat_map(|checkpoint| checkpoint.model_types).copied()
    }

    /// Returns the family of a file's architecture.
    ///
    /// # Errors
    /// [`Error::Architecture`] if it is not supported, [`Error::Metadata`] if the file names none.
    pub fn of(gguf: &Gguf) -> Result<&'static Self> {
        let name = gguf.architecture()?;
        FAMILIES.iter().find(|family| family.architecture == name).ok_or_else(|| {
            let supported: Vec<_> = FAMILIES.iter().map(|family| family.architecture).collect();
            unsupported(name, &supported)
        })
    }

    fn model(&self, gguf: &Gguf, weights: &Weights, positions: usize, images: Option<ImageInputs>) -> Result<Model> {
        let keys = Keys::new(gguf, positions, images)?;
        let model = (self.build)(&keys, ModelBuilder::new(weights, images))?;
        if let Some(images) = images {
            images.check(gguf, &model.config)?;
        }
        keys.refuse_unhandled_keys()?;
        Ok(model)
    }
}

/// All families.
#[rustfmt::skip]
pub const FAMILIES: &[Family] = &[
    Family { architecture: "arcee", models: "Arcee AFM", build: arcee::build, checkpoints: &[&arcee::CHECKPOINT] },
    Family { architecture: "cohere2", models: "Command R7B, Command A", build: cohere2::build, checkpoints: &[&cohere2::CHECKPOINT] },
    Family { architecture: "command-r", models: "Command R, Command R+", build: command_r::build, checkpoints: &[&command_r::CHECKPOINT] },
    Family { architecture: "deepseek2", models: "DeepSeek-V2, V3 and R1, Kimi K2, GLM-4.7-Flash", build: deepseek2::build, checkpoints: &[] },
    Family { architecture: "ernie4_5", models: "ERNIE 4.5, dense", build: ernie4_5::build, checkpoints: &[&ernie4_5::CHECKPOINT] },
    Family { architecture: "ernie4_5-moe", models: "ERNIE 4.5 with experts", build: ernie4_5::build_moe, checkpoints: &[] },
    Family { architecture: "exaone4", models: "EXAONE 4", build: exaone4::build, checkpoints: &[&exaone4::CHECKPOINT] },
    Family { architecture: "falcon-h1", models: "Falcon-H1", build: falcon_h1::build, checkpoints: &[] },
    Family { architecture: "gemma", models: "Gemma (1)", build: gemma::build, checkpoints: &[&gemma::CHECKPOINT] },
    Family { architecture: "gemma2", models: "Gemma 2", build: gemma2::build, checkpoints: &[&gemma2::CHECKPOINT] },
    Family { architecture: "gemma3", models: "Gemma 3, text", build: gemma3::build, checkpoints: &[&gemma3::CHECKPOINT] },
    Family { architecture: "gemma3n", models: "Gemma 3n, text", build: gemma3n::build, checkpoints: &[] },
    Family { architecture: "gemma4", models: "Gemma 4, text", build: gemma4::build, checkpoints: &[&gemma4::CHECKPOINT] },
    Family { architecture: "glm4", models: "GLM-4 of 2025", build: glm4::build, checkpoints: &[&glm4::CHECKPOINT] },
    Family { architecture: "glm4moe", models: "GLM-4.5, GLM-4.6", build: glm4_moe::build, checkpoints: &[&glm4_moe::CHECKPOINT] },
    Family { architecture: "gpt-oss", models: "gpt-oss", build: gpt_oss::build, checkpoints: &[] },
    Family { architecture: "granite", models: "Granite 3, dense", build: granite::build, checkpoints: &[&granite::CHECKPOINT] },
    Family { architecture: "granitehybrid", models: "Granite 4", build: granite::build_hybrid, checkpoints: &[] },
    Family { architecture: "granitemoe", models: "Granite 3 with experts", build: granite::build_moe, checkpoints: &[] },
    Family { architecture: "hunyuan-dense", models: "Hunyuan, dense", build: hunyuan::build, checkpoints: &[&hunyuan::CHECKPOINT] },
    Family { architecture: "hunyuan-moe", models: "Hunyuan with experts", build: hunyuan::build_moe, checkpoints: &[] },
    Family { architecture: "internlm2", models: "InternLM2, InternLM2.5", build: internlm2::build, checkpoints: &[] },
    Family { architecture: "lfm2", models: "LFM2", build: lfm2::build, checkpoints: &[] },
    Family { architecture: "lfm2moe", models: "LFM2 with experts", build: lfm2::build_moe, checkpoints: &[] },
    Family { architecture: "llama", models: "Llama, Mistral, Mixtral and models of the same architecture", build: llama::build, checkpoints: &[&llama::CHECKPOINT, &llama::MIXTRAL] },
    Family { architecture: "llama4", models: "Llama 4, text", build: llama4::build, checkpoints: &[] },
    Family { architecture: "minimax-m2", models: "MiniMax-M2", build: minimax_m2::build, checkpoints: &[] },
    Family { architecture: "mistral3", models: "Ministral 3", build: mistral3::build, checkpoints: &[] },
    Family { architecture: "muse-glimmer", models: "Muse Glimmer", build: muse_glimmer::build, checkpoints: &[] },
    Family { architecture: "nanbeige", models: "Nanbeige", build: nanbeige::build, checkpoints: &[] },
    Family { architecture: "nemotron_h", models: "Nemotron-H, Nemotron Nano 2", build: nemotron_h::build, checkpoints: &[] },
    Family { architecture: "nemotron_h_moe", models: "Nemotron 3 with experts", build: nemotron_h::build_moe, checkpoints: &[] },
    Family { architecture: "olmo2", models: "OLMo 2, OLMo 3", build: olmo2::build, checkpoints: &[&olmo2::CHECKPOINT] },
    Family { architecture: "phi2", models: "Phi-1, Phi-1.5, Phi-2", build: phi2::build, checkpoints: &[&phi2::CHECKPOINT] },
    Family { architecture: "phi3", models: "Phi-3, Phi-3.5 and Phi-4", build: phi3::build, checkpoints: &[&phi3::CHECKPOINT] },
    Family { architecture: "qwen2", models: "Qwen2, Qwen2.5", build: qwen2::build, checkpoints: &[&qwen2::CHECKPOINT] },
    Family { architecture: "qwen2moe", models: "Qwen1.5 and Qwen2 with experts", build: qwen2_moe::build, checkpoints: &[&qwen2_moe::CHECKPOINT] },
    Family { architecture: "qwen2vl", models: "Qwen2-VL, Qwen2.5-VL", build: qwen2_vl::build, checkpoints: &[&qwen2_vl::CHECKPOINT] },
    Family { architecture: "qwen3", models: "Qwen3, dense", build: qwen3::build, checkpoints: &[&qwen3::CHECKPOINT] },
    Family { architecture: "qwen35", models: "Qwen3.5, dense", build: qwen35::build, checkpoints: &[&qwen35::CHECKPOINT] },
    Family { architecture: "qwen35moe", models: "Qwen3.5 with experts", build: qwen35_moe::build, checkpoints: &[&qwen35_moe::CHECKPOINT] },
    Family { architecture: "qwen3moe", models: "Qwen3 with experts", build: qwen3_moe::build, checkpoints: &[&qwen3_moe::CHECKPOINT] },
    Family { architecture: "qwen3next", models: "Qwen3-Next", build: qwen3_next::build, checkpoints: &[] },
    Family { architecture: "qwen3vl", models: "Qwen3-VL, dense", build: qwen3_vl::build, checkpoints: &[&qwen3_vl::CHECKPOINT] },
    Family { architecture: "qwen3vlmoe", models: "Qwen3-VL with experts", build: qwen3_vl::build_moe, checkpoints: &[&qwen3_vl::CHECKPOINT_MOE] },
    Family { architecture: "seed_oss", models: "Seed-OSS", build: seed_oss::build, checkpoints: &[&seed_oss::CHECKPOINT] },
    Family { architecture: "smollm3", models: "SmolLM3", build: smollm3::build, checkpoints: &[&smollm3::CHECKPOINT] },
    Family { architecture: "stablelm", models: "StableLM 2", build: stablelm::build, checkpoints: &[&stablelm::CHECKPOINT] },
    Family { architecture: "starcoder2", models: "StarCoder2", build: starcoder2::build, checkpoints: &[&starcoder2::CHECKPOINT] },
];

/// The architectures without a family here that llama.cpp's converter writes (`MODEL_ARCH_NAMES` of
/// gguf-py 0.17 and `llama-arch.cpp`), so that an error can tell them from misspelt names.
#[rustfmt::skip]
const UNSUPPORTED: &[&str] = &[
    "clip", "deci", "falcon", "baichuan", "grok", "gpt2", "gptj", "gptneox", "mpt", "starcoder", "refact",
    "bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2", "jina-bert-v3", "eurobert",
    "bloom", "qwen", 
    "phimoe", "plamo", "plamo2", "plamo3", "codeshell", "orion", 
    "minicpm", "minicpm3", "gemma-embedding", "rwkv6",
    "rwkv6qwen2", "rwkv7", "arwkv7", "mamba", "mamba2", "jamba", "xverse", "dbrx", "olmo",
    "olmoe", "openelm", "arctic", "deepseek", "deepseek2-ocr", "chatglm", 
    "glm-dsa", "bitnet", "t5", "t5encoder", "jais", "jais2", "nemotron", "exaone",
    "exaone-moe", "chameleon", "wavtokenizer-dec", "plm",
    "bailingmoe", "bailingmoe2", "dots1", "afmoe", 
    "hunyuan_vl", "dream", "smallthinker", "llada",
    "llada-moe", "grovemoe", "apertus", "cogvlm", "rnd1", "pangu-embedded", 
    "mistral4", "paddleocr", "mimo2", "step35", "llama-embed", "maincoder", "kimi-linear",
    "bailingmoe3", "clef", "cohere2moe", "deepseek32", "deepseek4", "dflash", "dots3note", "eagle3", "gemma4-assistant",
    "glm5-next", "granite_swa", "graniteswitch", "hrm_text", "hy_v3", "hy_v4", "kimi-k3", "laguna", "maple", "mellum",
    "minimax-01", "minimax-m3", "muse-glimmer", "nanbeige", "pockettts", "qwen3tts", "qwen4exp", "spark2_5", "talkie",
];

/// A model's config and graph.
#[derive(Clone, Debug)]
pub struct Model {
    /// The sizes and constants.
    pub config: Config,
    /// The computation of one step, in plain ops.
    pub graph: Graph,
    /// The head for multi-token prediction, if the file has one that this crate runs
    /// ([Gloeckle et al. 2024](https://arxiv.org/abs/2404.19737), [DeepSeek-AI
    /// 2024](https://arxiv.org/abs/2412.19437)): a graph that takes a token of each position and
    /// [`Graph::hidden`] of the position before, and predicts the token after it. Its own hidden
    /// rows, of its outputs, take the place of the model's for the next prediction.
    pub mtp: Option<Graph>,
}

impl Model {
    /// Reads the config and builds the graph. `weights` are the tensors of the same file; only
    /// their names, shapes and formats are read.
    ///
    /// # Errors
    /// - [`Error::Architecture`] for a family that is not supported.
    /// - [`Error::Metadata`] for a key that is missing or out of its range. For a directory of
    ///   safetensors, [`Error::InvalidFile`] names the setting of `config.json` instead.
    /// - [`Error::Tensor`] for a tensor that is missing, is unused, has another shape than the
    ///   config says, or is in a format without kernels.
    pub fn from_gguf(gguf: &Gguf, weights: &Weights) -> Result<Self> {
        Self::for_positions(gguf, weights, usize::MAX, None)
    }

    /// Reads the config and builds the graph like [`from_gguf`](Self::from_gguf), for sequences of
    /// at most `positions` positions. Models with LongRoPE encode positions in one way if sequences
    /// stay within the context length before stretching, and in another way if they may be longer.
    /// `images` describes the rows of images that the graph takes in the place of tokens.
    ///
    /// # Errors
    /// As [`from_gguf`](Self::from_gguf); [`Error::Argument`] for images whose rows are not as wide
    /// as the model takes them.
    pub fn for_positions(
        gguf: &Gguf,
        weights: &Weights,
        positions: usize,
        images: Option<ImageInputs>,
    ) -> Result<Self> {
        let family = Family::of(gguf)?;
        let build = || {
            let model = family.model(gguf, weights, positions, images)?;
            refuse_unused(&model.unused(gguf))?;
            Ok(model)
        };
        build().map_err(|error| match gguf.origin() {
            Origin::File { .. } => error,
            Origin::Directory => checkpoint::reword(family, gguf, error),
        })
    }

    /// Builds the graph like [`for_positions`](Self::for_positions) for text alone, and returns the
    /// names of tensors that it does not read instead of refusing them.
    ///
    /// # Errors
    /// As [`from_gguf`](Self::from_gguf).
    pub(crate) fn with_unused(gguf: &Gguf, weights: &Weights, positions: usize) -> Result<(Self, Vec<String>)> {
        let model = Family::of(gguf)?.model(gguf, weights, positions, None)?;
        let unused = model.unused(gguf).into_iter().map(str::to_owned).collect();
        Ok((model, unused))
    }

    /// Returns the tensors of a file that the graphs do not read, although they should.
    fn unused<'g>(&self, gguf: &'g Gguf) -> Vec<&'g str> {
        let left_out = |name: &str| self.config.left_out.iter().any(|prefix| name.starts_with(prefix));
        unused_tensors(gguf, [&self.graph].into_iter().chain(&self.mtp), left_out)
    }
}

/// Returns the names of tensors that the graphs do not read, besides those for which `left_out`
/// returns true.
fn unused_tensors<'a, 'g>(
    gguf: &'g Gguf,
    graphs: impl IntoIterator<Item = &'a Graph>,
    left_out: impl Fn(&str) -> bool,
) -> Vec<&'g str> {
    let used: HashSet<&str> = graphs
        .into_iter()
        .flat_map(Graph::values)
        .filter_map(|value| match &value.source {
            Source::Weight { slice, .. } => Some(&*slice.name),
            Source::Tokens | Source::Constant(_) | Source::Node { .. } => None,
        })
        .collect();
    // Files in NVFP4 have scales for quantizing activations to that format, which are not needed
    // where activations have more bits.
    let is_unused = |name: &str| !used.contains(name) && !left_out(name) && !name.ends_with(".input_scale");
    gguf.tensors().iter().map(|tensor| tensor.name.as_str()).filter(|name| is_unused(name)).collect()
}

/// Refuses a file with `unused` tensors: without them, another model would be computed.
pub(crate) fn refuse_unused(unused: &[impl AsRef<str>]) -> Result<()> {
    unused.first().map_or(Ok(()), |tensor| {
        let what = "is in the file, but this architecture has no use for it: the file may be of a variant that is not \
                    supported";
        Err(Error::tensor(tensor.as_ref(), what))
    })
}

/// Returns the error for an architecture, or a `model_type`, that is not one of the `supported`
/// ones.
fn unsupported(name: &str, supported: &[&str]) -> Error {
    // transformers writes `qwen3_moe`, and GGUF `qwen3moe`.
    let without_separators = |name: &str| name.replace(['_', '-'], "");
    let mut names = FAMILIES.iter().map(|family| family.architecture).chain(UNSUPPORTED.iter().copied());
    let known = names.any(|known| without_separators(known) == without_separators(name));
    Error::Architecture { name: name.into(), known, supported: supported.join(", ") }
}
