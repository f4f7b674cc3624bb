//! Tests of pre-tokenizers against the `tokenizers` crate and llama.cpp (vectors of
//! tests/data/tokenizer/pre.py).

use std::sync::LazyLock;

use inkstone::{
    gguf::Gguf,
    tokenizer::{SpecialTokens, Tokenizer},
};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use super::encode::data;
use crate::support::gguf_file::{Folder, string};

/// Returns the vocabulary that shows the split of a text, with another `tokenizer.ggml.pre`.
fn with_pre(file: &[u8], name: &str) -> Tokenizer {
    let value = |name: &str| [string("tokenizer.ggml.pre"), 8u32.to_le_bytes().to_vec(), string(name)].concat();
    let old = value("gpt-2");
    let at = file.windows(old.len()).position(|bytes| bytes == old).expect("the file's own pre-tokenizer");
    let file = [&file[..at], &value(name), &file[at + old.len()..]].concat();
    Tokenizer::from_gguf(&Gguf::open(Folder::new().write("pre.gguf", file)).unwrap()).unwrap()
}

/// A pre-tokenizer of tests/data/tokenizer/pre.py.
#[derive(Deserialize)]
pub struct Row {
    pub names: Vec<String>,
    /// The pre-tokenizer in the syntax of tokenizer.json; `None` for llama.cpp's own.
    pub pre_tokenizer: Option<Value>,
    pub ignore_merges: bool,
}

impl Row {
    /// Texts and their pieces according to Hugging Face's library.
    pub fn answers<'v>(&self, texts: &'v [Value]) -> Vec<(&'v str, Vec<u32>)> {
        texts.iter().map(|text| answer(text, &self.names[0])).collect()
    }
}

/// All pre-tokenizers, and the texts.
pub fn vectors() -> (Vec<Row>, Vec<Value>) {
    let vectors = std::fs::read_to_string(data("pre.jsonl")).unwrap();
    let mut lines = vectors.lines();
    let rows: Vec<Row> = serde_json::from_str(lines.next().unwrap()).unwrap();
    let texts: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(texts.len() > 100 && rows.len() > 20);
    (rows, texts)
}

#[test]
fn every_pre_tokenizer_matches_its_reference() {
    let file = std::fs::read(data("pre.gguf")).unwrap();
    let (rows, texts) = vectors();
    for row in &rows {
        for name in &row.names {
            let tokenizer = with_pre(&file, name);
            for (text, ids) in row.answers(&texts) {
                assert_eq!(tokenizer.encode(text, SpecialTokens::Plain).unwrap(), ids, "{name}: {text:?}");
            }
        }
    }
    // The vectors must cover every row.
    let unknown = Tokenizer::from_gguf(&super::errors::tiny().string("tokenizer.ggml.pre", "x").open());
    let message = unknown.unwrap_err().to_string();
    let (_, supported) = message.split_once("supported: ").unwrap();
    let mut supported: Vec<&str> = supported.split(", ").collect();
    let mut checked: Vec<&str> = rows.iter().flat_map(|row| &row.names).map(String::as_str).collect();
    supported.sort_unstable();
    checked.sort_unstable();
    assert_eq!(supported, checked);
}

fn answer<'v>(text: &'v Value, name: &str) -> (&'v str, Vec<u32>) {
    let answers = text["ids"].as_array().unwrap().iter().map(|answer| answer.as_array().unwrap());
    let given = |answer: &&Vec<Value>| answer[0].as_str().unwrap().split(' ').any(|other| other == name);
    let answer = answers.clone().find(given).unwrap_or_else(|| panic!("{name} has no answer to {text}"));
    (text["text"].as_str().unwrap(), answer[1..].iter().map(|id| id.as_u64().unwrap() as u32).collect())
}

proptest! {
    /// For any pre-tokenizer, the concatenated words are the text.
    #[test]
    fn splitting_preserves_the_text(text in prop_oneof!["(\\PC|\\s|[ a-zA-Z0-9'\n]){0,60}", any::<String>()]) {
        static TOKENIZERS: LazyLock<Vec<Tokenizer>> = LazyLock::new(|| {
            let file = std::fs::read(data("pre.gguf")).unwrap();
            ["afmoe", "default", "exaone-moe", "falcon", "jais-2", "kimi-k2", "superbpe", "tiny_aya"].map(|name| with_pre(&file, name)).into()
        });
        for tokenizer in TOKENIZERS.iter() {
            let ids = tokenizer.encode(&text, SpecialTokens::Plain).unwrap();
            prop_assert_eq!(tokenizer.decode(&ids).unwrap(), text.as_str());
        }
    }
}
