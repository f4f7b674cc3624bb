//! What the `config.json` of a Gemma 4 says of its layers, whose sizes differ: in GGUF's terms.

use serde_json::Value as Json;

use super::checkpoint::{KeyValues, Settings};
use crate::{
    Result,
    gguf::{Array, TensorInfo, Value},
};

/// The settings that are a layer's own.
const HEAD_DIM: &str = "head_dim";
const KV_HEADS: &str = "num_key_value_heads";
const OWN: &str = "per_layer_config";

/// The heads of a layer.
#[derive(Clone, Copy)]
struct Heads {
    kv_heads: u32,
    head_dim: u32,
}

/// GGUF's keys for the layers, and whether the layers that should have values have them.
pub(super) fn keys(settings: &Settings, tensors: &[TensorInfo]) -> Result<KeyValues> {
    for needed in ["layer_types", "rope_parameters"] {
        settings.get(needed).ok_or_else(|| settings.error(needed, "is missing"))?;
    }
    let windows = settings.kinds("layer_types", "sliding_attention")?.unwrap_or_default();
    check_kinds(settings, &windows)?;
    let heads = heads(settings, &windows)?;
    let mut keys = vec![
        ("attention.head_count_kv", sizes(heads.iter().map(|layer| layer.kv_heads))),
        ("feed_forward_length", sizes(widths(settings, windows.len())?)),
    ];
    for (key, slides) in [("attention.key_length", false), ("attention.key_length_swa", true)] {
        keys.extend(head_dim(settings, &heads, &windows, slides)?.map(|dim| (key, Value::U32(dim))));
    }
    keys.extend(experts(settings)?);
    check_values(settings, tensors, &windows)?;
    Ok(keys)
}

fn sizes(layers: impl IntoIterator<Item = u32>) -> Value {
    Value::Array(Array::U32(layers.into_iter().collect()))
}

fn check_kinds(settings: &Settings, windows: &[bool]) -> Result<()> {
    let layers = settings.size("num_hidden_layers")?.unwrap_or(0) as usize;
    match windows.last() {
        _ if windows.len() != layers => {
            Err(settings.error("layer_types", format!("has {} entries for {layers} layers", windows.len())))
        }
        // transformers takes it for one that sees all.
        Some(true) => Err(settings.error("layer_types", "gives the last layer a window, which it must not have")),
        _ => Ok(()),
    }
}

/// The heads of each layer: those of `per_layer_config`, or where there is none, of two kinds of layers.
fn heads(settings: &Settings, windows: &[bool]) -> Result<Vec<Heads>> {
    let usual =
        Heads { kv_heads: settings.size(KV_HEADS)?.unwrap_or(4), head_dim: settings.size(HEAD_DIM)?.unwrap_or(256) };
    let Some(own) = settings.get(OWN) else {
        let shared = settings.bool("attention_k_eq_v")?.unwrap_or(false);
        let kv_heads = settings.size("num_global_key_value_heads")?.filter(|_| shared).unwrap_or(usual.kv_heads);
        let global = Heads { kv_heads, head_dim: settings.size("global_head_dim")?.unwrap_or(512) };
        return Ok(windows.iter().map(|slides| if *slides { usual } else { global }).collect());
    };
    let mut heads = vec![usual; windows.len()];
    for (number, layer) in own.as_object().ok_or_else(|| settings.error(OWN, "is no object"))? {
        let name = format!("{OWN}.{number}");
        let heads = heads.iter_mut().enumerate().find(|(n, _)| n.to_string() == *number);
        let (_, heads) = heads.ok_or_else(|| settings.error(&name, "is none of the layers"))?;
        read_own(settings, &name, layer, heads)?;
    }
    Ok(heads)
}

/// What a layer has of its own.
fn read_own(settings: &Settings, name: &str, layer: &Json, heads: &mut Heads) -> Result<()> {
    for (key, value) in layer.as_object().ok_or_else(|| settings.error(name, "is no object"))? {
        let error = |what: &str| settings.error(&format!("{name}.{key}"), what);
        let place = match key.as_str() {
            HEAD_DIM => &mut heads.head_dim,
            KV_HEADS => &mut heads.kv_heads,
            _ => return Err(error("is not built yet for a layer of its own")),
        };
        let size = value.as_u64().and_then(|size| u32::try_from(size).ok());
        *place = size.ok_or_else(|| error("is no whole number from 0 to 4294967295"))?;
    }
    Ok(())
}

/// The elements of a head in the layers that have a window, or in those that have none.
fn head_dim(settings: &Settings, heads: &[Heads], windows: &[bool], slides: bool) -> Result<Option<u32>> {
    let mut dims = heads.iter().zip(windows).filter(|(_, window)| **window == slides).map(|(layer, _)| layer.head_dim);
    let Some(first) = dims.next() else { return Ok(None) };
    match dims.all(|dim| dim == first) {
        true => Ok(Some(first)),
        false => Err(settings.error(OWN, "gives layers of one kind heads of several sizes, which is not built")),
    }
}

/// Elements between the two halves of each layer's feed-forward.
fn widths(settings: &Settings, layers: usize) -> Result<Vec<u32>> {
    const NAME: &str = "intermediate_size";
    let width = settings.size(NAME)?.ok_or_else(|| settings.error(NAME, "is missing"))?;
    let readers = settings.size("num_kv_shared_layers")?.unwrap_or(0) as usize;
    let doubled = settings.bool("use_double_wide_mlp")?.unwrap_or(false);
    let of = |n: usize| if doubled && n + readers >= layers { width.saturating_mul(2) } else { width };
    Ok((0..layers).map(of).collect())
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

/// Where a layer has no matrix for values its keys are taken for them, which the config must say.
fn check_values(settings: &Settings, tensors: &[TensorInfo], windows: &[bool]) -> Result<()> {
    const NAME: &str = "attention_k_eq_v";
    let shared = settings.bool(NAME)?.unwrap_or(false);
    let readers = settings.size("num_kv_shared_layers")?.unwrap_or(0) as usize;
    for (n, slides) in windows.iter().enumerate().take(windows.len().saturating_sub(readers)) {
        let wanted = *slides || !shared;
        let found = tensors.iter().any(|tensor| tensor.name == format!("blk.{n}.attn_v.weight"));
        if found != wanted {
            let has = if found { "has" } else { "lacks" };
            return Err(settings.error(NAME, format!("is {shared}, but layer {n} {has} a matrix for values")));
        }
    }
    Ok(())
}
