//! Tests of tokenizers with unusual or invalid metadata.

use inkstone::{
    Error,
    gguf::Gguf,
    tokenizer::{SpecialTokens, Tokenizer},
};
use proptest::prelude::*;

use crate::support::gguf_file::{Folder, GgufFile, array, string};

/// Returns a byte-level vocabulary of five tokens: a, b, ab, and two special tokens.
pub fn tiny() -> Tiny {
    let text = |texts: &[&str]| texts.iter().map(|text| string(text)).collect::<Vec<_>>();
    let kinds = [1u32, 1, 1, 3, 3].map(|kind| kind.to_le_bytes().to_vec());
    let file = GgufFile::new()
        .string("general.architecture", "llama")
        .string("tokenizer.ggml.model", "gpt2")
        .string("tokenizer.ggml.pre", "gpt-2")
        .array("tokenizer.ggml.tokens", 8, &text(&["a", "b", "ab", "<s>", "</s>"]))
        .array("tokenizer.ggml.token_type", 5, &kinds)
        .array("tokenizer.ggml.merges", 8, &text(&["a b"]))
        .u32("tokenizer.ggml.bos_token_id", 3)
        .u32("tokenizer.ggml.eos_token_id", 4);
    Tiny(file)
}

/// A file whose keys can be set or removed.
pub struct Tiny(GgufFile);

impl Tiny {
    pub fn without(mut self, key: &str) -> Self {
        self.0.keys.retain(|(name, ..)| name != key.as_bytes());
        self
    }

    pub fn key(self, key: &str, type_number: u32, value: impl AsRef<[u8]>) -> Self {
        Self(self.without(key).0.key(key, type_number, value))
    }

    pub fn string(self, key: &str, text: &str) -> Self {
        Self(self.without(key).0.string(key, text))
    }

    pub fn u32(self, key: &str, number: u32) -> Self {
        Self(self.without(key).0.u32(key, number))
    }

    pub fn strings(self, key: &str, texts: &[&str]) -> Self {
        let texts: Vec<Vec<u8>> = texts.iter().map(|text| string(text)).collect();
        Self(self.without(key).0.array(key, 8, &texts))
    }

    pub fn kinds(self, kinds: &[u32]) -> Self {
        let kinds: Vec<Vec<u8>> = kinds.iter().map(|kind| kind.to_le_bytes().to_vec()).collect();
        self.key("tokenizer.ggml.token_type", 9, array(5, &kinds))
    }

    pub fn open(self) -> Gguf {
        let folder = Folder::new();
        Gguf::open(folder.write("tiny.gguf", self.0.bytes())).unwrap()
    }

    /// Returns the error, which must name this key.
    pub fn fails(self, key: &str) -> String {
        match Tokenizer::from_gguf(&self.open()) {
            Err(error @ Error::Metadata { .. }) => {
                let message = error.to_string();
                assert!(message.contains(&format!("`{key}`")), "{message}");
                message
            }
            other => panic!("{key}: {other:?}"),
        }
    }
}

#[test]
fn metadata_flags_control_bos_eos_and_the_end() {
    let asked =
        |flag: &str| Tokenizer::from_gguf(&tiny().key(flag, 7, [1]).open()).unwrap().encode_prompt("a").unwrap();
    assert_eq!(asked("tokenizer.ggml.add_bos_token"), [3, 0]);
    assert_eq!(asked("tokenizer.ggml.add_eos_token"), [0, 4]);
    let named = tiny().u32("tokenizer.ggml.eot_token_id", 1).u32("tokenizer.ggml.eom_token_id", 2).open();
    assert_eq!(Tokenizer::from_gguf(&named).unwrap().end_of_generation(), [1, 2, 4]);
}

#[test]
fn invalid_metadata_is_refused_by_key() {
    assert_eq!(Tokenizer::from_gguf(&tiny().open()).unwrap().encode("abba", SpecialTokens::Plain).unwrap(), [2, 1, 0]);
    let fails = |tiny: Tiny, key: &str| tiny.fails(&format!("tokenizer.ggml.{key}"));
    let set = |key: &str, text: &str| tiny().string(&format!("tokenizer.ggml.{key}"), text);
    assert!(fails(set("model", "rwkv"), "model").contains("`rwkv`"));
    assert!(fails(set("pre", "unheard-of"), "pre").contains("`unheard-of`"));
    for key in ["model", "pre", "tokens", "merges"] {
        assert!(fails(tiny().without(&format!("tokenizer.ggml.{key}")), key).contains("is missing"));
        fails(tiny().u32(&format!("tokenizer.ggml.{key}"), 1), key);
    }
    for merge in ["ab", "", " ", "a z", "z a", "b a", "ab ab", "a  b", "ab b", "<s> </s>"] {
        fails(tiny().strings("tokenizer.ggml.merges", &["a b", merge]), "merges");
    }
    fails(tiny().strings("tokenizer.ggml.tokens", &[]), "tokens");
    fails(tiny().strings("tokenizer.ggml.tokens", &["a", "b", "ab"]), "token_type");
    fails(set("token_type", "normal"), "token_type");
    fails(tiny().u32("tokenizer.ggml.eos_token_id", 5), "eos_token_id");
    fails(set("eos_token_id", "</s>"), "eos_token_id");
    fails(tiny().without("tokenizer.ggml.bos_token_id").key("tokenizer.ggml.add_bos_token", 7, [1]), "add_bos_token");
    fails(set("model", "llama"), "scores");
    fails(set("model", "llama").u32("tokenizer.ggml.scores", 1), "scores");
    let scores = array(6, &[0f32.to_le_bytes().to_vec(), f32::NAN.to_le_bytes().to_vec()]);
    fails(set("model", "llama").key("tokenizer.ggml.scores", 9, scores), "scores");
}

