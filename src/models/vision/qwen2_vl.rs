//! The vision encoders of Qwen2-VL ([Wang et al. 2024](https://arxiv.org/abs/2409.12191)) and
//! Qwen2.5-VL ([Bai et al. 2025](https://arxiv.org/abs/2502.13923)), whose patches have rotary
//! positions alone. Most layers of Qwen2.5-VL attend within windows.

use super::{
    Projector,
    layers::{Encoder, Norm},
};
use crate::{
    Result,
    graph::{Graph, RopeStyle},
    models::model_builder::FeedForward,
};

pub(super) fn build(mut encoder: Encoder) -> Result<Graph> {
    let config = encoder.config;
    let (hidden, eps) = (config.hidden, config.eps);
    let gated = config.projector == Projector::Qwen25Vl;
    let norm = if gated { Norm::Rms } else { Norm::Layer };
    let scale = (config.head_dim() as f32).sqrt().recip();
    // The kernel of two frames, of which an image is two equal ones.
    let mut x = encoder.patches(&["v.patch_embd.weight", "v.patch_embd.weight.1"])?;
    for index in 0..config.layers {
        let normed = encoder.norm(norm, x, &format!("v.blk.{index}.ln1"), hidden, eps)?;
        let [q, k, v] = encoder.queries_keys_values(normed, index)?;
        let [q, k] = encoder.rotate([q, k], RopeStyle::Halves);
        let attended = encoder.attend([q, k, v], index, scale);
        let output = encoder.attention_output(attended, index)?;
        x = encoder.graph.ops.add(x, output);
        let normed = encoder.norm(norm, x, &format!("v.blk.{index}.ln2"), hidden, eps)?;
        let output = if gated {
            let network = FeedForward { hidden, ffn: config.ffn, activation: config.activation };
            encoder.graph.feed_forward(normed, &format!("v.blk.{index}.ffn"), network)?
        } else {
            encoder.feed_forward(normed, index)?
        };
        x = encoder.graph.ops.add(x, output);
    }
    let normed = encoder.norm(norm, x, "v.post_ln", hidden, eps)?;
    let joined = encoder.join_blocks(normed);
    let width = hidden * config.block.pow(2);
    let rows = encoder.perceptron(joined, ["mm.0", "mm.2"], [width, width], config.projector_activation())?;
    encoder.finish(rows)
}
