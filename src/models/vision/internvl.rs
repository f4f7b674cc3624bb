//! The vision encoder of InternVL ([Chen et al. 2024](https://arxiv.org/abs/2404.16821)): patches
//! and a class token with learned positions, and layers whose results are scaled element by
//! element. The encoder with 6 billion parameters has RMS norms, and norms of queries and keys.

use super::layers::{CLASS_TAPS, Encoder, Norm, PATCH_TAPS};
use crate::{
    Result,
    graph::{Graph, ValueId},
};

/// The number that the projector's norm adds to the variance.
const PROJECTOR_EPS: f32 = 1e-5;

pub(super) fn build(mut encoder: Encoder) -> Result<Graph> {
    let config = encoder.config;
    let (hidden, eps) = (config.hidden, config.eps);
    let norm = if encoder.graph.has("v.blk.0.ln1.bias") { Norm::Layer } else { Norm::Rms };
    let scale = (config.head_dim() as f32).sqrt().recip();
    let mut x = patches_and_class(&mut encoder)?;
    for index in 0..config.layers {
        let name = |part: &str| format!("v.blk.{index}.{part}");
        let normed = encoder.norm(norm, x, &name("ln1"), hidden, eps)?;
        let [mut q, mut k, v] = encoder.queries_keys_values(normed, index)?;
        if encoder.graph.has(&name("attn_q_norm.weight")) {
            q = encoder.graph.rms_norm(q, &name("attn_q_norm"), hidden, eps)?;
            k = encoder.graph.rms_norm(k, &name("attn_k_norm"), hidden, eps)?;
        }
        let attended = encoder.attend([q, k, v], index, scale);
        let output = encoder.attention_output(attended, index)?;
        x = add_scaled(&mut encoder, x, output, &name("ls1.weight"))?;
        let normed = encoder.norm(norm, x, &name("ln2"), hidden, eps)?;
        let output = encoder.feed_forward(normed, index)?;
        x = add_scaled(&mut encoder, x, output, &name("ls2.weight"))?;
    }
    let joined = encoder.join_blocks(x);
    let width = hidden * config.block.pow(2);
    let normed = encoder.norm(Norm::Layer, joined, "mm.model.mlp.0", width, PROJECTOR_EPS)?;
    let names = ["mm.model.mlp.1", "mm.model.mlp.3"];
    let rows = encoder.perceptron(normed, names, [width, config.text_width], config.projector_activation())?;
    encoder.finish(rows)
}

/// Returns the embedded patches and class token with their positions.
fn patches_and_class(encoder: &mut Encoder) -> Result<ValueId> {
    let hidden = encoder.config.hidden;
    // The class token has no pixels, so its row of the product is 0.
    let mut x = encoder.patches(&["v.patch_embd.weight"])?;
    for (name, taps) in [("v.patch_embd.bias", PATCH_TAPS), ("v.class_embd", CLASS_TAPS)] {
        let vector = encoder.graph.weight(name, 1, hidden)?;
        let rows = encoder.graph.ops.interpolate(vector, taps);
        x = encoder.graph.ops.add(x, rows);
    }
    encoder.add_positions(x)
}

fn add_scaled(encoder: &mut Encoder, x: ValueId, output: ValueId, name: &str) -> Result<ValueId> {
    let scale = encoder.graph.weight(name, 1, encoder.config.hidden)?;
    let scaled = encoder.graph.ops.mul(output, scale);
    Ok(encoder.graph.ops.add(x, scaled))
}
