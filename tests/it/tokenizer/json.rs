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

/// The crate reads the file without the added tokens, which we read.
#[test]
fn added_tokens_of_any_spelling_match_the_library() {
    let folder = Folder::new();
    let sound: Value = serde_json::from_slice(&std::fs::read(data("bpe.json")).unwrap()).unwrap();
    let token = |id: u32, content: &str, normalized: bool| {
        json!({
            "id": id, "content": content, "single_word": id == 501, "lstrip": id == 502, "rstrip": false,
            "normalized": normalized, "special": false,
        })
    };
    let list = json!([token(500, "é\u{10FFFE}\"]}", false), token(501, "fox", true), token(502, "狐狐", true)]);
    let other = json!([token(500, "the", false)]);
    let mut file = sound;
    file["normalizer"] = json!({ "type": "Lowercase" });
    file.as_object_mut().unwrap().shift_remove("added_tokens");
    let file = file.to_string();
    let rest = &file[1..file.len() - 1];
    let pretty = serde_json::to_string_pretty(&list).unwrap();
    let texts = [
        format!("{{\"added_tokens\":{list},{rest}}}"),
        format!(" \r\n{{\t\"added\\u005ftokens\" :\n {pretty} ,{rest}}}\n"),
        format!("{{\"added_tokens\":{other},{rest},\"added_tokens\":{list}}}"),
        format!("{{\"added_tokens\":[],\"added_tokens\":{list},{rest}}}"),
        format!("{{{rest},\"added_tokens\":{pretty}}}"),
        format!("{{{rest}}}"),
    ];
    let prompt = "The FOX, foxes  狐狐 狐 é\u{10FFFE}\"]} the";
    let mut answers = Vec::new();
    for text in texts {
        let path = folder.write("tokenizer.json", &text);
        let theirs = tokenizers::Tokenizer::from_file(&path).unwrap().encode_fast(prompt, false).unwrap();
        let ours = Tokenizer::from_file(&path).unwrap().encode(prompt, SpecialTokens::Parse).unwrap();
        assert_eq!(ours, theirs.get_ids(), "{text}");
        answers.push(ours);
    }
    assert!(answers[..5].iter().all(|ids| *ids == answers[0]) && answers[5] != answers[0]);
}

#[test]
fn errors_name_the_lines_of_the_file() {
    let folder = Folder::new();
    let sound: Value = serde_json::from_slice(&std::fs::read(data("bpe.json")).unwrap()).unwrap();
    let sound = serde_json::to_string_pretty(&sound).unwrap();
    let error = |text: &str| {
        let error = Tokenizer::from_file(folder.write("tokenizer.json", text)).unwrap_err().to_string();
        error.split_once("tokenizer.json: ").unwrap().1.to_owned()
    };
    let with = |from: &str, to: &str| {
        let text = sound.replacen(from, to, 1);
        assert_ne!(text, sound, "{from}");
        text
    };
    for text in [
        with("\"added_tokens\": [", "\"added_tokens\": null, \"padding\": ["),
        with("\"version\": \"1.0\"", "\"version\": \"2.0\""),
        with("\"model\": {", "\"model\": 1, \"old\": {"),
        with("\"decoder\": {", "\"decoder\": [], \"old\": {"),
    ] {
        assert_eq!(error(&text), text.parse::<tokenizers::Tokenizer>().unwrap_err().to_string());
    }
    let missing = with("\"lstrip\": false,", "");
    let theirs = missing.parse::<tokenizers::Tokenizer>().unwrap_err().to_string();
    assert!(theirs.starts_with("missing field `lstrip` at line "), "{theirs}");
    assert_eq!(error(&missing), format!("`added_tokens`: {theirs}"));
    for text in [with("\"1.0\",", "\"1.0\""), with("{", "{,"), format!("{sound} 1"), with("{", "{\"a\":]")] {
        assert!(error(&text).starts_with("is not JSON: "), "{}", error(&text));
    }
    for text in ["[]", "1", &with("\"truncation\"", "\"\\ud800\"")] {
        assert_eq!(error(text), "is not a JSON object with keys of valid Unicode");
    }
}
