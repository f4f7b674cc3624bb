//! Tokenizers against llama.cpp's ids: real vocabularies in ../shared/tokenizers, small ones in tests/data/tokenizer.

use std::path::{Path, PathBuf};

use inkstone::gguf::Gguf;
use inkstone::tokenizer::{SpecialTokens, Tokenizer};
use serde_json::Value;

fn shared(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/tokenizers").join(name);
    if !path.exists() {
        eprintln!("skipped: {} is not there", path.display());
    }
    path.exists().then_some(path)
}

fn open(path: &Path) -> Tokenizer {
    Tokenizer::from_gguf(&Gguf::open(path).unwrap()).unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// Every field of a file of vectors (../shared/tokenizers/README.md describes them).
fn assert_vectors(name: &str, cleans_up: bool) {
    let (Some(model), Some(vectors)) = (shared(&format!("{name}.gguf")), shared(&format!("{name}.jsonl"))) else {
        return;
    };
    let tokenizer = open(&model);
    let vectors = std::fs::read_to_string(vectors).unwrap();
    assert_eq!(vectors.lines().count(), 300);
    for line in vectors.lines() {
        let vector: Value = serde_json::from_str(line).unwrap();
        let text = vector["text"].as_str().unwrap();
        let plain = tokenizer.encode(text, SpecialTokens::Plain).unwrap();
        assert_eq!(plain, ids(&vector["ids"]), "{name}: ids of {text:?}");
        assert_eq!(
            tokenizer.encode(text, SpecialTokens::Parse).unwrap(),
            ids(&vector["ids_special"]),
            "{name}: {text:?}"
        );
        assert_eq!(tokenizer.encode_prompt(text).unwrap(), ids(&vector["ids_bos"]), "{name}: {text:?}");
        let pieces: Vec<String> = plain.iter().map(|&id| hex(tokenizer.token_bytes(id).unwrap())).collect();
        assert_eq!(pieces, strings(&vector["pieces_hex"]), "{name}: pieces of {text:?}");
        // Where the oracle removes spaces that the tokens hold, the tokens are right.
        let expected = if cleans_up { text } else { vector["detok"].as_str().unwrap() };
        assert_eq!(tokenizer.decode(&plain).unwrap(), expected, "{name}: detok");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// llama.cpp's own test texts.
fn assert_upstream(name: &str) {
    let files = [format!("{name}.gguf"), "upstream/all.inp".to_owned(), format!("upstream/{name}.out")];
    let [Some(model), Some(texts), Some(expected)] = files.map(|file| shared(&file)) else { return };
    let tokenizer = open(&model);
    let texts = std::fs::read_to_string(texts).unwrap();
    let expected = std::fs::read_to_string(expected).unwrap();
    let texts: Vec<&str> = texts.split("\n__ggml_vocab_test__\n").collect();
    for (index, line) in expected.lines().enumerate() {
        let expected: Vec<u32> = line.split_whitespace().map(|id| id.parse().unwrap()).collect();
        let text = texts[index];
        assert_eq!(tokenizer.encode(text, SpecialTokens::Plain).unwrap(), expected, "{name}: text {index}, {text:?}");
    }
    assert_eq!(expected.lines().count(), 46);
}

macro_rules! vectors {
    ($($test:ident: $name:literal, cleans up $cleans_up:literal, upstream $upstream:literal;)*) => { $(
        #[test]
        fn $test() {
            assert_vectors($name, $cleans_up);
            if $upstream {
                assert_upstream($name);
            }
        }
    )* };
}

vectors! {
    qwen2: "qwen2", cleans up false, upstream true;
    llama_bpe: "llama-bpe", cleans up true, upstream true;
    gpt_2: "gpt-2", cleans up true, upstream true;
    starcoder: "starcoder", cleans up true, upstream true;
    llama_spm: "llama-spm", cleans up false, upstream true;
    phi_3: "phi-3", cleans up false, upstream true;
    spm_noprefix: "spm-noprefix", cleans up false, upstream false;
}
