//! Mutates valid model directories: opening any files must return an error or tensors within the
//! files, without a panic and with memory proportional to the file sizes.

use inkstone::{
    internals::{
        models::{self, Model},
        weights::Weights,
    },
    tokenizer::{SpecialTokens, Tokenizer},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{
    allocation::peak_during,
    checkpoint::{Checkpoint, Tensor, file, setting, with_header},
    gguf_file::Folder,
    tiny::MODELS,
};

/// Returns the maximum number of bytes that opening may allocate. Parsed JSON takes up to fifty
/// times the size of its text; the constant covers paths, messages and the first entries of tables.
fn memory_limit(len: usize) -> usize {
    64 * len + (1 << 16)
}

/// Names and bytes of a directory's files.
type Files = Vec<(String, Vec<u8>)>;

/// Writes the files, opens the directory and reads all of its content. Returns whether it is valid.
fn exercise(files: &Files) -> bool {
    let folder = Folder::new();
    for (name, bytes) in files {
        folder.write(name, bytes);
    }
    let len = files.iter().map(|(_, bytes)| bytes.len()).sum();
    let (opened, peak) = peak_during(|| models::open(folder.path()));
    assert!(peak <= memory_limit(len), "opening {len} bytes took {peak}: {opened:?}");
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

/// Returns a Qwen3 model of one layer, with the vocabulary of a tiny model.
fn one_layer() -> Checkpoint {
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

fn single_file() -> Files {
    let checkpoint = one_layer();
    let mut files = checkpoint.files.clone();
    files.push(("model.safetensors".into(), file(&checkpoint.tensors)));
    files
}

fn sharded() -> Files {
    let checkpoint = one_layer();
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
fn unmutated_directories_are_valid() {
    assert!(exercise(&single_file()) && exercise(&sharded()));
}

#[test]
fn directories_with_a_truncated_file_are_refused() {
    for files in [single_file(), sharded()] {
        for index in 0..files.len() {
            // A missing final newline is valid.
            let len = files[index].1.trim_ascii_end().len();
            for at in (0..len).step_by((len / 60).max(1)) {
                let mut truncated = files.clone();
                truncated[index].1.truncate(at);
                assert!(!exercise(&truncated), "{} after {at} bytes", files[index].0);
            }
        }
    }
}

/// Reads tensors that are not aligned to 8 bytes, which are copied.
#[test]
fn tensors_of_any_alignment_are_read() {
    let checkpoint = one_layer();
    for padding in 0..8 {
        let bytes = file(&checkpoint.tensors);
        let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let text = str::from_utf8(&bytes[8..8 + header]).unwrap().to_owned() + &" ".repeat(padding);
        let mut files = checkpoint.files.clone();
        files.push(("model.safetensors".into(), with_header(&text, &bytes[8 + header..])));
        assert!(exercise(&files), "{padding}");
    }
}

/// Opens files of tiny JSON values, for which the ratio of memory to file size is largest.
#[test]
fn memory_stays_proportional_for_files_of_tiny_values() {
    const LEN: usize = 1 << 19;
    let with = |name: &str, text: String| {
        let mut files = single_file();
        files.retain(|(other, _)| other != name);
        files.push((name.into(), text.into_bytes()));
        files
    };
    let entries = |entry: &dyn Fn(usize) -> String, count: usize| (0..count).map(entry).collect::<Vec<_>>().join(",");
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
        let mut files = single_file();
        files.pop();
        files.push(("model.safetensors".into(), with_header(&text, &[])));
        exercise(&files);
    }
}

/// Returns arbitrary values of a setting.
fn value() -> impl Strategy<Value = Value> {
    setting(
        "silu|gelu|default|linear|yarn|llama3|full_attention|sliding_attention|qwen3|llama|gemma3_text|x",
        "rope_type|factor|rope_theta|low_freq_factor|high_freq_factor|original_max_position_embeddings|full_attention",
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_settings_are_handled(
        model_type in "qwen3|qwen2|llama|smollm3|gemma|gemma2|gemma3_text|gemma4_text|granite|phi3|mixtral|qwen3_moe|qwen3_5_text|qwen3_5_moe_text|qwen2_vl|qwen3_vl_text|qwen3_vl_moe_text",
        changes in prop::collection::vec((any::<prop::sample::Index>(), value()), 1..5),
        more in prop::collection::vec(("rope_scaling|rope_parameters|text_config|layer_types|no_rope_layers|sliding_window", value()), 0..3),
    ) {
        let checkpoint = one_layer();
        let mut config = checkpoint.json("config.json");
        let keys: Vec<_> = config.keys().cloned().collect();
        config.insert("model_type".into(), json!(model_type));
        for (index, value) in changes {
            config.insert(index.get(&keys).clone(), value);
        }
        config.extend(more);
        let mut files = single_file();
        files.retain(|(name, _)| name != "config.json");
        files.push(("config.json".into(), serde_json::to_vec(&config).unwrap()));
        exercise(&files);
    }

    #[test]
    fn mutated_files_are_handled(
        is_sharded in any::<bool>(),
        file in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..4), 1..5),
    ) {
        let mut files = if is_sharded { sharded() } else { single_file() };
        let (name, bytes) = &mut files[file.index(if is_sharded { 7 } else { 5 })];
        for (at, byte, how) in changes {
            // Of safetensors files, only the header.
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
