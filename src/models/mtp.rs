//! Builds heads for multi-token prediction. A head is one more layer of the model between two
//! norms, a projection and an output head: it reads the embedding of a token and the model's hidden
//! row of the position before, and predicts the token after it ([DeepSeek-AI
//! 2024](https://arxiv.org/abs/2412.19437), section 2.2).

use super::{Config, LayerConfig, Model, model_builder::ModelBuilder};
use crate::{
    Error, Result,
    graph::{Graph, ValueId},
};

/// Adds a layer to a graph, given its index and the residual stream, which it returns.
type AddLayer<'a> = dyn Fn(&mut ModelBuilder, &LayerConfig, ValueId, usize) -> Result<ValueId> + 'a;

/// Returns the model whose output head reads `x`, with its head for multi-token prediction if the
/// file has one.
pub(super) fn finish(mut graph: ModelBuilder, config: Config, x: ValueId, layer: &AddLayer<'_>) -> Result<Model> {
    let index = config.layers.len();
    let is_there = graph.has(&format!("blk.{index}.nextn.eh_proj.weight"));
    let Some(head) = config.mtp.as_ref().filter(|_| is_there) else { return graph.finish(config, x) };
    let mtp = build(graph.another(), &config, head, index, layer)?;
    let x = graph.rms_norm(x, "output_norm", config.hidden, config.rms_eps)?;
    let logits = graph.logits(&config, x, &[])?;
    Ok(Model { graph: graph.ops.finish_with(logits, Some(x))?, config, mtp: Some(mtp) })
}

/// Checks that a file does not have only the head of a model.
///
/// # Errors
/// [`Error::Tensor`] with the first tensor that the file lacks.
pub(super) fn refuse_alone(graph: &ModelBuilder, config: &Config) -> Result<()> {
    const FIRST: &str = "blk.0.attn_norm.weight";
    if graph.has(FIRST) || !graph.has(&format!("blk.{}.nextn.eh_proj.weight", config.layers.len())) {
        return Ok(());
    }
    let what = "is missing: the file has only the head for multi-token prediction of a model; load a file with the whole \
                model";
    Err(Error::tensor(FIRST, what))
}

/// Returns the graph of a head whose layer has the index `index`.
fn build(
    mut graph: ModelBuilder,
    config: &Config,
    head: &LayerConfig,
    index: usize,
    layer: &AddLayer<'_>,
) -> Result<Graph> {
    let &Config { hidden, rms_eps, .. } = config;
    let name = |part: &str| format!("blk.{index}.nextn.{part}");
    let tokens = graph.ops.tokens();
    let own_table = graph.optional_weight(&name("embed_tokens.weight"), config.vocab_size, hidden)?;
    let table = match own_table {
        Some(table) => table,
        None => graph.weight("token_embd.weight", config.vocab_size, hidden)?,
    };
    let embedding = graph.ops.embed(table, tokens);
    let embedding = graph.scale(embedding, config.embedding_scale);
    let embedding = graph.rms_norm(embedding, &name("enorm"), hidden, rms_eps)?;
    let before = graph.ops.input_rows(hidden);
    let before = graph.rms_norm(before, &name("hnorm"), hidden, rms_eps)?;
    let both = graph.ops.concat(&[embedding, before]);
    let x = graph.linear(both, &name("eh_proj"), hidden, 2 * hidden)?;

    let x = layer(&mut graph, head, x, index)?;

    let own_norm = name("shared_head_norm");
    let norm = if graph.has(&format!("{own_norm}.weight")) { &own_norm } else { "output_norm" };
    let x = graph.rms_norm(x, norm, hidden, rms_eps)?;
    let x = graph.ops.select_outputs(x);
    let logits = graph.logits(config, x, &[&name("shared_head_head")])?;
    graph.ops.finish_with(logits, Some(x))
}
