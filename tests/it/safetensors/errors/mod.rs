//! Tests the error message of each kind of invalid or unsupported model directory: it names the
//! file and the setting or tensor.

mod config;
mod tensors;

use std::{fs, path::Path};

use inkstone::{
    Error, Runner,
    chat::ChatTemplate,
    gguf::Gguf,
    internals::{
        models::{self, Model},
        weights::Weights,
    },
    tokenizer::Tokenizer,
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

/// Returns the error message for the model in `folder`, without the folder's path.
fn message_in(folder: &Folder) -> String {
    let error = open(folder.path()).unwrap_err();
    let prefix = format!("{}{}", folder.path().display(), std::path::MAIN_SEPARATOR);
    error.to_string().replace(&prefix, "").replace(&folder.path().display().to_string(), "DIR")
}

/// Returns the error message for a model.
fn message_of(checkpoint: &Checkpoint) -> String {
    let folder = Folder::new();
    checkpoint.write(&folder);
    message_in(&folder)
}

/// Returns the error message for a tiny model with one setting changed, or removed.
fn setting(name: &str, key: &str, value: impl Into<Option<Value>>) -> String {
    message_of(&tiny(name).with(CONFIG, key, value))
}

#[test]
fn valid_directories_load() {
    for name in ["qwen3", "llama", "llama_biased", "smollm3", "gemma3"] {
        let folder = Folder::new();
        open(&tiny(name).write(&folder)).unwrap();
        let folder = Folder::new();
        open(&tiny(name).write_sharded(&folder, 2)).unwrap();
    }
}

#[test]
fn paths_of_other_kinds_are_recognized() {
    let folder = Folder::new();
    let error = |path: &Path| Runner::from_safetensors(path).unwrap_err();
    assert!(matches!(error(&folder.path().join("missing")), Error::Io { .. }));
    let gguf = MODELS[0].path();
    assert!(error(&gguf).to_string().ends_with("config.json and the .safetensors files"), "{}", error(&gguf));
    let empty = "DIR: contains no config.json: pass a .gguf file, or a model directory saved by transformers";
    assert_eq!(message_in(&folder), empty);
    let path = folder.write(SHARD, "");
    let expected = "is a safetensors file: pass the directory that contains it and config.json";
    assert_eq!(Runner::from_path(&path).unwrap_err().to_string(), format!("{}: {expected}", path.display()));
    assert_eq!(Gguf::open(&path).unwrap_err().to_string(), format!("{}: {expected}", path.display()));
}

#[test]
fn oversized_and_malformed_configs_are_refused() {
    let config = |bytes: &[u8]| message_of(&tiny("qwen3").with_file(CONFIG, bytes));
    for bytes in ["", "{", "[]", "null", "7", "\"model_type\"", "{\"a\": Infinity}", "{\"a\": 1e999}"] {
        let message = config(bytes.as_bytes());
        assert!(message.starts_with("config.json: is not JSON of the expected form: "), "{bytes}: {message}");
    }
    for open in ["[", "{\"a\":"] {
        assert!(config(format!("{{\"a\":{}", open.repeat(100_000)).as_bytes()).contains("recursion limit"), "{open}");
    }
    assert_eq!(
        config(&vec![b' '; (1 << 20) + 1]),
        "config.json: has 1048577 bytes, more than the limit of 1048576 for this file"
    );
    assert!(config(b"{\"a\": \"\xff\"}").starts_with("config.json: is not UTF-8: "));
}

#[test]
fn unsupported_tensor_types_are_refused() {
    for (dtype, bytes) in [("F8_E4M3", 1), ("I8", 1), ("U8", 1), ("I64", 8), ("F64", 8), ("BOOL", 1)] {
        let mut checkpoint = tiny("qwen3");
        let tensor = &mut checkpoint.tensors[3];
        tensor.dtype = dtype.into();
        tensor.data = vec![0; tensor.shape.iter().product::<usize>() * bytes];
        let expected = format!("tensor `{}`: is stored as {dtype}: ", tensor.name);
        assert!(message_of(&checkpoint).starts_with(&expected), "{}", message_of(&checkpoint));
    }
    let mut checkpoint = tiny("qwen3");
    checkpoint.tensors[3].dtype = "Q4_K".into();
    assert!(message_of(&checkpoint).starts_with("model.safetensors: is truncated or not a valid safetensors file"));
    let mut empty = tiny("qwen3");
    empty.tensors.push(Tensor { name: "model.none".into(), dtype: "F32".into(), shape: vec![0, 4], data: vec![] });
    assert_eq!(message_of(&empty), "tensor `model.none`: has a dimension of length 0: [0, 4]");
}

/// Returns the error message for a model with these bytes as model.safetensors.
fn shard_message(bytes: impl AsRef<[u8]>) -> String {
    let folder = Folder::new();
    tiny("qwen3").write(&folder);
    folder.write(SHARD, bytes);
    message_in(&folder)
}

#[test]
fn invalid_safetensors_files_are_refused() {
    assert_eq!(shard_message(""), "model.safetensors: is empty");
    let valid = file(&tiny("qwen3").tensors);
    for len in [1, 7, 8, 9, 200, valid.len() / 2, valid.len() - 1] {
        assert!(shard_message(&valid[..len]).starts_with("model.safetensors: "), "{len}");
    }
    assert!(
        shard_message([&valid[..], &[0]].concat())
            .starts_with("model.safetensors: is truncated or not a valid safetensors file")
    );
    for len in [1 << 25, 1 << 40, u64::MAX] {
        let expected = format!(
            "model.safetensors: has a header of {len} bytes, more than 16777216: it is damaged or not a safetensors file"
        );
        assert_eq!(shard_message([&len.to_le_bytes()[..], &valid[8..]].concat()), expected);
    }
    let header = |text: &str| shard_message(with_header(text, &[0; 16]));
    let invalid = [
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
    for text in invalid {
        let message = header(&text);
        let start = &text[..text.len().min(80)];
        assert!(
            message.starts_with("model.safetensors: is truncated or not a valid safetensors file"),
            "{start}: {message}"
        );
    }
    let pointer = "model.safetensors: is a Git LFS pointer, not the tensors: download the tensors with `git lfs pull`";
    assert_eq!(shard_message("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"), pointer);
    let folder = Folder::new();
    tiny("qwen3").write(&folder);
    fs::remove_file(folder.path().join(SHARD)).unwrap();
    let none = "DIR: contains neither model.safetensors nor model.safetensors.index.json: \
                save the weights as safetensors";
    assert_eq!(message_in(&folder), none);
    fs::create_dir(folder.path().join(SHARD)).unwrap();
    assert_eq!(message_in(&folder), "model.safetensors: is a directory, not a file");
}

#[test]
fn indexes_that_do_not_match_their_files_are_refused() {
    let folder = Folder::new();
    tiny("qwen3").write_sharded(&folder, 2);
    let valid: Value = serde_json::from_slice(&fs::read(folder.path().join(INDEX)).unwrap()).unwrap();
    let name = "model.norm.weight";
    let with = |file: &str| {
        let mut index = valid.clone();
        index["weight_map"][name] = json!(file);
        folder.write(INDEX, index.to_string());
        message_in(&folder)
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
        assert!(message.starts_with(&format!("{INDEX}: lists `")), "{file}: {message}");
        assert!(message.ends_with("which is not a .safetensors file in the same directory"), "{file}: {message}");
    }
    let missing = with("model-00003-of-00002.safetensors");
    assert!(missing.starts_with("model-00003-of-00002.safetensors: "), "{missing}");
    let other = valid["weight_map"].as_object().unwrap().values().find(|file| **file != valid["weight_map"][name]);
    let other = other.unwrap().as_str().unwrap();
    assert_eq!(with(other), format!("{INDEX}: tensor `{name}` is missing in `{other}`"));
    let mut index = valid.clone();
    index["weight_map"]["model.none.weight"] = json!(other);
    folder.write(INDEX, index.to_string());
    assert_eq!(message_in(&folder), format!("{INDEX}: tensor `model.none.weight` is missing in `{other}`"));
    for text in ["", "[]", "{}", r#"{"weight_map":7}"#, r#"{"weight_map":{"a":7}}"#] {
        folder.write(INDEX, text);
        assert!(message_in(&folder).starts_with(&format!("{INDEX}: is not JSON of the expected form: ")), "{text}");
    }
    folder.write(INDEX, valid.to_string());
    folder.write(other, file(&tiny("qwen3").tensors));
    let message = message_in(&folder);
    assert!(
        message.starts_with(&format!("{INDEX}: tensor `")) && message.contains("` occurs in `model-0000"),
        "{message}"
    );
}

#[test]
fn unusable_tokenizers_are_refused() {
    let without = |file: &str| {
        let mut checkpoint = tiny("qwen3");
        checkpoint.files.retain(|(name, _)| name != file);
        let folder = Folder::new();
        open(&checkpoint.write(&folder)).map_err(|e| e.to_string())
    };
    let missing = without("tokenizer.json").unwrap_err();
    assert!(missing.contains("tokenizer.json: is missing: save the tokenizer with transformers'"), "{missing}");
    without("tokenizer_config.json").unwrap();
    without("generation_config.json").unwrap();
    let broken = |file: &str, text: &str| message_of(&tiny("qwen3").with_file(file, text));
    for file in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        for text in ["", "[7]", "7", "{"] {
            assert!(
                broken(file, text).starts_with(&format!("{file}: is not JSON of the expected form: ")),
                "{file} {text}"
            );
        }
    }
    let mut empty = tiny("qwen3").with_file("tokenizer.json", "{}");
    empty.files.retain(|(name, _)| name != "tokenizer_config.json");
    assert!(message_of(&empty).starts_with("metadata key `tokenizer.huggingface.json`: "), "{}", message_of(&empty));
    let unknown = message_of(&tiny("qwen3").with("tokenizer_config.json", "eos_token", json!("<|none|>")));
    assert_eq!(
        unknown,
        "tokenizer_config.json: names the token `<|none|>`, which is not an added token of tokenizer.json"
    );
    for ids in [json!("</s>"), json!(-1), json!([1, 1.5]), json!(1_u64 << 40)] {
        let message = message_of(&tiny("qwen3").with("generation_config.json", "eos_token_id", ids));
        assert_eq!(message, "generation_config.json: `eos_token_id` must be a token id or a list of token ids");
    }
    let past = message_of(&tiny("qwen3").with("generation_config.json", "eos_token_id", json!([2, 320])));
    assert_eq!(past, "metadata key `tokenizer.ggml.eos_token_ids`: has 320, but there are only 320 tokens");
}

#[test]
fn end_tokens_of_all_files_are_merged() {
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
fn bos_tokens_follow_the_tokenizer_config() {
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
fn chat_templates_are_read_from_all_known_places() {
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
