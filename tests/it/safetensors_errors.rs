//! Directories that are no sound model, or one that is not built: each kind has a message of its own, which names the file
//! and the setting or the tensor.

use std::{fs, path::Path};

use inkstone::{
    Error, Runner,
    chat::ChatTemplate,
    gguf::Gguf,
    models::{self, Model},
    tokenizer::Tokenizer,
    weights::Weights,
};
use serde_json::{Value, json};

use crate::support::{
    checkpoint::{Checkpoint, Tensor, file, with_header},
    gguf_file::Folder,
    tiny::MODELS,
};

const CONFIG: &str = "config.json";
const SHARD: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

fn tiny(name: &str) -> Checkpoint {
    Checkpoint::of(MODELS.into_iter().find(|tiny| tiny.0 == name).unwrap())
}

fn open(path: &Path) -> Result<(), Error> {
    let gguf = models::open(path)?;
    Model::from_gguf(&gguf, &Weights::from_gguf(&gguf))?;
    Tokenizer::from_gguf(&gguf).map(|_| ())
}

/// What is said of the directory in the folder, without the folder's name.
fn complaint_in(folder: &Folder) -> String {
    let error = open(folder.path()).unwrap_err();
    let prefix = format!("{}{}", folder.path().display(), std::path::MAIN_SEPARATOR);
    error.to_string().replace(&prefix, "").replace(&folder.path().display().to_string(), "DIR")
}

fn complaint(checkpoint: &Checkpoint) -> String {
    let folder = Folder::new();
    checkpoint.write(&folder);
    complaint_in(&folder)
}

/// What is said of the model with one setting changed, or taken away.
fn setting(name: &str, key: &str, value: impl Into<Option<Value>>) -> String {
    complaint(&tiny(name).with(CONFIG, key, value))
}

#[test]
fn the_sound_ones_are_sound() {
    for name in ["qwen3", "llama", "llama_biased", "smollm3", "gemma3"] {
        let folder = Folder::new();
        open(&tiny(name).write(&folder)).unwrap();
        let folder = Folder::new();
        open(&tiny(name).write_sharded(&folder, 2)).unwrap();
    }
}

#[test]
fn what_is_no_directory_of_safetensors_is_told_apart() {
    let folder = Folder::new();
    let error = |path: &Path| Runner::from_safetensors(path).unwrap_err();
    assert!(matches!(error(&folder.path().join("missing")), Error::Io { .. }));
    let gguf = MODELS[0].path();
    assert!(error(&gguf).to_string().ends_with("config.json and the .safetensors files"), "{}", error(&gguf));
    let empty = "DIR: is a directory without config.json: name a .gguf file, or a directory as transformers writes it";
    assert_eq!(complaint_in(&folder), empty);
    let path = folder.write(SHARD, "");
    let one = "is one file of a model: name the directory that holds it, with config.json";
    assert_eq!(Runner::from_path(&path).unwrap_err().to_string(), format!("{}: {one}", path.display()));
    assert_eq!(Gguf::open(&path).unwrap_err().to_string(), format!("{}: {one}", path.display()));
}

#[test]
fn configs_must_be_objects_of_a_size() {
    let config = |bytes: &[u8]| complaint(&tiny("qwen3").with_file(CONFIG, bytes));
    for bytes in ["", "{", "[]", "null", "7", "\"model_type\"", "{\"a\": Infinity}", "{\"a\": 1e999}"] {
        let message = config(bytes.as_bytes());
        assert!(message.starts_with("config.json: is not the JSON that is wanted: "), "{bytes}: {message}");
    }
    for open in ["[", "{\"a\":"] {
        assert!(config(format!("{{\"a\":{}", open.repeat(100_000)).as_bytes()).contains("recursion limit"), "{open}");
    }
    assert_eq!(
        config(&vec![b' '; (1 << 20) + 1]),
        "config.json: has 1048577 bytes, and 1048576 are the most that such a file can have"
    );
    assert!(config(b"{\"a\": \"\xff\"}").starts_with("config.json: is not UTF-8: "));
}

