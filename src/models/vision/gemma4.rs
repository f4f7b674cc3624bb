//! The vision encoder of Gemma 4: patches with a learned position for the column and for the row,
//! heads that are normed and rotated by both, norms before and after each part of a layer, and
//! matrices whose inputs and outputs are limited.

use super::layers::{Encoder, Norm};
use crate::{
    Result,
    graph::{Graph, RopeStyle, ValueId},
};

pub(super) fn build(mut encoder: Encoder) -> Result<Graph> {
    let config = encoder.config;
    let (hidden, ffn, eps) = (config.hidden, config.ffn, config.eps);
    let x = encoder.patches(&["v.patch_embd.weight"])?;
    let mut x = encoder.add_positions(x)?;
    for index in 0..config.layers {
        let name = |part: &str| format!("v.blk.{index}.{part}");
        let normed = encoder.norm(Norm::Rms, x, &name("ln1"), hidden, eps)?;
        let heads = heads(&mut encoder, normed, index)?;
        let attended = encoder.attend(heads, index, 1.0);
        let output = limited(&mut encoder, attended, &name("attn_out"), hidden, hidden)?;
        let output = encoder.norm(Norm::Rms, output, &name("attn_post_norm"), hidden, eps)?;
        x = encoder.graph.ops.add(x, output);
        let normed = encoder.norm(Norm::Rms, x, &name("ln2"), hidden, eps)?;
        let gate = limited(&mut encoder, normed, &name("ffn_gate"), ffn, hidden)?;
        let gate = encoder.graph.ops.activate(config.activation, gate);
        let up = limited(&mut encoder, normed, &name("ffn_up"), ffn, hidden)?;
        let product = encoder.graph.ops.mul(gate, up);
        let output = limited(&mut encoder, product, &name("ffn_down"), hidden, ffn)?;
        let output = encoder.norm(Norm::Rms, output, &name("ffn_post_norm"), hidden, eps)?;
        x = encoder.graph.ops.add(x, output);
    }
    let rows = project(&mut encoder, x)?;
    encoder.finish(rows)
}

/// Returns the normed and rotated queries and keys, and the normed values, of layer `index`.
fn heads(encoder: &mut Encoder, x: ValueId, index: usize) -> Result<[ValueId; 3]> {
    let config = encoder.config;
    let (hidden, head_dim, eps) = (config.hidden, config.head_dim(), config.eps);
    let name = |part: &str| format!("v.blk.{index}.{part}");
    let q = limited(encoder, x, &name("attn_q"), hidden, hidden)?;
    let k = limited(encoder, x, &name("attn_k"), hidden, hidden)?;
    let v = limited(encoder, x, &name("attn_v"), hidden, hidden)?;
    let q = encoder.graph.rms_norm(q, &name("attn_q_norm"), head_dim, eps)?;
    let k = encoder.graph.rms_norm(k, &name("attn_k_norm"), head_dim, eps)?;
    let ones = encoder.graph.ops.constant(vec![1.0; head_dim]);
    let v = encoder.graph.ops.rms_norm(v, ones, eps);
    let [q, k] = encoder.rotate([q, k], RopeStyle::Quarters);
    Ok([q, k, v])
}

/// Returns `x w^T` for the matrix `NAME.weight`, with the limits of `x` and of the product that the
/// file has.
fn limited(encoder: &mut Encoder, x: ValueId, name: &str, rows: usize, columns: usize) -> Result<ValueId> {
    let x = clamp(encoder, x, name, "input")?;
    let weight = encoder.graph.weight(&format!("{name}.weight"), rows, columns)?;
    let product = encoder.graph.ops.matmul(x, weight);
    clamp(encoder, product, name, "output")
}

fn clamp(encoder: &mut Encoder, x: ValueId, name: &str, side: &str) -> Result<ValueId> {
    let Some(lower) = encoder.graph.optional_weight(&format!("{name}.{side}_min"), 1, 1)? else { return Ok(x) };
    let upper = encoder.graph.weight(&format!("{name}.{side}_max"), 1, 1)?;
    Ok(encoder.graph.ops.clamp(x, [lower, upper]))
}

/// Returns the rows of the text model: means of blocks, standardised, normed and projected.
fn project(encoder: &mut Encoder, x: ValueId) -> Result<ValueId> {
    let config = encoder.config;
    let (hidden, eps) = (config.hidden, config.eps);
    let mean = encoder.mean_of_blocks(x);
    let mut rows = encoder.graph.scale(mean, (hidden as f32).sqrt());
    if let Some(bias) = encoder.graph.optional_weight("v.std_bias", 1, hidden)? {
        let minus = encoder.graph.scale(bias, -1.0);
        rows = encoder.graph.ops.add(rows, minus);
        let scale = encoder.graph.weight("v.std_scale", 1, hidden)?;
        rows = encoder.graph.ops.mul(rows, scale);
    }
    let ones = encoder.graph.ops.constant(vec![1.0; hidden]);
    let normed = encoder.graph.ops.rms_norm(rows, ones, eps);
    limited(encoder, normed, "mm.input_projection", config.text_width, hidden)
}
