//! EXAONE 4 ([LG AI Research 2025](https://arxiv.org/abs/2507.11407)): no norms before attention
//! and the feed-forward network but one after each, and norms of the heads of queries and keys. In
//! the large model three of four layers have a sliding window, and the others are not rotated.

use super::{
    Checkpoint, Config, Model,
    block::{Block, FeedForwardInput, HeadNorms},
    checkpoint::{KeyValues, Meaning, Need, SILU, SIZES, Settings, TENSORS, float, setting, tensor},
    config::PATTERN,
    keys::Keys,
    model_builder::ModelBuilder,
};
use crate::{
    Result,
    gguf::{Array, TensorInfo, Value},
};

const BLOCK: Block = Block {
    attention_norm: false,
    head_norms: HeadNorms::Each,
    feed_forward_input: FeedForwardInput::Stream,
    post_norms: true,
    ..Block::DECODER
};
/// The last of each `PERIOD` layers has full attention.
const PERIOD: usize = 4;
/// The number of layers of the large model, which alone has windows, and its window.
const LAYERS: usize = 64;
const WINDOW: usize = 4096;

const KINDS: &str = "layer_types";
const SLIDING: &str = "sliding_attention";

pub(super) const CHECKPOINT: Checkpoint = Checkpoint {
    model_types: &["exaone4"],
    settings: &[
        &[
            float("rms_norm_eps", "attention.layer_norm_rms_epsilon", Need::Or(1e-5)),
            setting("sliding_window", Meaning::Derived("attention.sliding_window")),
            setting(KINDS, Meaning::Derived(PATTERN)),
        ],
        SIZES,
        SILU,
    ],
    tensors: &[
        &[
            tensor("post_attention_layernorm", "post_attention_norm"),
            tensor("post_feedforward_layernorm", "post_ffw_norm"),
        ],
        TENSORS,
    ],
    derived: windows,
    ..Checkpoint::DECODER
};

/// Returns the window and the layers that have it. Without a window all layers are rotated.
fn windows(settings: &Settings, _: &[TensorInfo]) -> Result<KeyValues> {
    const NAME: &str = "sliding_window";
    let kinds = settings.kinds(KINDS, SLIDING)?;
    match settings.size(NAME)? {
        Some(window) => {
            let slides = kinds.ok_or_else(|| settings.error(KINDS, "is missing"))?;
            Ok(vec![("attention.sliding_window", Value::U32(window)), (PATTERN, Value::Array(Array::Bool(slides)))])
        }
        None if kinds.is_some_and(|slides| slides.contains(&true)) => {
            Err(settings.error(KINDS, format!("has {SLIDING}, but there is no `{NAME}`")))
        }
        None if settings.size("num_hidden_layers")? == Some(LAYERS as u32) => {
            Err(settings.error(NAME, format!("is missing, but models of {LAYERS} layers have a window")))
        }
        None => Ok(vec![]),
    }
}

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    let mut config = Config::read(keys)?;
    config.split_mtp(keys)?;
    config.divide_frequencies();
    if config.layers.len() == LAYERS || keys.has(PATTERN) {
        config.set_windows(keys, keys.window()?.unwrap_or(WINDOW), PERIOD)?;
        config.layers.iter_mut().for_each(|layer| layer.rope = layer.rope.filter(|_| layer.scores.window.is_some()));
    }
    BLOCK.model(config, graph)
}
