//! Sound directories made unsound: whatever the files hold, opening and reading them ends, with an error or with tensors
//! that lie in the files, without a panic, and holding memory in proportion to them.

use inkstone::{
    models::{self, Model},
    tokenizer::{SpecialTokens, Tokenizer},
    weights::Weights,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{
    allocation::peak_during,
    checkpoint::{Checkpoint, Tensor, file, with_header},
    gguf_file::Folder,
    tiny::MODELS,
};

/// The most that opening may hold: parsed JSON takes up to fifty times its text. Beyond that: paths, messages, the first few
/// entries of tables.
fn bound(len: usize) -> usize {
    64 * len + (1 << 16)
}

/// The names and bytes of a directory's files.
type Files = Vec<(String, Vec<u8>)>;

/// Writes the files, opens the directory and reads all that is in it. Says whether it was sound.
fn exercise(files: &Files) -> bool {
    let folder = Folder::new();
    for (name, bytes) in files {
        folder.write(name, bytes);
    }
    let len = files.iter().map(|(_, bytes)| bytes.len()).sum();
    let (opened, peak) = peak_during(|| models::open(folder.path()));
    assert!(peak <= bound(len), "opening {len} bytes took {peak}: {opened:?}");
    let Ok(gguf) = opened else { return false };
    for tensor in gguf.tensors() {
        let bytes = gguf.bytes(tensor);
        assert!(bytes.len() <= 2 * len && bytes.as_ptr().addr().is_multiple_of(8));
        std::hint::black_box(bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>());
    }
    let built = Model::from_gguf(&gguf, &Weights::from_gguf(&gguf)).is_ok();
    let Ok(tokenizer) = Tokenizer::from_gguf(&gguf) else { return false };
    if let Ok(ids) = tokenizer.encode("the fox<|im_end|>", SpecialTokens::Parse) {
        let _ = tokenizer.decode(&ids);
    }
    built
}

/// One layer of Qwen3, with the vocabulary of a tiny model.
fn small() -> Checkpoint {
    let mut checkpoint = Checkpoint::of(MODELS[0]);
    let sizes = [
        ("num_hidden_layers", 1),
        ("hidden_size", 4),
        ("intermediate_size", 6),
        ("num_attention_heads", 2),
        ("num_key_value_heads", 1),
        ("head_dim", 2),
    ];
    for (key, size) in sizes {
        checkpoint = checkpoint.with("config.json", key, json!(size));
    }
    let shapes: [(&str, &[usize]); 13] = [
        ("embed_tokens", &[320, 4]),
        ("norm", &[4]),
        ("layers.0.input_layernorm", &[4]),
        ("layers.0.post_attention_layernorm", &[4]),
        ("layers.0.self_attn.q_proj", &[4, 4]),
        ("layers.0.self_attn.k_proj", &[2, 4]),
        ("layers.0.self_attn.v_proj", &[2, 4]),
        ("layers.0.self_attn.o_proj", &[4, 4]),
        ("layers.0.self_attn.q_norm", &[2]),
        ("layers.0.self_attn.k_norm", &[2]),
        ("layers.0.mlp.gate_proj", &[6, 4]),
        ("layers.0.mlp.up_proj", &[6, 4]),
        ("layers.0.mlp.down_proj", &[4, 6]),
    ];
    let tensor = |(name, shape): &(&str, &[usize])| Tensor {
        name: format!("model.{name}.weight"),
        dtype: "BF16".into(),
        shape: shape.to_vec(),
        data: vec![1; 2 * shape.iter().product::<usize>()],
    };
    checkpoint.tensors = shapes.iter().map(tensor).collect();
    checkpoint
}

fn whole() -> Files {
    let checkpoint = small();
    let mut files = checkpoint.files.clone();
    files.push(("model.safetensors".into(), file(&checkpoint.tensors)));
    files
}

fn sharded() -> Files {
    let checkpoint = small();
    let mut files = checkpoint.files.clone();
    let mut map = serde_json::Map::new();
    for (name, tensors) in ["a.safetensors", "b.safetensors"].into_iter().zip(checkpoint.tensors.chunks(7)) {
        files.push((name.into(), file(tensors)));
        map.extend(tensors.iter().map(|tensor| (tensor.name.clone(), json!(name))));
    }
    files.push(("model.safetensors.index.json".into(), json!({ "weight_map": map }).to_string().into()));
    files
}

#[test]
fn the_directories_that_are_mutated_are_sound() {
    assert!(exercise(&whole()) && exercise(&sharded()));
}

#[test]
fn any_file_cut_off_anywhere_is_an_error_or_says_less() {
    for files in [whole(), sharded()] {
        for which in 0..files.len() {
            // But for the end of the last line.
            let len = files[which].1.trim_ascii_end().len();
            for at in (0..len).step_by((len / 60).max(1)) {
                let mut cut = files.clone();
                cut[which].1.truncate(at);
                assert!(!exercise(&cut), "{} after {at} bytes", files[which].0);
            }
        }
    }
}

/// Tensors that do not lie at a multiple of 8 are copied there.
#[test]
fn tensors_anywhere_in_a_file_are_read() {
    let checkpoint = small();
    for padding in 0..8 {
        let bytes = file(&checkpoint.tensors);
        let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let text = str::from_utf8(&bytes[8..8 + header]).unwrap().to_owned() + &" ".repeat(padding);
        let mut files = checkpoint.files.clone();
        files.push(("model.safetensors".into(), with_header(&text, &bytes[8 + header..])));
        assert!(exercise(&files), "{padding}");
    }
}

/// Files of small things in great number, so that memory is largest beside them.
#[test]
fn memory_is_bounded_where_a_file_is_all_small_things() {
    const LEN: usize = 1 << 19;
    let with = |name: &str, text: String| {
        let mut files = whole();
        files.retain(|(other, _)| other != name);
        files.push((name.into(), text.into_bytes()));
        files
    };
    let entries = |one: &dyn Fn(usize) -> String, count: usize| (0..count).map(one).collect::<Vec<_>>().join(",");
    for text in [
        format!("{{\"a\":[{}]}}", entries(&|_| "0".into(), LEN / 2)),
        format!("{{\"a\":[{}]}}", entries(&|_| "[]".into(), LEN / 3)),
        format!("{{{}}}", entries(&|n| format!("\"{n:x}\":0"), LEN / 10)),
    ] {
        for name in ["config.json", "tokenizer_config.json", "generation_config.json", "tokenizer.json"] {
            exercise(&with(name, text.clone()));
        }
        let mut files = with("model.safetensors.index.json", text.replace("\"a\"", "\"weight_map\""));
        files.retain(|(name, _)| name != "model.safetensors");
        exercise(&files);
        exercise(&with("model.safetensors", String::from_utf8(with_header(&text, &[])).unwrap_or_default()));
        let mut files = whole();
        files.pop();
        files.push(("model.safetensors".into(), with_header(&text, &[])));
        exercise(&files);
    }
}

/// A setting of any value.
fn value() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        any::<i64>().prop_map(|n| json!(n)),
        any::<f64>().prop_map(|x| json!(x)),
        (0_i64..9).prop_map(|n| json!(n)),
        (0_u32..64).prop_map(|bit| json!(1_u64 << bit)),
    ];
    let leaf = prop_oneof![
        4 => number,
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        2 => "silu|gelu|default|linear|yarn|llama3|full_attention|sliding_attention|qwen3|llama|gemma3_text|x".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 4, |inner| {
        let key = "rope_type|factor|rope_theta|low_freq_factor|high_freq_factor|original_max_position_embeddings|full_attention";
        let object = prop::collection::vec((key, inner.clone()), 0..5);
        prop_oneof![
            prop::collection::vec(inner, 0..3).prop_map(Value::from),
            object.prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn settings_of_any_value_do_no_harm(
        model_type in "qwen3|qwen2|llama|smollm3|gemma|gemma2|gemma3_text|gemma4_text|granite|phi3|mixtral|qwen3_moe|qwen3_5_text|qwen3_5_moe_text",
        changes in prop::collection::vec((any::<prop::sample::Index>(), value()), 1..5),
        more in prop::collection::vec(("rope_scaling|rope_parameters|text_config|layer_types|no_rope_layers|sliding_window", value()), 0..3),
    ) {
        let checkpoint = small();
        let mut config = checkpoint.json("config.json");
        let keys: Vec<_> = config.keys().cloned().collect();
        config.insert("model_type".into(), json!(model_type));
        for (index, value) in changes {
            config.insert(index.get(&keys).clone(), value);
        }
        config.extend(more);
        let mut files = whole();
        files.retain(|(name, _)| name != "config.json");
        files.push(("config.json".into(), serde_json::to_vec(&config).unwrap()));
        exercise(&files);
    }

    #[test]
    fn mutated_files_do_no_harm(
        shards in any::<bool>(),
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..4), 1..5),
    ) {
        let mut files = if shards { sharded() } else { whole() };
        let (name, bytes) = &mut files[which.index(if shards { 7 } else { 5 })];
        for (at, byte, how) in changes {
            // Of files of tensors, the header.
            let end = if name.ends_with(".safetensors") { bytes.len().min(1500) } else { bytes.len() };
            let at = at.index(end);
            match how {
                0 => bytes[at] ^= byte | 1,
                1 => bytes[at] = b"0123456789{}[],:\"-e."[byte as usize % 20],
                2 => drop(bytes.remove(at)),
                _ => bytes.insert(at, byte),
            }
        }
        exercise(&files);
    }
}
