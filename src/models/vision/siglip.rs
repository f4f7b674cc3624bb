//! SigLIP ([Zhai et al. 2023](https://arxiv.org/abs/2303.15343)) with the projectors of Gemma 3
//! ([Gemma Team 2025](https://arxiv.org/abs/2503.19786)) and of Idefics 3 ([Laurençon et al.
//! 2024](https://arxiv.org/abs/2408.12637)), which SmolVLM has too.

use super::layers::{Encoder, Norm};
use crate::{
    Result,
    graph::{Graph, ValueId},
};

/// The matrix of Gemma 3's projector.
pub(super) const GEMMA3_PROJECTION: &str = "mm.input_projection.weight";

pub(super) fn build_gemma3(mut encoder: Encoder) -> Result<Graph> {
    let config = encoder.config;
    let x = patches(&mut encoder)?;
    let mean = encoder.mean_of_blocks(x);
    let normed = encoder.graph.rms_norm(mean, "mm.soft_emb_norm", config.hidden, config.eps)?;
    let projection = encoder.graph.weight(GEMMA3_PROJECTION, config.text_width, config.hidden)?;
    let rows = encoder.graph.ops.matmul(normed, projection);
    encoder.finish(rows)
}

pub(super) fn build_idefics3(mut encoder: Encoder) -> Result<Graph> {
    let config = encoder.config;
    let x = patches(&mut encoder)?;
    let joined = encoder.join_blocks(x);
    let width = config.hidden * config.block.pow(2);
    let rows = encoder.graph.linear(joined, "mm.model.fc", config.text_width, width)?;
    encoder.finish(rows)
}

/// Returns the patches after all layers.
fn patches(encoder: &mut Encoder) -> Result<ValueId> {
    let config = encoder.config;
    let (hidden, eps) = (config.hidden, config.eps);
    let scale = (config.head_dim() as f32).sqrt().recip();
    let x = encoder.patches(&["v.patch_embd.weight"])?;
    let x = encoder.add_vector(x, "v.patch_embd.bias", hidden)?;
    let mut x = encoder.add_positions(x)?;
    for index in 0..config.layers {
        let normed = encoder.norm(Norm::Layer, x, &format!("v.blk.{index}.ln1"), hidden, eps)?;
        let heads = encoder.queries_keys_values(normed, index)?;
        let attended = encoder.attend(heads, index, scale);
        let output = encoder.attention_output(attended, index)?;
        x = encoder.graph.ops.add(x, output);
        let normed = encoder.norm(Norm::Layer, x, &format!("v.blk.{index}.ln2"), hidden, eps)?;
        let output = encoder.feed_forward(normed, index)?;
        x = encoder.graph.ops.add(x, output);
    }
    encoder.norm(Norm::Layer, x, "v.post_ln", hidden, eps)
}
