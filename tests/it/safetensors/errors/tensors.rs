//! Tests errors about tensors that are missing, duplicated, unknown, or of an unexpected shape: the
//! message names the tensor.

use inkstone::{Error, internals::models};
use serde_json::json;

use super::{CONFIG, message_of, open, setting, tiny};
use crate::support::{checkpoint::Tensor, gguf_file::Folder};

#[test]
fn incomplete_and_uneven_expert_stacks_are_refused() {
    let with = |change: fn(&mut Tensor)| {
        let mut checkpoint = tiny("qwen3moe");
        checkpoint.tensors.iter_mut().filter(|tensor| tensor.name.contains("0.mlp.experts.2.up_proj")).for_each(change);
        message_of(&checkpoint)
    };
    let name = "model.layers.0.mlp.experts.2.up_proj.weight";
    let missing = with(|tensor| tensor.name = "model.layers.0.mlp.experts.9.up_proj.weight".into());
    assert_eq!(missing, "tensor `model.layers.0.mlp.experts.3.up_proj.weight`: is number 3, but number 2 is missing");
    let twice = with(|tensor| tensor.name = "layers.0.mlp.experts.3.up_proj.weight".into());
    assert!(twice.contains("experts.3.up_proj.weight`: is the same part of the model as `"), "{twice}");
    let turned = with(|tensor| tensor.shape.reverse());
    let start = format!("tensor `{name}`: has shape [64, 32] as F32, but `model.layers.0.mlp.experts.0.up_proj");
    assert!(turned.starts_with(&start), "{turned}");
    let other = message_of(&tiny("qwen3moe").stored_as("BF16", |tensor| tensor == name));
    assert!(other.starts_with(&format!("tensor `{name}`: has shape [32, 64] as BF16, but `")), "{other}");
    let unknown = with(|tensor| tensor.name = "model.layers.0.mlp.experts.02.up_proj.weight".into());
    assert!(unknown.contains("number 3, but number 2 is missing") || unknown.contains("has no use for"), "{unknown}");
    let more = setting("qwen3moe", "num_local_experts", json!(8));
    let start = "tensor `model.layers.0.mlp.gate.weight`: has shape [7, 64], but [8, 64] is expected";
    assert_eq!(more, start);
    assert!(setting("qwen3moe", "num_experts_per_tok", None).ends_with("`num_experts_per_tok` is missing"));
    let flat = |wanted: &str| {
        let mut checkpoint = tiny("qwen35");
        let tensor = checkpoint.tensors.iter_mut().find(|tensor| tensor.name.ends_with(wanted)).unwrap();
        tensor.shape.push(1);
        message_of(&checkpoint)
    };
    assert!(flat("0.linear_attn.A_log").contains("has shape [4, 1], but a vector"));
    assert!(flat("0.linear_attn.conv1d.weight").contains("but [channels, 1, taps] is expected"));
}

/// Removes each tensor of a layer in turn.
#[test]
fn missing_layer_tensors_are_refused() {
    for name in ["qwen35", "qwen35moe", "gemma4", "gemma4_uneven", "mixtral"] {
        let all = tiny(name).tensors;
        for index in (0..all.len()).filter(|index| all[*index].name.contains(".layers.")) {
            let mut checkpoint = tiny(name);
            let missing = checkpoint.tensors.remove(index).name;
            // `layer_scalar` is optional.
            if missing.ends_with("layer_scalar") {
                continue;
            }
            let folder = Folder::new();
            let error = open(&checkpoint.write(&folder)).unwrap_err();
            assert!(matches!(error, Error::Tensor { .. } | Error::InvalidFile { .. }), "{name} {missing}: {error}");
        }
    }
}

#[test]
fn tensors_that_contradict_the_config_are_refused() {
    for index in 0..tiny("qwen3").tensors.len() {
        let mut checkpoint = tiny("qwen3");
        let name = checkpoint.tensors[index].name.clone();
        checkpoint.tensors.remove(index);
        let message = message_of(&checkpoint);
        assert!(message.starts_with(&format!("tensor `{name}`: is missing")), "{message}");
        let mut checkpoint = tiny("qwen3");
        let tensor = &mut checkpoint.tensors[index];
        tensor.shape[0] *= 2;
        tensor.data.extend_from_within(..);
        let message = message_of(&checkpoint);
        let expected = match name.as_str() {
            "model.embed_tokens.weight" => "config.json: `vocab_size` is 320, but the embedding has 640 rows".into(),
            _ => format!("tensor `{name}`: has shape ["),
        };
        assert!(message.starts_with(&expected), "{name}: {message}");
    }
    assert!(setting("qwen3", "tie_word_embeddings", json!(false)).starts_with("tensor `lm_head.weight`: is missing"));
    let mut twice = tiny("qwen3");
    twice.tensors.push(Tensor { name: "norm.weight".into(), ..twice.tensors[0].clone() });
    assert!(message_of(&twice).contains("is the same part of the model as `"), "{}", message_of(&twice));
    let mut unused = tiny("qwen3");
    unused.tensors.push(Tensor { name: "score.weight".into(), ..unused.tensors[0].clone() });
    assert!(message_of(&unused).starts_with("tensor `score.weight`: is in the file, but"), "{}", message_of(&unused));
    let mut layers = tiny("qwen3");
    for tensor in layers.tensors.clone().iter().filter(|tensor| tensor.name.starts_with("model.layers.1.")) {
        let name = tensor.name.replacen(".1.", ".01.", 1);
        layers.tensors.push(Tensor { name, ..tensor.clone() });
    }
    assert!(message_of(&layers).starts_with("tensor `model.layers.01."), "{}", message_of(&layers));
}

#[test]
fn tied_output_matrices_are_not_loaded() {
    let mut checkpoint = tiny("qwen3");
    let head = Tensor { name: "lm_head.weight".into(), ..checkpoint.tensors[0].clone() };
    checkpoint.tensors.push(head);
    let folder = Folder::new();
    let gguf = models::open(checkpoint.write(&folder)).unwrap();
    assert!(gguf.tensor("output.weight").is_none());
    let folder = Folder::new();
    let gguf = models::open(checkpoint.with(CONFIG, "tie_word_embeddings", json!(false)).write(&folder)).unwrap();
    assert!(gguf.tensor("output.weight").is_some());
}