#[test]
fn families_are_told_by_their_model_type() {
    assert_eq!(setting("qwen3", "model_type", None), "config.json: `model_type` is missing");
    assert_eq!(setting("qwen3", "model_type", json!(7)), "config.json: `model_type` is `7`: a name is wanted");
    let message = setting("qwen3", "model_type", json!("mamba"));
    assert!(message.starts_with("architecture `mamba` is known but not built yet; supported: gemma, "), "{message}");
    assert!(setting("qwen3", "model_type", json!("qwen2_moe")).contains("known but not built yet"));
    assert!(setting("qwen3", "model_type", json!("qwen9")).starts_with("architecture `qwen9` is unknown; "));
    // Another family's, whose norms of queries and keys are not there.
    assert!(setting("qwen3", "model_type", json!("qwen2")).contains("model.layers.0.self_attn"));
}

#[test]
fn sizes_and_constants_are_held_to_their_types_and_ranges() {
    let sizes =
        ["num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "max_position_embeddings"];
    for key in sizes {
        assert_eq!(setting("qwen3", key, None), format!("config.json: `{key}` is missing"));
        for value in [json!(-1), json!(1.5), json!("2"), json!([2]), json!(true), json!(1_u64 << 40)] {
            let message = setting("qwen3", key, value.clone());
            let start = format!("config.json: `{key}` is `");
            assert!(message.starts_with(&start) && message.contains("a whole number from 0 to"), "{value}: {message}");
        }
        for value in [0, u32::MAX] {
            let message = setting("qwen3", key, json!(value));
            let start = format!("config.json: `{key}` is {value}, but must be from 1 to ");
            assert!(message.starts_with(&start), "{message}");
        }
    }
    for (key, value) in [
        ("head_dim", json!(7)),
        ("head_dim", json!(1 << 20)),
        ("num_key_value_heads", json!(2)),
        ("rms_norm_eps", json!(-1.0)),
        ("rms_norm_eps", json!(1e300)),
        ("rms_norm_eps", json!("small")),
        ("tie_word_embeddings", json!("yes")),
        ("rope_theta", json!("large")),
    ] {
        let folder = Folder::new();
        // Where `rope_parameters` has its own base, the other counts for nothing.
        let plain = tiny("qwen3").with(CONFIG, "rope_parameters", None);
        plain.with(CONFIG, key, value.clone()).write(&folder);
        let message = complaint_in(&folder);
        assert!(message.starts_with(&format!("config.json: `{key}` is ")), "{key} {value}: {message}");
    }
}

#[test]
fn settings_that_are_not_built_are_refused_by_name() {
    let cases = [
        ("qwen3", "hidden_act", json!("relu")),
        ("qwen3", "use_sliding_window", json!(true)),
        ("qwen3", "layer_types", json!(["full_attention", "sliding_attention"])),
        ("qwen3", "attention_bias", json!(true)),
        ("qwen3", "partial_rotary_factor", json!(0.5)),
        ("qwen3", "quantization_config", json!({ "quant_method": "fp8" })),
        ("llama", "sliding_window", json!(128)),
        ("llama", "mlp_bias", json!(true)),
        ("llama_biased", "attention_bias", json!(false)),
        ("llama_biased", "mlp_bias", json!(null)),
        ("smollm3", "no_rope_layers", json!([1, 1, 1, 1, 1])),
        ("gemma", "hidden_act", json!("silu")),
        ("gemma2", "use_bidirectional_attention", json!(true)),
        ("gemma2", "layer_types", json!("full_attention")),
        ("gemma2", "layer_types", json!(["linear_attention"])),
        ("gemma3", "attn_logit_softcapping", json!(50.0)),
        ("qwen3moe", "norm_topk_prob", json!(false)),
        ("qwen3moe", "norm_topk_prob", json!(null)),
        ("qwen3moe", "decoder_sparse_step", json!(2)),
        ("qwen3moe", "mlp_only_layers", json!([0])),
        ("mixtral", "sliding_window", json!(128)),
        ("qwen35", "layer_types", json!(["full_attention"])),
        ("qwen35", "layer_types", json!(["sliding_attention"])),
        ("gemma4", "use_bidirectional_attention", json!("all")),
        ("gemma4", "layer_types", json!(["full_attention"])),
        ("gemma4", "layer_types", json!(["sliding_attention"].repeat(6))),
        ("gemma4", "per_layer_config", json!([])),
        ("gemma4", "attention_k_eq_v", json!(true)),
        ("gemma4_uneven", "attention_k_eq_v", json!(false)),
    ];
    for (name, key, value) in cases {
        let message = setting(name, key, value);
        let named =
            ["", "rope_parameters."].iter().any(|of| message.starts_with(&format!("config.json: `{of}{key}` ")));
        assert!(named, "{name}: {message}");
    }
    assert!(setting("qwen3", "quantization_config", json!({})).ends_with("use a GGUF file"));
    let relu = "config.json: `hidden_act` is `relu`, which is not built yet for this architecture: silu or swish is";
    assert_eq!(setting("qwen3", "hidden_act", json!("relu")), relu);
    // A pattern of another length than the layers.
    assert!(
        setting("gemma2", "layer_types", json!(["full_attention"])).starts_with("config.json: `layer_types` is no")
    );
}

#[test]
fn layers_of_their_own_sizes_are_held_to_what_is_built() {
    let cases = [
        ("6", json!({}), "per_layer_config.6"),
        ("01", json!({ "head_dim": 2 }), "per_layer_config.01"),
        ("0", json!(7), "per_layer_config.0"),
        ("0", json!({ "head_dim": -1 }), "per_layer_config.0.head_dim"),
        ("0", json!({ "num_key_value_heads": 0.5 }), "per_layer_config.0.num_key_value_heads"),
        ("0", json!({ "intermediate_size": 64 }), "per_layer_config.0.intermediate_size"),
        ("0", json!({ "head_dim": 32 }), "per_layer_config"),
    ];
    for (layer, value, named) in cases {
        let message = setting("gemma4", "per_layer_config", json!({ layer: value, "3": { "head_dim": 32 } }));
        assert!(message.starts_with(&format!("config.json: `{named}` ")), "{message}");
    }
    for key in ["layer_types", "rope_parameters", "intermediate_size"] {
        assert_eq!(setting("gemma4", key, None), format!("config.json: `{key}` is missing"));
    }
    for key in ["num_experts", "top_k_experts", "moe_intermediate_size"] {
        assert_eq!(setting("gemma4_uneven", key, None), format!("config.json: `{key}` is missing"));
    }
    for value in [0.0, -1.0, 1.5] {
        let message = setting("qwen35", "rope_parameters", json!({ "partial_rotary_factor": value }));
        assert!(message.starts_with("config.json: `rope_parameters.partial_rotary_factor` is "), "{message}");
    }
}

/// As configs were before transformers gave layers settings of their own.
#[test]
fn kinds_of_layers_may_have_their_sizes() {
    let folder = Folder::new();
    let checkpoint = tiny("gemma4_uneven").with(CONFIG, "per_layer_config", None);
    let checkpoint = checkpoint.with(CONFIG, "global_head_dim", json!(32));
    open(&checkpoint.clone().with(CONFIG, "num_global_key_value_heads", json!(1)).write(&folder)).unwrap();
    let message = complaint(&checkpoint);
    assert!(message.starts_with("tensor `model.layers.1.self_attn.k_proj.weight`: has shape [32, 32]"), "{message}");
}

#[test]
fn stacks_of_experts_are_held_together() {
    let with = |change: fn(&mut Tensor)| {
        let mut checkpoint = tiny("qwen3moe");
        checkpoint.tensors.iter_mut().filter(|tensor| tensor.name.contains("0.mlp.experts.2.up_proj")).for_each(change);
        complaint(&checkpoint)
    };
    let name = "model.layers.0.mlp.experts.2.up_proj.weight";
    let missing = with(|tensor| tensor.name = "model.layers.0.mlp.experts.9.up_proj.weight".into());
    assert_eq!(missing, "tensor `model.layers.0.mlp.experts.3.up_proj.weight`: is number 3, but number 2 is missing");
    let twice = with(|tensor| tensor.name = "layers.0.mlp.experts.3.up_proj.weight".into());
    assert!(twice.contains("experts.3.up_proj.weight`: is the same part of the model as `"), "{twice}");
    let turned = with(|tensor| tensor.shape.reverse());
    let start = format!("tensor `{name}`: has the shape [64, 32] as F32, but `model.layers.0.mlp.experts.0.up_proj");
    assert!(turned.starts_with(&start), "{turned}");
    let other = complaint(&tiny("qwen3moe").stored_as("BF16", |tensor| tensor == name));
    assert!(other.starts_with(&format!("tensor `{name}`: has the shape [32, 64] as BF16, but `")), "{other}");
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
        complaint(&checkpoint)
    };
    assert!(flat("0.linear_attn.A_log").contains("has the shape [4, 1], but must be a vector"));
    assert!(flat("0.linear_attn.conv1d.weight").contains("but [channels, 1, taps] is wanted"));
}

