//! Translates the layer settings of a Gemma 4 `config.json` into GGUF keys. Layers differ in their
//! sizes, which the config gives per layer or per kind of layer.

use serde_json::Value as Json;

use super::checkpoint::{KeyValues, Settings};
use crate::{
    Result,
    gguf::{Array, TensorInfo, Value},
};

const HEAD_DIM: &str = "head_dim";
const KV_HEADS: &str = "num_key_value_heads";
/// The object of settings of single layers, by the layer's number.
const PER_LAYER: &str = "per_layer_config";

/// The heads of a layer.
#[derive(Clone, Copy)]
struct LayerHeads {
    kv_heads: u32,
    head_dim: u32,
}

/// The kind of a layer's attention.
#[derive(Clone, Copy, PartialEq)]
enum LayerKind {
    Full,
    Sliding,
}

/// Returns the GGUF keys of the layers.
///
/// # Errors
/// `InvalidFile` for a setting that is missing, not supported, or contradicts the tensors.
pub(super) fn keys(settings: &Settings, tensors: &[TensorInfo]) -> Result<KeyValues> {
    for required in ["layer_types", "rope_parameters"] {
        settings.get(required).ok_or_else(|| settings.error(required, "is missing"))?;
    }
    let kinds = kinds(settings)?;
    let heads = heads(settings, &kinds)?;
    let mut keys = vec![
        ("attention.head_count_kv", sizes(heads.iter().map(|layer| layer.kv_heads))),
        ("feed_forward_length", sizes(ffn_widths(settings, kinds.len())?)),
    ];
    for (key, kind) in [("attention.key_length", LayerKind::Full), ("attention.key_length_swa", LayerKind::Sliding)] {
        keys.extend(head_dim(settings, &heads, &kinds, kind)?.map(|dim| (key, Value::U32(dim))));
    }
    keys.extend(experts(settings)?);
    check_value_matrices(settings, tensors, &kinds)?;
    Ok(keys)
}

fn sizes(layers: impl IntoIterator<Item = u32>) -> Value {
    Value::Array(Array::U32(layers.into_iter().collect()))
}

/// Returns the kind of each layer.
fn kinds(settings: &Settings) -> Result<Vec<LayerKind>> {
    let sliding = settings.kinds("layer_types", "sliding_attention")?.unwrap_or_default();
    let layers = settings.size("num_hidden_layers")?.unwrap_or(0) as usize;
    if sliding.len() != layers {
        let what = format!("has {} entries for {layers} layers", sliding.len());
        return Err(settings.error("layer_types", what));
    }
    // transformers gives the last layer full attention and ignores its entry.
    if sliding.last() == Some(&true) {
        return Err(
            settings.error("layer_types", "has sliding_attention for the last layer, which must be full_attention")
        );
    }
    Ok(sliding.into_iter().map(|sliding| if sliding { LayerKind::Sliding } else { LayerKind::Full }).collect())
}

/// Returns the heads of each layer: from `per_layer_config`, or without it the same for all layers
/// of a kind.
fn heads(settings: &Settings, kinds: &[LayerKind]) -> Result<Vec<LayerHeads>> {
    let default = LayerHeads {
        kv_heads: settings.size(KV_HEADS)?.unwrap_or(4),
        head_dim: settings.size(HEAD_DIM)?.unwrap_or(256),
    };
    let Some(per_layer) = settings.get(PER_LAYER) else {
        let keys_are_values = settings.bool("attention_k_eq_v")?.unwrap_or(false);
        let kv_heads = settings.size("num_global_key_value_heads")?.filter(|_| keys_are_values);
        let full = LayerHeads {
            kv_heads: kv_heads.unwrap_or(default.kv_heads),
            head_dim: settings.size("global_head_dim")?.unwrap_or(512),
        };
        return Ok(kinds.iter().map(|kind| if *kind == LayerKind::Full { full } else { default }).collect());
    };
    let mut heads = vec![default; kinds.len()];
    for (number, layer) in per_layer.as_object().ok_or_else(|| settings.error(PER_LAYER, "is not an object"))? {
        let name = format!("{PER_LAYER}.{number}");
        let heads = heads.iter_mut().enumerate().find(|(index, _)| index.to_string() == *number);
        let (_, heads) = heads
            .ok_or_else(|| settings.error(&name, format!("is not the number of one of the {} layers", kinds.len())))?;
        read_layer(settings, &name, layer, heads)?;
    }
    Ok(heads)
}

