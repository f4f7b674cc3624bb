//! Inputs with which the fuzz targets of `fuzz/` have found a fault, as files of `tests/data/fuzz`.
//! A panic or a hang is the fault; each test also says what is right.

use std::{fs, path::PathBuf};

use inkstone::{
    Error, Image,
    chat::ChatTemplate,
    tokenizer::{SpecialTokens, Tokenizer},
};
use serde_json::{Value, json};

use crate::support::gguf_file::Folder;

fn input(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/fuzz").join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(input(name)).unwrap()
}

/// The rewriter put the end of two slices in the place of the last token, although neither had an
/// end.
#[test]
fn a_template_with_slices_that_do_not_end_is_refused() {
    let error = ChatTemplate::new(&text("template_unclosed_slices"), "", "").unwrap_err();
    assert!(matches!(error, Error::ChatTemplate(_)), "{error}");
}

/// The crate `tokenizers` panics where the file is not JSON within its decoder.
#[test]
fn a_tokenizer_that_is_not_json_is_refused() {
    let error = Tokenizer::from_file(input("tokenizer_not_json")).unwrap_err().to_string();
    assert!(error.contains("tokenizer_not_json: is not JSON: expected `:` at line 1"), "{error}");
}

/// The file states the ids that are put around a text apart from the vocabulary.
#[test]
fn a_tokenizer_that_adds_an_unknown_token_is_refused() {
    let error = Tokenizer::from_file(input("tokenizer_adds_unknown_token.json")).unwrap_err().to_string();
    assert!(error.ends_with("its post-processor adds token 630, but its vocabulary has 320 tokens"), "{error}");
}

/// Found by thinking of what the fuzzer would need hours for: forty steps that each double a text.
#[test]
fn a_normalizer_that_makes_a_terabyte_is_stopped() {
    let mut file: Value = serde_json::from_str(&text("../tokenizer/bert.json")).unwrap();
    let double = json!({ "type": "Replace", "pattern": { "String": "a" }, "content": "aa" });
    let encode = |steps: usize, file: &mut Value| {
        file["normalizer"] = json!({ "type": "Sequence", "normalizers": vec![double.clone(); steps] });
        let folder = Folder::new();
        let tokenizer = Tokenizer::from_file(folder.write("tokenizer.json", file.to_string())).unwrap();
        tokenizer.encode("a fan", SpecialTokens::Parse)
    };
    let error = encode(40, &mut file).unwrap_err().to_string();
    assert!(error.contains("more than 256 bytes of a byte of text"), "{error}");
    assert!(encode(3, &mut file).is_ok());
}

/// The crate `tokenizers` normalizes added tokens while it reads them, without a limit.
#[test]
fn an_added_token_that_becomes_a_terabyte_is_stopped() {
    let mut file: Value = serde_json::from_str(&text("../tokenizer/bert.json")).unwrap();
    let double = json!({ "type": "Replace", "pattern": { "String": "a" }, "content": "aa" });
    file["normalizer"] = json!({ "type": "Sequence", "normalizers": vec![double; 40] });
    file["added_tokens"][0]["content"] = "a".into();
    file["added_tokens"][0]["normalized"] = true.into();
    let file = file.to_string();
    for text in [file.clone(), file.replace("\"added_tokens\"", "\"\\u0061dded_tokens\"")] {
        let error = Tokenizer::from_file(Folder::new().write("tokenizer.json", text)).unwrap_err().to_string();
        assert!(error.contains("more than 256 bytes of a byte of text"), "{error}");
    }
}

/// llguidance bounds each step of its lexer but the first, which took 90 seconds.
#[cfg(feature = "constrained")]
#[test]
fn a_schema_whose_first_step_takes_minutes_is_refused() {
    use inkstone::{gguf::Gguf, grammar::Grammars};

    let gguf = Gguf::open(input("../tokenizer/bpe.gguf")).unwrap();
    let grammars = Grammars::new(&Tokenizer::from_gguf(&gguf).unwrap()).unwrap();
    let multiple_of = |n: f64| grammars.json_schema(&json!({ "type": "number", "multipleOf": n }));
    let error = multiple_of(3_456_789.0).unwrap_err().to_string();
    assert!(error.contains("is too complex") && error.contains("multipleOf"), "{error}");
    for n in [0.001, 7.0, 1000.0, 4096.0] {
        multiple_of(n).unwrap();
    }
}

/// llguidance's remainder overflowed: a panic with checks, wrong numbers without.
#[cfg(feature = "constrained")]
#[test]
fn a_multiple_of_with_too_many_digits_is_refused() {
    use inkstone::{gguf::Gguf, grammar::Grammars};

    let gguf = Gguf::open(input("../tokenizer/bpe.gguf")).unwrap();
    let grammars = Grammars::new(&Tokenizer::from_gguf(&gguf).unwrap()).unwrap();
    let schema: Value = serde_json::from_str(&text("schema_multiple_of_digits.json")).unwrap();
    let in_lark = format!("start: %json {schema}");
    for result in [grammars.json_schema(&schema), grammars.lark(&in_lark)] {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("`multipleOf` 4.123456789 has too many digits"), "{error}");
    }
}

/// The crate `png` panics at a palette that ends within a colour.
#[test]
fn a_png_with_an_incomplete_colour_is_refused() {
    let error = Image::open(input("image_uneven_palette")).unwrap_err().to_string();
    assert!(error.ends_with("PNG image: the length of the palette is not a multiple of 3"), "{error}");
}
