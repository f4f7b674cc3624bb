//! The vision encoder of Qwen3-VL ([Qwen Team 2025](https://arxiv.org/abs/2511.21631)) and
//! Qwen3.5: patches with learned and rotary positions, and a merger of four patches. After some
//! layers a merger more makes elements for the first layers of the text model.

use super::layers::{Encoder, Norm};
use crate::{
    Result,
    graph::{Graph, RopeStyle, ValueId},
};

pub(super) fn build(mut encoder: Encoder) -> Result<Graph> {
    let config = encoder.config;
    let (hidden, eps) = (config.hidden, config.eps);
    let scale = (config.head_dim() as f32).sqrt().recip();
    // The kernel of two frames, of which an image is two equal ones.
    let x = encoder.patches(&["v.patch_embd.weight", "v.patch_embd.weight.1"])?;
    let x = encoder.add_vector(x, "v.patch_embd.bias", hidden)?;
    let mut x = encoder.add_positions(x)?;
    let mut deepstack = vec![];
    for index in 0..config.layers {
        let normed = encoder.norm(Norm::Layer, x, &format!("v.blk.{index}.ln1"), hidden, eps)?;
        let [q, k, v] = encoder.queries_keys_values(normed, index)?;
        let [q, k] = encoder.rotate([q, k], RopeStyle::Halves);
        let attended = encoder.attend([q, k, v], index, scale);
        let output = encoder.attention_output(attended, index)?;
        x = encoder.graph.ops.add(x, output);
        let normed = encoder.norm(Norm::Layer, x, &format!("v.blk.{index}.ln2"), hidden, eps)?;
        let output = encoder.feed_forward(normed, index)?;
        x = encoder.graph.ops.add(x, output);
        if config.deepstack.contains(&index) {
            deepstack.push(merge_deepstack(&mut encoder, x, index)?);
        }
    }
    let normed = encoder.norm(Norm::Layer, x, "v.post_ln", hidden, eps)?;
    let joined = encoder.join_blocks(normed);
    let width = hidden * config.block.pow(2);
    let rows = encoder.perceptron(joined, ["mm.0", "mm.2"], [width, width], config.projector_activation())?;
    let parts = [&[rows], deepstack.as_slice()].concat();
    let rows = if deepstack.is_empty() { rows } else { encoder.graph.ops.concat(&parts) };
    encoder.finish(rows)
}

/// Returns the rows for a layer of the text model from the patches after layer `index`.
fn merge_deepstack(encoder: &mut Encoder, x: ValueId, index: usize) -> Result<ValueId> {
    let config = encoder.config;
    let width = config.hidden * config.block.pow(2);
    let name = |part: &str| format!("v.deepstack.{index}.{part}");
    let joined = encoder.join_blocks(x);
    let normed = encoder.norm(Norm::Layer, joined, &name("norm"), width, config.eps)?;
    encoder.perceptron(normed, [&name("fc1"), &name("fc2")], [width, width], config.projector_activation())
}