#[test]
fn bytes_without_a_token_are_left_out() {
    let tokenizer = Tokenizer::from_gguf(&tiny().open()).unwrap();
    assert_eq!(tokenizer.encode("abcab\0", SpecialTokens::Plain).unwrap(), [2, 2]);
    // Hugging Face's library does the same.
    let model = tokenizers::models::bpe::BPE::builder()
        .vocab_and_merges(
            [("a", 0), ("b", 1), ("ab", 2)].map(|(text, id)| (text.to_owned(), id)),
            vec![("a".into(), "b".into())],
        )
        .build();
    let theirs = tokenizers::Tokenizer::new(model.unwrap());
    for text in ["acb", "cab", "abc", "bca", "accb", "c", "acbacb"] {
        let expected = theirs.encode_fast(text, false).unwrap();
        assert_eq!(tokenizer.encode(text, SpecialTokens::Plain).unwrap(), expected.get_ids(), "{text}");
    }
}

#[test]
fn generation_ends_at_file_markers_but_not_at_message_ends() {
    let ends = |texts: [&str; 3]| {
        let tokens = tiny().strings("tokenizer.ggml.tokens", &["a", texts[0], "ab", texts[1], texts[2]]);
        let tokens = tokens.strings("tokenizer.ggml.merges", &[]).u32("tokenizer.ggml.eos_token_id", 0);
        Tokenizer::from_gguf(&tokens.kinds(&[1, 4, 1, 3, 3]).open()).unwrap().end_of_generation().to_vec()
    };
    assert_eq!(ends(["</s>", "<|end|>", "<s>"]), [0, 3], "only control tokens end a turn");
    assert_eq!(ends(["b", "<|end|>", "<|call|>"]), [0, 4], "where there are calls, a turn has several messages");
    assert_eq!(ends(["<|file_sep|>", "<|fim_pad|>", "<|file|>"]), [0, 1, 3]);
}

#[test]
fn invalid_tokenizer_files_are_refused() {
    let folder = Folder::new();
    let fails = |text: &str| Tokenizer::from_file(folder.write("tokenizer.json", text)).unwrap_err().to_string();
    let sound = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tokenizer/bpe.json")).unwrap();
    assert!(matches!(Tokenizer::from_file("no/such/tokenizer.json"), Err(Error::Io { .. })));
    for text in
        ["", "{}", "[]", "null", "not JSON", &sound[..sound.len() / 2], &sound.replace("\"ByteLevel\"", "\"Unheard\"")]
    {
        assert!(fails(text).contains("tokenizer.json"));
    }
    let no_decoder = sound.replace("\"decoder\":{\"type\":\"ByteLevel\"", "\"decoder\":{\"type\":\"Fuse\"");
    assert!(fails(&no_decoder).contains("decoder"));
    let half = sound.replace("\"content\":\"<|im_end|>\"", "\"content\":\"\\ud800\"");
    assert!(half != sound && fails(&half).contains("tokenizer.json"), "half a character is no text");
}

proptest! {
    /// Any vocabulary is either refused, or encodes and decodes without a panic.
    #[test]
    fn arbitrary_vocabularies_do_not_panic(
        model in prop_oneof!["gpt2", "llama", "gemma4", "bert"],
        pre in prop_oneof!["gpt-2", "qwen2", "llama-bpe", "smollm", "tiny_aya"],
        tokens in prop::collection::vec("[ab ▁é\\PC]{0,3}|<0x6[12]>|<s>", 1..30),
        raw in prop::collection::vec((1u32..7, any::<u32>()), 30),
        merges in prop::collection::vec("[ab]{0,2} [ab]{0,2}", 0..4),
        text in "[ab ▁é<s>\\PC]{0,20}",
        name in prop_oneof!["phi-3", "other"],
    ) {
        let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
        let kinds: Vec<u32> = raw[..tokens.len()].iter().map(|(kind, _)| *kind).collect();
        let scores: Vec<Vec<u8>> = raw[..tokens.len()].iter().map(|(_, bits)| bits.to_le_bytes().to_vec()).collect();
        let merges: Vec<&str> = merges.iter().map(String::as_str).collect();
        let gguf = tiny()
            .string("tokenizer.ggml.model", &model)
            .string("tokenizer.ggml.pre", &pre)
            .string("general.name", &name)
            .strings("tokenizer.ggml.tokens", &tokens)
            .strings("tokenizer.ggml.merges", &merges)
            .kinds(&kinds)
            .key("tokenizer.ggml.scores", 9, array(6, &scores))
            .u32("tokenizer.ggml.bos_token_id", 0)
            .u32("tokenizer.ggml.eos_token_id", 0)
            .open();
        if let Ok(tokenizer) = Tokenizer::from_gguf(&gguf) {
            for special in [SpecialTokens::Parse, SpecialTokens::Plain] {
                if let Ok(ids) = tokenizer.encode(&text, special) {
                    tokenizer.decode(&ids).unwrap();
                }
            }
        }
    }
}