/// Reads the settings of one layer, the object `name`, into `heads`.
fn read_layer(settings: &Settings, name: &str, layer: &Json, heads: &mut LayerHeads) -> Result<()> {
    for (key, value) in layer.as_object().ok_or_else(|| settings.error(name, "is not an object"))? {
        let error = |what: &str| settings.error(&format!("{name}.{key}"), what);
        let target = match key.as_str() {
            HEAD_DIM => &mut heads.head_dim,
            KV_HEADS => &mut heads.kv_heads,
            _ => return Err(error("is not supported as a setting of a single layer")),
        };
        let size = value.as_u64().and_then(|size| u32::try_from(size).ok());
        *target = size.ok_or_else(|| error("is not an integer from 0 to 4294967295"))?;
    }
    Ok(())
}

/// Returns the number of elements in a head of all layers of a kind, or `None` if there is no such
/// layer.
fn head_dim(settings: &Settings, heads: &[LayerHeads], kinds: &[LayerKind], kind: LayerKind) -> Result<Option<u32>> {
    let mut dims = heads.iter().zip(kinds).filter(|(_, of)| **of == kind).map(|(layer, _)| layer.head_dim);
    let Some(first) = dims.next() else { return Ok(None) };
    if dims.any(|dim| dim != first) {
        return Err(
            settings.error(PER_LAYER, "gives layers of one kind heads of several sizes, which is not supported")
        );
    }
    Ok(Some(first))
}

/// Returns the width between the two halves of each layer's feed-forward network.
fn ffn_widths(settings: &Settings, layers: usize) -> Result<Vec<u32>> {
    const NAME: &str = "intermediate_size";
    let width = settings.size(NAME)?.ok_or_else(|| settings.error(NAME, "is missing"))?;
    let readers = settings.size("num_kv_shared_layers")?.unwrap_or(0) as usize;
    let readers_are_wide = settings.bool("use_double_wide_mlp")?.unwrap_or(false);
    let is_wide = |index: usize| readers_are_wide && index + readers >= layers;
    Ok((0..layers).map(|index| if is_wide(index) { width.saturating_mul(2) } else { width }).collect())
}

fn experts(settings: &Settings) -> Result<KeyValues> {
    if !settings.bool("enable_moe_block")?.unwrap_or(false) {
        return Ok(vec![]);
    }
    let names = [
        ("num_experts", "expert_count"),
        ("top_k_experts", "expert_used_count"),
        ("moe_intermediate_size", "expert_feed_forward_length"),
    ];
    let key = |(name, key)| {
        let size = settings.size(name)?.ok_or_else(|| settings.error(name, "is missing"))?;
        Ok((key, Value::U32(size)))
    };
    names.into_iter().map(key).collect()
}

/// Checks that layers without a matrix of values are the layers for which the config says so: with
/// `attention_k_eq_v`, layers with full attention use their keys as values.
fn check_value_matrices(settings: &Settings, tensors: &[TensorInfo], kinds: &[LayerKind]) -> Result<()> {
    const NAME: &str = "attention_k_eq_v";
    let keys_are_values = settings.bool(NAME)?.unwrap_or(false);
    let readers = settings.size("num_kv_shared_layers")?.unwrap_or(0) as usize;
    for (index, kind) in kinds.iter().enumerate().take(kinds.len().saturating_sub(readers)) {
        let expected = *kind == LayerKind::Sliding || !keys_are_values;
        let found = tensors.iter().any(|tensor| tensor.name == format!("blk.{index}.attn_v.weight"));
        if found != expected {
            let has = if found { "has" } else { "lacks" };
            let what = format!("is {keys_are_values}, but layer {index} {has} a matrix of values");
            return Err(settings.error(NAME, what));
        }
    }
    Ok(())
}