#[test]
fn rotary_parameters_are_held_to_what_is_built() {
    let plain = json!({ "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128 });
    let with = |key: &str, value: Value| {
        let mut parameters = plain.as_object().unwrap().clone();
        parameters.insert(key.into(), value);
        json!(parameters)
    };
    let llama3 = |low: f64, high: f64, factor: f64| {
        json!({ "rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high,
            "original_max_position_embeddings": 64 })
    };
    let cases = [
        ("rope_type", with("rope_type", json!("dynamic"))),
        ("short_factor", with("rope_type", json!("longrope"))),
        ("rope_type", with("rope_type", json!(7))),
        ("factor", with("factor", json!(0))),
        ("factor", with("factor", json!(null))),
        ("factor", with("factor", json!(0.5))),
        ("beta_fast", with("beta_fast", json!(16))),
        ("attention_factor", with("attention_factor", json!(1.0))),
        ("mscale", with("mscale", json!(1.0))),
        ("truncate", with("truncate", json!(false))),
        ("original_max_position_embeddings", with("original_max_position_embeddings", json!(-5))),
        ("full_attention", json!({ "full_attention": { "rope_type": "default" } })),
        ("factor", llama3(1.0, 4.0, 0.0)),
        ("low_freq_factor", llama3(0.0, 4.0, 8.0)),
        ("factor", json!({ "type": "linear" })),
    ];
    for (key, parameters) in cases {
        for name in ["rope_scaling", "rope_parameters"] {
            let message =
                complaint(&tiny("llama").with(CONFIG, "rope_parameters", None).with(CONFIG, name, parameters.clone()));
            let named = message.starts_with("config.json: `rope_") && message.contains(&format!(".{key}` "));
            assert!(named, "{parameters}: {message}");
        }
    }
    assert_eq!(setting("llama", "rope_parameters", json!([])), "config.json: `rope_parameters` is no object");
    let stretched = |key: &str, value: Value| {
        let mut parameters = tiny("phi3_long").json(CONFIG)["rope_parameters"].clone();
        parameters[key] = value;
        setting("phi3_long", "rope_parameters", parameters)
    };
    for (key, value) in [
        ("short_factor", json!(null)),
        ("long_factor", json!([])),
        ("long_factor", json!([1.0, 0.0, 1.0, 1.0, 1.0, 1.0])),
        ("long_factor", json!([1.0, 1e300, 1.0, 1.0, 1.0, 1.0])),
        ("short_factor", json!(["1"])),
        ("factor", json!(-1.0)),
        ("attention_factor", json!(0.0)),
        ("attention_factor", json!("1")),
        ("partial_rotary_factor", json!(2.0)),
    ] {
        let message = stretched(key, value);
        assert!(message.starts_with(&format!("config.json: `rope_parameters.{key}` is ")), "{message}");
    }
    let few = stretched("long_factor", json!([1.0]));
    assert_eq!(few, "tensor `rope_factors_long.weight`: has shape [1], but [1, 6] is expected");
    let beside = "original_max_position_embeddings";
    assert_eq!(setting("phi3_long", beside, json!(0)), format!("config.json: `{beside}` is 0, but must be above 0"));
    // What YaRN grows by unless it is said.
    let said = with("attention_factor", json!(1.138_629_436_111_989));
    let folder = Folder::new();
    open(&tiny("qwen3").with(CONFIG, "rope_parameters", said).write(&folder)).unwrap();
}

/// Of these families' own layers none goes unnoticed.
#[test]
fn every_tensor_of_a_layer_is_needed() {
    for name in ["qwen35", "qwen35moe", "gemma4", "gemma4_uneven", "mixtral"] {
        let all = tiny(name).tensors;
        for index in (0..all.len()).filter(|index| all[*index].name.contains(".layers.")) {
            let mut checkpoint = tiny(name);
            let missing = checkpoint.tensors.remove(index).name;
            // An expert that is the last of its stack leaves a smaller one; one scale is not there in all models.
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
fn tensors_are_held_to_the_config() {
    for index in 0..tiny("qwen3").tensors.len() {
        let mut checkpoint = tiny("qwen3");
        let name = checkpoint.tensors[index].name.clone();
        checkpoint.tensors.remove(index);
        let message = complaint(&checkpoint);
        assert!(message.starts_with(&format!("tensor `{name}`: is missing")), "{message}");
        let mut checkpoint = tiny("qwen3");
        let tensor = &mut checkpoint.tensors[index];
        tensor.shape[0] *= 2;
        tensor.data.extend_from_within(..);
        let message = complaint(&checkpoint);
        let expected = match name.as_str() {
            "model.embed_tokens.weight" => "config.json: `vocab_size` is 320, but the embedding has 640 rows".into(),
            _ => format!("tensor `{name}`: has shape ["),
        };
        assert!(message.starts_with(&expected), "{name}: {message}");
    }
    assert!(setting("qwen3", "tie_word_embeddings", json!(false)).starts_with("tensor `lm_head.weight`: is missing"));
    let mut twice = tiny("qwen3");
    twice.tensors.push(Tensor { name: "norm.weight".into(), ..twice.tensors[0].clone() });
    assert!(complaint(&twice).contains("is the same part of the model as `"), "{}", complaint(&twice));
    let mut unused = tiny("qwen3");
    unused.tensors.push(Tensor { name: "score.weight".into(), ..unused.tensors[0].clone() });
    assert!(complaint(&unused).starts_with("tensor `score.weight`: is in the file, but"), "{}", complaint(&unused));
    let mut layers = tiny("qwen3");
    for tensor in layers.tensors.clone().iter().filter(|tensor| tensor.name.starts_with("model.layers.1.")) {
        let name = tensor.name.replacen(".1.", ".01.", 1);
        layers.tensors.push(Tensor { name, ..tensor.clone() });
    }
    assert!(complaint(&layers).starts_with("tensor `model.layers.01."), "{}", complaint(&layers));
}

#[test]
fn a_head_that_is_tied_is_the_embedding() {
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

#[test]
fn other_formats_of_tensors_are_refused() {
    for (dtype, bytes) in [("F8_E4M3", 1), ("I8", 1), ("U8", 1), ("I64", 8), ("F64", 8), ("BOOL", 1)] {
        let mut checkpoint = tiny("qwen3");
        let tensor = &mut checkpoint.tensors[3];
        tensor.dtype = dtype.into();
        tensor.data = vec![0; tensor.shape.iter().product::<usize>() * bytes];
        let expected = format!("tensor `{}`: is stored as {dtype}: ", tensor.name);
        assert!(complaint(&checkpoint).starts_with(&expected), "{}", complaint(&checkpoint));
    }
    let mut checkpoint = tiny("qwen3");
    checkpoint.tensors[3].dtype = "Q4_K".into();
    assert!(complaint(&checkpoint).starts_with("model.safetensors: is no sound safetensors file"));
    let mut empty = tiny("qwen3");
    empty.tensors.push(Tensor { name: "model.none".into(), dtype: "F32".into(), shape: vec![0, 4], data: vec![] });
    assert_eq!(complaint(&empty), "tensor `model.none`: has a dimension of length 0: [0, 4]");
}

/// What is said where this is the file of tensors.
fn shard(bytes: impl AsRef<[u8]>) -> String {
    let folder = Folder::new();
    tiny("qwen3").write(&folder);
    folder.write(SHARD, bytes);
    complaint_in(&folder)
}

#[test]
fn files_of_tensors_must_be_sound() {
    assert_eq!(shard(""), "model.safetensors: is empty");
    let sound = file(&tiny("qwen3").tensors);
    for len in [1, 7, 8, 9, 200, sound.len() / 2, sound.len() - 1] {
        assert!(shard(&sound[..len]).starts_with("model.safetensors: "), "{len}");
    }
    assert!(shard([&sound[..], &[0]].concat()).starts_with("model.safetensors: is no sound safetensors file"));
    for len in [1 << 25, 1 << 40, u64::MAX] {
        let claimed =
            format!("model.safetensors: claims a header of {len} bytes, so it is damaged or no safetensors file");
        assert_eq!(shard([&len.to_le_bytes()[..], &sound[8..]].concat()), claimed);
    }
    let header = |text: &str| shard(with_header(text, &[0; 16]));
    let unsound = [
        "".to_owned(),
        "[]".into(),
        "{".into(),
        r#"{"a":7}"#.into(),
        r#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,15]}}"#.into(),
        r#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}}"#.into(),
        r#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[4,20]}}"#.into(),
        r#"{"a":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}}"#.into(),
        r#"{"a":{"dtype":"F32","shape":[18446744073709551615,2],"data_offsets":[0,16]}}"#.into(),
        r#"{"a":{"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,16]}}"#.into(),
        r#"{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"b":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}"#.into(),
        r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}"#.into(),
        format!("{{\"a\":{}", "[".repeat(100_000)),
    ];
    for text in unsound {
        let message = header(&text);
        let start = &text[..text.len().min(80)];
        assert!(message.starts_with("model.safetensors: is no sound safetensors file"), "{start}: {message}");
    }
    let pointer =
        "model.safetensors: is a Git LFS pointer to the tensors, not the tensors: fetch them with `git lfs pull`";
    assert_eq!(shard("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), pointer);
    let folder = Folder::new();
    tiny("qwen3").write(&folder);
    fs::remove_file(folder.path().join(SHARD)).unwrap();
    let none = "DIR: holds neither model.safetensors nor model.safetensors.index.json: weights in other formats are to be saved as safetensors";
    assert_eq!(complaint_in(&folder), none);
    fs::create_dir(folder.path().join(SHARD)).unwrap();
    assert_eq!(complaint_in(&folder), "model.safetensors: is a directory, not a file");
}

#[test]
fn an_index_names_files_beside_it_that_hold_what_it_says() {
    let folder = Folder::new();
    tiny("qwen3").write_sharded(&folder, 2);
    let sound: Value = serde_json::from_slice(&fs::read(folder.path().join(INDEX)).unwrap()).unwrap();
    let name = "model.norm.weight";
    let with = |file: &str| {
        let mut index = sound.clone();
        index["weight_map"][name] = json!(file);
        folder.write(INDEX, index.to_string());
        complaint_in(&folder)
    };
    let outside = [
        "../model.safetensors",
        "/etc/model.safetensors",
        "a/b.safetensors",
        "C:model.safetensors",
        "..",
        "",
        "config.json",
    ];
    for file in outside.into_iter().chain(["..\\model.safetensors"]) {
        let message = with(file);
        assert!(message.starts_with(&format!("{INDEX}: names the file `")), "{file}: {message}");
        assert!(message.ends_with("which is no .safetensors file beside it"), "{file}: {message}");
    }
    let missing = with("model-00003-of-00002.safetensors");
    assert!(missing.starts_with("model-00003-of-00002.safetensors: "), "{missing}");
    let other = sound["weight_map"].as_object().unwrap().values().find(|file| **file != sound["weight_map"][name]);
    let other = other.unwrap().as_str().unwrap();
    assert_eq!(with(other), format!("{INDEX}: tensor `{name}` is not in `{other}`"));
    let mut index = sound.clone();
    index["weight_map"]["model.none.weight"] = json!(other);
    folder.write(INDEX, index.to_string());
    assert_eq!(complaint_in(&folder), format!("{INDEX}: tensor `model.none.weight` is not in `{other}`"));
    for text in ["", "[]", "{}", r#"{"weight_map":7}"#, r#"{"weight_map":{"a":7}}"#] {
        folder.write(INDEX, text);
        assert!(complaint_in(&folder).starts_with(&format!("{INDEX}: is not the JSON that is wanted: ")), "{text}");
    }
    folder.write(INDEX, sound.to_string());
    folder.write(other, file(&tiny("qwen3").tensors));
    let message = complaint_in(&folder);
    assert!(message.starts_with(&format!("{INDEX}: tensor `")) && message.contains("` is in `model-0000"), "{message}");
}

#[test]
fn tokenizers_that_cannot_be_used_are_named() {
    let without = |file: &str| {
        let mut checkpoint = tiny("qwen3");
        checkpoint.files.retain(|(name, _)| name != file);
        let folder = Folder::new();
        open(&checkpoint.write(&folder)).map_err(|e| e.to_string())
    };
    let missing = without("tokenizer.json").unwrap_err();
    assert!(missing.contains("tokenizer.json: is missing, and a vocabulary in another form is not read"), "{missing}");
    without("tokenizer_config.json").unwrap();
    without("generation_config.json").unwrap();
    let broken = |file: &str, text: &str| complaint(&tiny("qwen3").with_file(file, text));
    for file in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        for text in ["", "[7]", "7", "{"] {
            assert!(
                broken(file, text).starts_with(&format!("{file}: is not the JSON that is wanted: ")),
                "{file} {text}"
            );
        }
    }
    let mut vacant = tiny("qwen3").with_file("tokenizer.json", "{}");
    vacant.files.retain(|(name, _)| name != "tokenizer_config.json");
    assert!(complaint(&vacant).starts_with("metadata key `tokenizer.huggingface.json`: "), "{}", complaint(&vacant));
    let unknown = complaint(&tiny("qwen3").with("tokenizer_config.json", "eos_token", json!("<|none|>")));
    assert_eq!(unknown, "tokenizer_config.json: names the token `<|none|>`, which is no added token of tokenizer.json");
    for ids in [json!("</s>"), json!(-1), json!([1, 1.5]), json!(1_u64 << 40)] {
        let message = complaint(&tiny("qwen3").with("generation_config.json", "eos_token_id", ids));
        assert_eq!(message, "generation_config.json: `eos_token_id` is neither a token's id nor a list of them");
    }
    let past = complaint(&tiny("qwen3").with("generation_config.json", "eos_token_id", json!([2, 320])));
    assert_eq!(past, "metadata key `tokenizer.ggml.eos_token_ids`: has 320, but there are only 320 tokens");
}

#[test]
fn what_ends_a_text_is_what_any_of_the_files_name() {
    let ends = |checkpoint: Checkpoint| {
        let folder = Folder::new();
        let gguf = models::open(checkpoint.write(&folder)).unwrap();
        Tokenizer::from_gguf(&gguf).unwrap().end_of_generation().to_vec()
    };
    let plain = ends(tiny("qwen3"));
    let more = ends(tiny("qwen3").with("generation_config.json", "eos_token_id", json!([7, 5])));
    assert_eq!(more, [&[5, 7], &plain[..]].concat());
    let of_config = ends(tiny("qwen3").with(CONFIG, "eos_token_id", json!([9])));
    assert!(of_config.contains(&9), "{of_config:?}");
}

#[test]
fn marks_are_added_as_the_configs_say() {
    let prompt = |checkpoint: Checkpoint| {
        let folder = Folder::new();
        let gguf = models::open(checkpoint.write(&folder)).unwrap();
        Tokenizer::from_gguf(&gguf).unwrap().encode_prompt("fox").unwrap()
    };
    let [bos, text @ ..] = &prompt(tiny("llama"))[..] else { panic!() };
    let with = |flag: &str, value: bool| tiny("llama").with("tokenizer_config.json", flag, json!(value));
    assert_eq!(prompt(with("add_bos_token", false)), text);
    assert_eq!(prompt(with("add_bos_token", true)), [&[*bos], text].concat());
    assert_eq!(prompt(tiny("qwen3").with("tokenizer_config.json", "add_bos_token", json!(false))).len(), text.len());
}

#[test]
fn chat_templates_come_from_any_of_three_places() {
    let template = |checkpoint: Checkpoint| {
        let folder = Folder::new();
        let gguf = models::open(checkpoint.write(&folder)).unwrap();
        let template = ChatTemplate::from_gguf(&gguf, &Tokenizer::from_gguf(&gguf).unwrap());
        template.and_then(|template| template.render(&[inkstone::Message::user("Hi")], &Default::default()))
    };
    assert!(matches!(template(tiny("qwen3")), Err(Error::ChatTemplate(_))));
    let with = |value: Value| tiny("qwen3").with("tokenizer_config.json", "chat_template", value);
    assert_eq!(template(with(json!("{{ eos_token }}one"))).unwrap(), "<|im_end|>one");
    let several = json!([{ "name": "tool_use", "template": "two" }, { "name": "default", "template": "three" }]);
    assert_eq!(template(with(several)).unwrap(), "three");
    let own = with(json!("one")).with_file("chat_template.jinja", "{{ messages[0].content }}");
    assert_eq!(template(own).unwrap(), "Hi");
}
