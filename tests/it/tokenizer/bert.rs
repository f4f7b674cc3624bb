//! Tests of WordPiece against Hugging Face's library (vectors of tests/data/tokenizer/make.py), and
//! by definition.

use inkstone::tokenizer::{SpecialTokens, Tokenizer};
use serde_json::Value;

use super::{
    encode::{data, ids, open},
    errors::{Tiny, tiny},
};

#[test]
fn bert_ids_match_the_reference() {
    let vectors = std::fs::read_to_string(data("bert.jsonl")).unwrap();
    assert!(vectors.lines().count() > 60);
    for tokenizer in [open(&data("bert.gguf")), Tokenizer::from_file(data("bert.json")).unwrap()] {
        for line in vectors.lines() {
            let vector: Value = serde_json::from_str(line).unwrap();
            let text = vector["text"].as_str().unwrap();
            let plain = tokenizer.encode(text, SpecialTokens::Plain).unwrap();
            assert_eq!(plain, ids(&vector["ids"]), "{text:?}");
            assert_eq!(tokenizer.encode(text, SpecialTokens::Parse).unwrap(), ids(&vector["ids_special"]), "{text:?}");
            assert_eq!(tokenizer.encode_prompt(text).unwrap(), ids(&vector["prompt"]), "{text:?}");
            assert_eq!(tokenizer.decode(&plain).unwrap(), vector["decoded"].as_str().unwrap(), "{text:?}");
        }
        let text = "[CLS] fox [SEP]";
        let mixed = tokenizer.encode_mixed(text, &[5..9, 10..15]).unwrap();
        let plain = |text| tokenizer.encode(text, SpecialTokens::Plain).unwrap();
        assert_eq!(mixed, [vec![2], plain("fox"), plain("[SEP]")].concat());
    }
}

/// Returns a vocabulary of five tokens and three special tokens.
fn bert() -> Tiny {
    tiny()
        .string("tokenizer.ggml.model", "bert")
        .strings("tokenizer.ggml.tokens", &["\u{2581}a", "\u{2581}A", "\u{2581}á", "b", "B", "[U]", "[C]", "[S]"])
        .kinds(&[1, 1, 1, 1, 1, 3, 3, 3])
        .without("tokenizer.ggml.bos_token_id")
        .without("tokenizer.ggml.eos_token_id")
        .u32("tokenizer.ggml.unknown_token_id", 5)
        .u32("tokenizer.ggml.cls_token_id", 6)
        .u32("tokenizer.ggml.seperator_token_id", 7)
}

#[test]
fn case_and_accents_follow_the_metadata() {
    let words = |tiny: Tiny| {
        let tokenizer = Tokenizer::from_gguf(&tiny.open()).unwrap();
        tokenizer.encode_prompt("a Ab áB [U] ba aab").unwrap()
    };
    let key = |tiny: Tiny, key: &str, value: u8| tiny.key(&format!("tokenizer.ggml.normalizer.{key}"), 7, [value]);
    assert_eq!(words(bert()), [6, 0, 0, 3, 0, 3, 5, 5, 5, 7], "lower case without accents is BERT's default");
    assert_eq!(words(key(bert(), "lowercase", 0)), [6, 0, 1, 3, 2, 4, 5, 5, 5, 7], "what keeps its case keeps accents");
    assert_eq!(words(key(bert(), "strip_accents", 0)), [6, 0, 0, 3, 2, 3, 5, 5, 5, 7]);
    let stripped = key(key(bert(), "lowercase", 0), "strip_accents", 1);
    assert_eq!(words(stripped), [6, 0, 1, 3, 0, 4, 5, 5, 5, 7]);
    assert_eq!(words(bert().key("tokenizer.ggml.add_bos_token", 7, [0])), [0, 0, 3, 0, 3, 5, 5, 5, 7]);
    assert_eq!(words(bert().key("tokenizer.ggml.add_eos_token", 7, [0])), [6, 0, 0, 3, 0, 3, 5, 5, 5]);
}

#[test]
fn wordpiece_without_an_unknown_token_is_refused() {
    let message = bert().without("tokenizer.ggml.unknown_token_id").fails("tokenizer.ggml.unknown_token_id");
    assert!(message.contains("is missing"), "{message}");
    bert().u32("tokenizer.ggml.cls_token_id", 8).fails("tokenizer.ggml.cls_token_id");
    bert().key("tokenizer.ggml.normalizer.lowercase", 4, [0; 4]).fails("tokenizer.ggml.normalizer.lowercase");
}
