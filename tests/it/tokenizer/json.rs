//! Tests of `tokenizer.json` against Hugging Face's library, which runs all of it except for
//! expressions that our engine supports.

use std::{path::PathBuf, sync::LazyLock};

use inkstone::{
    gguf::Gguf,
    tokenizer::{SpecialTokens, Tokenizer},
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{
    encode::{data, open},
    pre::{Row, vectors},
};
use crate::support::gguf_file::Folder;

/// Returns a file with the vocabulary of pre.gguf, which shows the split of a text, and the
/// pre-tokenizer of a row; `None` for llama.cpp's own.
fn file(folder: &Folder, row: &Row) -> Option<PathBuf> {
    let gguf = Gguf::open(data("pre.gguf")).unwrap();
    let strings = |key: &str| gguf.strings(key).unwrap().unwrap();
    let vocab: Map<String, Value> = (0..)
        .zip(strings("tokenizer.ggml.tokens").iter())
        .map(|(id, text): (u32, _)| (text.to_owned(), id.into()))
        .collect();
    let merges: Vec<&str> = strings("tokenizer.ggml.merges").iter().collect();
    let text = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": row.pre_tokenizer.as_ref()?,
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "ignore_merges": row.ignore_merges, "vocab": vocab, "merges": merges},
    });
    Some(folder.write("tokenizer.json", text.to_string()))
}

/// The expected ids are those of Oniguruma, which the crate only uses in Python.
#[test]
fn tokenizer_json_pre_tokenizers_match_the_library() {
    let (rows, texts) = vectors();
    let folder = Folder::new();
    for row in &rows {
        let Some(path) = file(&folder, row) else { continue };
        let tokenizer = Tokenizer::from_file(path).unwrap();
        for (text, ids) in row.answers(&texts) {
            assert_eq!(tokenizer.encode(text, SpecialTokens::Plain).unwrap(), ids, "{:?}: {text:?}", row.pre_tokenizer);
        }
    }
}

proptest! {
    #[test]
    fn tokenizer_json_splits_any_text_as_the_library(text in prop_oneof!["(\\PC|\\s|[ a-zA-Z0-9'\n]|  |\\pN){0,60}", any::<String>()]) {
        static TOKENIZERS: LazyLock<Vec<(Row, Tokenizer, tokenizers::Tokenizer)>> = LazyLock::new(|| {
            let folder = Folder::new();
            let both = |row: Row| {
                // The crate's engine defines words differently from Oniguruma, and reads `{3}+` as
                // a possessive quantifier.
                if ["afmoe", "tiny_aya"].contains(&row.names[0].as_str()) {
                    return None;
                }
                let path = file(&folder, &row)?;
                Some((row, Tokenizer::from_file(&path).unwrap(), tokenizers::Tokenizer::from_file(&path).unwrap()))
            };
            vectors().0.into_iter().filter_map(both).collect()
        });
        for (row, ours, theirs) in TOKENIZERS.iter() {
            let expected = theirs.encode_fast(text.as_str(), false).unwrap();
            prop_assert_eq!(ours.encode(&text, SpecialTokens::Plain).unwrap(), expected.get_ids(), "{:?}", row.pre_tokenizer);
        }
    }
}

/// The crate's engine backtracks at most a million times, and would treat the rest of such a text
/// as one word.
#[test]
fn long_runs_are_split_or_refused() {
    let (bpe, json) = (open(&data("bpe.gguf")), Tokenizer::from_file(data("bpe.json")).unwrap());
    let text = std::fs::read_to_string(data("bpe.json")).unwrap();
    let unknown = text.replace(r"\\s+(?!\\S)|", r"\\s+(?=\\s|$)|");
    assert_ne!(unknown, text);
    let unknown = Tokenizer::from_file(Folder::new().write("tokenizer.json", unknown)).unwrap();
    for letter in [" ", "A"] {
        let text = letter.repeat(1 << 18) + "x y";
        let ids = bpe.encode(&text, SpecialTokens::Plain).unwrap();
        assert_eq!(unknown.encode(&text, SpecialTokens::Plain).unwrap(), ids);
        let text = letter.repeat(1 << 20) + &text;
        let error = unknown.encode(&text, SpecialTokens::Plain).unwrap_err();
        assert!(error.to_string().contains("1310720"), "{error}");
        assert_eq!(json.encode(&text, SpecialTokens::Plain).unwrap(), bpe.encode(&text, SpecialTokens::Plain).unwrap());
    }
}
