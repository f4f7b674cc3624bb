//! Builds heads for multi-token prediction. A head is one more layer of the model between two
//! norms, a projection and an output head: it reads the embedding of a token and the model's hidden
//! row of the position before, and predicts the token after it ([DeepSeek-AI
//! 2024](https://arxiv.org/abs/2412.19437), section 2.2).

use super::{Config, LayerConfig, Model, config::NormKind, model_builder::ModelBuilder};
use crate::{
    Error, Result,
    gguf::{Gguf, Value},
    graph::{Graph, ValueId},
};

/// The first tensor of the first layer, which a file with only a head lacks.
const FIRST: &str = "blk.0.attn_norm.weight";
/// The key of the number of layers that predict further tokens.
const COUNT: &str = "nextn_predict_layers";

/// Adds a layer to a graph, given its index and the residual stream, which it returns.
type AddLayer<'a> = dyn Fn(&mut ModelBuilder, &Config, &LayerConfig, ValueId, usize) -> Result<ValueId> + 'a;

/// The last norm of a head.
#[derive(Clone, Copy)]
pub(super) struct LastNorm {
    pub kind: NormKind,
    /// The number that the norm adds to the mean square, or to the variance.
    pub eps: f32,
}

/// Returns the model whose output head reads `x`, with its head for multi-token prediction if the
/// file has one. The head's last norm is an RMS norm.
pub(super) fn finish(graph: ModelBuilder, config: Config, x: ValueId, layer: &AddLayer<'_>) -> Result<Model> {
    let norm = LastNorm { kind: NormKind::Rms, eps: config.rms_eps };
    finish_with(graph, config, x, layer, norm)
}

/// Returns the model as [`finish`] does, with another norm of the head.
pub(super) fn finish_with(
    graph: ModelBuilder,
    config: Config,
    x: ValueId,
    layer: &AddLayer<'_>,
    norm: LastNorm,
) -> Result<Model> {
    let index = config.layers.len();
    let is_there = graph.has(&format!("blk.{index}.nextn.eh_proj.weight"));
    let head = config.mtp.as_ref().filter(|_| is_there);
    let head = head.map(|head| build(graph.another(), &config, head, layer, norm)).transpose()?;
    graph.finish_with(config, x, head)
}

/// Checks that a file does not have only the head of a model.
///
/// # Errors
/// [`Error::Tensor`] with the first tensor that the file lacks.
pub(super) fn refuse_alone(graph: &ModelBuilder, config: &Config) -> Result<()> {
    if graph.has(FIRST) || !graph.has(&format!("blk.{}.nextn.eh_proj.weight", config.layers.len())) {
        return Ok(());
    }
    let what = "is missing: the file has only the head for multi-token prediction of a model; load a file with the whole \
                model, and pass this one to `RunnerBuilder::draft`";
    Err(Error::tensor(FIRST, what))
}

/// Returns the graph of a head, whose layer follows the model's.
fn build(
    mut graph: ModelBuilder,
    config: &Config,
    head: &LayerConfig,
    layer: &AddLayer<'_>,
    last: LastNorm,
) -> Result<Graph> {
    let &Config { hidden, rms_eps, .. } = config;
    let index = config.layers.len();
    let name = |part: &str| format!("blk.{index}.nextn.{part}");
    let tokens = graph.ops.tokens();
    let own_table = graph.optional_weight(&name("embed_tokens.weight"), config.vocab_size, hidden)?;
    let table = match own_table {
        Some(table) => table,
        None => graph.weight("token_embd.weight", config.vocab_size, hidden)?,
    };
    let embedding = graph.ops.embed(table, tokens);
    let embedding = graph.scale(embedding, config.embedding_scale);
    let embedding = graph.place_images_of_head(embedding, hidden);
    let embedding = graph.rms_norm(embedding, &name("enorm"), hidden, rms_eps)?;
    let before = graph.ops.input_rows(hidden);
    let before = graph.rms_norm(before, &name("hnorm"), hidden, rms_eps)?;
    let both = graph.ops.concat(&[embedding, before]);
    let x = graph.linear(both, &name("eh_proj"), hidden, 2 * hidden)?;

    let x = layer(&mut graph, config, head, x, index)?;

    let own_norm = name("shared_head_norm");
    let x = match last.kind {
        NormKind::Rms => {
            let norm = if graph.has(&format!("{own_norm}.weight")) { &own_norm } else { "output_norm" };
            graph.rms_norm(x, norm, hidden, last.eps)?
        }
        NormKind::Layer => graph.layer_norms(x, &own_norm, [1, hidden], last.eps)?,
    };
    let x = graph.ops.select_outputs(x);
    let logits = graph.logits(config, x, &[&name("shared_head_head")])?;
    graph.ops.finish_with(logits, Some(x))
}

