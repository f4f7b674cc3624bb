//! Llama 4 ([Meta 2025](https://ai.meta.com/blog/llama-4-multimodal-intelligence)), text: layers
//! that rotate heads see only their chunk of positions and norm the rotated heads, and every fourth
//! layer sees all positions without rotation, with queries that grow with the position. The sigmoid
//! of a router multiplies the input of the expert that it selects, beside a shared expert.

use super::{
    Config, Model,
    block::{Block, HeadNorms},
    config::{PATTERN, Temperature},
    experts::{Choice, Mixture},
    keys::{Keys, MAX_CONTEXT},
    llama,
    model_builder::ModelBuilder,
};
use crate::{
    Result,
    graph::{ExpertScore, Window},
};

/// The last of each `PERIOD` layers is not rotated.
const PERIOD: usize = 4;
/// The number of positions of a chunk in files that do not say it.
const CHUNK: usize = 8192;
/// The factor of the logarithm, and the number of positions with the same factor, by which queries
/// grow in files that do not say it.
const TEMPERATURE_SCALE: f32 = 0.1;
const TEMPERATURE_LENGTH: usize = 8192;
/// The number of experts of Maverick, which does not norm queries and keys.
const MAVERICK_EXPERTS: usize = 128;

const MIXTURE: Mixture = Mixture {
    score: Choice::Always(ExpertScore::Sigmoid),
    normalized: Choice::Always(false),
    scales_input: true,
    shared: |_, _, ffn| Ok(Some(ffn)),
    ..Mixture::SOFTMAX
};

pub(super) fn build(keys: &Keys, graph: ModelBuilder) -> Result<Model> {
    const WINDOW: &str = "attention.sliding_window";
    let mut config = Config::read(keys)?;
    config.divide_frequencies();
    config.require_experts(keys, &MIXTURE)?;
    config.interleave_dense(keys)?;
    if keys.has(WINDOW) && keys.is_zero(WINDOW) {
        return Err(keys.error(WINDOW, "is 0, but only models whose rotated layers see a chunk are supported"));
    }
    let chunk = keys.window()?.unwrap_or(CHUNK);
    let scale = keys.factor("attention.temperature_scale", Some(TEMPERATURE_SCALE))?;
    let interval = keys.optional_size("attention.temperature_length", MAX_CONTEXT)?.unwrap_or(TEMPERATURE_LENGTH);
    let temperature = scale.map(|scale| Temperature { scale, interval, offset: 1 });
    let is_chunked = keys.pattern(PATTERN, config.layers.len(), PERIOD)?;
    for (index, (layer, is_chunked)) in config.layers.iter_mut().zip(is_chunked).enumerate() {
        layer.scores.window = is_chunked.then_some(Window::Chunk(chunk));
        if (index + 1).is_multiple_of(PERIOD) {
            layer.rope = None;
            layer.temperature = temperature;
        }
    }
    let experts = config.layers.iter().find_map(|layer| layer.experts);
    let has_norms = experts.is_some_and(|experts| experts.count != MAVERICK_EXPERTS);
    let head_norms = if has_norms { HeadNorms::RotatedOnly } else { HeadNorms::None };
    Block { head_norms, ..llama::BLOCK }.model(config, graph)
}
