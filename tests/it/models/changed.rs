//! Tests the errors for tiny models with a key or a tensor changed.

use inkstone::{
    CacheType, Error,
    gguf::Gguf,
    internals::{graph::LayerCache, kv_cache::CacheLayout},
};

use super::families::{Stored, f32, load, text, u32};
use crate::support::{
    gguf_file::GgufFile,
    tiny::{MODELS, Tiny},
};

fn tiny(name: &str) -> Tiny {
    MODELS.into_iter().find(|tiny| tiny.0 == name).unwrap()
}

/// Returns a tiny model's file with a key of its architecture changed; `None` removes it.
fn changed(name: &str, key: &str, value: Option<Stored>) -> GgufFile {
    let gguf = Gguf::open(tiny(name).path()).unwrap();
    let key = format!("{}.{key}", gguf.architecture().unwrap());
    let mut file = GgufFile::of(&gguf);
    file.keys.retain(|(known, ..)| known != key.as_bytes());
    match value {
        Some((number, value)) => file.key(&key, number, value),
        None => file,
    }
}

/// The models whose keys and tensors are changed below, and the tensors that each may lack.
const CHANGED: [(&str, &[&str]); 5] = [
    ("deepseek2", &["exp_probs_b.bias", "nextn.eh_proj.weight", "nextn.shared_head_norm.weight"]),
    ("granitehybrid", &["ssm_conv1d.bias"]),
    ("nemotron_h", &["ssm_conv1d.bias", "output.weight"]),
    ("nemotron_h_moe", &["ssm_conv1d.bias", "output.weight", "nextn.eh_proj.weight"]),
    ("falcon_h1_norms", &["ssm_conv1d.bias", "ssm_norm.weight", "output.weight"]),
];

#[test]
fn keys_out_of_range_are_named() {
    let cases: Vec<(&str, &str, Option<Stored>)> = vec![
        ("deepseek2", "attention.key_length_mla", None),
        ("deepseek2", "attention.key_length_mla", u32(40)),
        ("deepseek2", "attention.key_length_mla", u32(16)),
        ("deepseek2", "attention.value_length_mla", None),
        ("deepseek2", "attention.value_length_mla", u32(0)),
        ("deepseek2", "attention.kv_lora_rank", None),
        ("deepseek2", "attention.kv_lora_rank", u32(40)),
        ("deepseek2", "attention.q_lora_rank", u32(0)),
        ("deepseek2", "attention.key_length", u32(64)),
        ("deepseek2", "attention.value_length", u32(48)),
        ("deepseek2", "attention.head_count_kv", u32(3)),
        ("deepseek2", "attention.temperature_scale", f32(-1.0)),
        ("deepseek2", "rope.dimension_count", None),
        ("deepseek2", "rope.scaling.attn_factor", f32(2.0)),
        ("deepseek2", "rope.scaling.type", text("linear")),
        ("deepseek2", "rope.scaling.yarn_log_multiplier", None),
        ("deepseek2", "expert_count", None),
        ("deepseek2", "expert_group_count", u32(3)),
        ("deepseek2", "leading_dense_block_count", u32(3)),
        ("granitehybrid", "ssm.conv_kernel", None),
        ("granitehybrid", "ssm.conv_kernel", u32(1)),
        ("granitehybrid", "ssm.inner_size", u32(72)),
        ("granitehybrid", "ssm.state_size", u32(8)),
        ("granitehybrid", "ssm.time_step_rank", u32(5)),
        ("granitehybrid", "ssm.group_count", u32(3)),
        ("granitehybrid", "ssm.group_count", u32(0)),
        ("granitehybrid", "expert_used_count", u32(7)),
        ("nemotron_h", "ssm.state_size", None),
        ("nemotron_h", "feed_forward_length", None),
        ("nemotron_h", "attention.head_count_kv", u32(0)),
        ("nemotron_h", "attention.scale", f32(0.5)),
        ("nemotron_h_moe", "expert_count", None),
        ("nemotron_h_moe", "moe_latent_size", u32(64)),
        ("nemotron_h_moe", "expert_gating_func", u32(1)),
        ("falcon_h1", "ssm.inner_size", None),
        ("falcon_h1", "attention.head_count_kv", u32(2)),
    ];
    for (name, key, value) in cases {
        let error = load(&changed(name, key, value.clone())).unwrap_err();
        let named = matches!(&error, Error::Metadata { key: named, .. } if named.ends_with(&format!(".{key}")));
        assert!(named, "{name}: {key} {value:?}: {error:?}");
    }
}

#[test]
fn missing_and_misshapen_tensors_are_named() {
    for (name, optional) in CHANGED {
        let valid = || GgufFile::of(&Gguf::open(tiny(name).path()).unwrap());
        for index in 0..valid().tensors.len() {
            let mut missing = valid();
            let tensor = missing.tensors.remove(index).name;
            let refused = |file: &GgufFile| {
                let error = load(file).unwrap_err();
                assert!(
                    matches!(&error, Error::Tensor { tensor: named, .. } if *named == tensor),
                    "{tensor}: {error:?}"
                );
            };
            if optional.iter().any(|name| tensor == *name || tensor.ends_with(&format!(".{name}"))) {
                load(&missing).unwrap();
            } else {
                refused(&missing);
            }
            let mut longer = valid();
            let changed = &mut longer.tensors[index];
            changed.dimensions[0] *= 2;
            changed.data = changed.data.repeat(2);
            refused(&longer);
        }
    }
}

/// The cache has a row of the latent and of the rotated part for each position, and no heads.
#[test]
fn a_latent_cache_has_one_row_for_each_position() {
    let gguf = Gguf::open(tiny("deepseek2").path()).unwrap();
    let model = load(&GgufFile::of(&gguf)).unwrap();
    let row = LayerCache { kv_heads: 1, head_dim: 32 + 16, keys_only: true };
    assert_eq!(model.graph.caches(), [row; 2]);
    let layout = CacheLayout::new(&model.graph, CacheType::F16).unwrap();
    assert_eq!(layout.bytes_per_token(), 2 * 2 * (32 + 16));
}