/// Returns whether a file has only the head for multi-token prediction of a model, to be used
/// beside a file of the model.
///
/// # Errors
/// [`Error::Metadata`] for a key of another type.
pub fn is_only_head(gguf: &Gguf) -> Result<bool> {
    let sizes = Sizes::read(gguf)?;
    let projection = format!("blk.{}.nextn.eh_proj.weight", sizes.layers);
    Ok(gguf.tensor(FIRST).is_none() && gguf.tensor(&projection).is_some())
}

/// Returns a model with the head of another file, which has only that.
///
/// # Errors
/// [`Error::Argument`] if the head is that of another model, or the model has one already.
pub fn join_head(model: &Gguf, head: &Gguf) -> Result<Gguf> {
    let refuse = |what: String| Err(Error::argument("draft", format!("`{}`: {what}", head.path().display())));
    let (ours, theirs) = (Sizes::read(model)?, Sizes::read(head)?);
    let architecture = model.architecture()?;
    if head.architecture()? != architecture {
        return refuse(format!("is a head for `{}`, but the model is `{architecture}`", head.architecture()?));
    }
    for (name, ours, theirs) in [("layers", ours.layers, theirs.layers), ("columns", ours.width, theirs.width)] {
        if ours != theirs {
            return refuse(format!("is a head for a model with {theirs} {name}, but the model has {ours}"));
        }
    }
    if let Some(what) = other_vocabulary(model, head)? {
        return refuse(what);
    }
    let prefix = format!("blk.{}.", ours.layers);
    if model.tensor(&format!("{prefix}nextn.eh_proj.weight")).is_some() {
        return refuse("is a head, but the model has one already".into());
    }
    // Lists have an element for each layer, and the head's too.
    let of_layers = |(key, value): &(&str, &Value)| {
        let key = key.strip_prefix(architecture).and_then(|key| key.strip_prefix('.'));
        key.is_some_and(|key| ["block_count", COUNT].contains(&key) || matches!(value, Value::Array(_)))
    };
    let keys = head.metadata().filter(of_layers).map(|(key, value)| (key.to_owned(), value.clone())).collect();
    model.extended(keys, head.tensors().iter().filter(|tensor| tensor.name.starts_with(&prefix)).cloned())
}

/// The sizes of a model that its head has to have.
struct Sizes {
    /// Number of layers without heads.
    layers: u64,
    width: u64,
}

impl Sizes {
    fn read(gguf: &Gguf) -> Result<Self> {
        let architecture = gguf.architecture()?;
        let size = |key: &str| Ok::<_, Error>(gguf.u64(&format!("{architecture}.{key}"))?.unwrap_or(0));
        Ok(Self { layers: size("block_count")?.saturating_sub(size(COUNT)?), width: size("embedding_length")? })
    }
}

/// Returns the difference between the vocabularies of a model and of a head, if there is one.
fn other_vocabulary(model: &Gguf, head: &Gguf) -> Result<Option<String>> {
    let rows = |gguf: &Gguf| gguf.tensor("token_embd.weight")?.shape.first().copied();
    if let (Some(ours), Some(theirs)) = (rows(model), rows(head))
        && ours != theirs
    {
        return Ok(Some(format!("has a vocabulary of {theirs} tokens, but the model has {ours}")));
    }
    const TOKENS: &str = "tokenizer.ggml.tokens";
    let (Some(ours), Some(theirs)) = (model.strings(TOKENS)?, head.strings(TOKENS)?) else { return Ok(None) };
    if ours.len() != theirs.len() {
        return Ok(Some(format!("has a vocabulary of {} tokens, but the model has {}", theirs.len(), ours.len())));
    }
    let differs = ours.iter().zip(theirs.iter()).enumerate().find(|(_, (ours, theirs))| ours != theirs);
    Ok(differs.map(|(id, (ours, theirs))| format!("its token {id} is {theirs:?}, but the model's is {ours:?}")))
}
