//! Runs a Hugging Face `tokenizer.json` with the `tokenizers` crate, except for its normalizer and
//! its pre-tokenizer.

use std::{path::Path, sync::OnceLock};

use serde::de::IgnoredAny;
use serde_json::Value;
use tokenizers::{DecoderWrapper, ModelWrapper, PostProcessorWrapper, TokenizerImpl};

use super::{
    failures::catch_failures, normalizer::NormalizerSteps, placeholders::Placeholders,
    pre_tokenizer::PreTokenizerSteps, wordpiece,
};
use crate::{
    error::{Error, Result},
    gguf::Gguf,
    tokenizer::{
        Encoder, SpecialScope, bytes, spm,
        vocabulary::{TokenType, Vocabulary},
    },
};

/// A tokenizer of the `tokenizers` crate with our normalizer and pre-tokenizer.
pub(super) type HfTokenizer =
    TokenizerImpl<ModelWrapper, NormalizerSteps, PreTokenizerSteps, PostProcessorWrapper, DecoderWrapper>;

/// A `tokenizer.json` with each of the [`SpecialScope`]s.
pub(in crate::tokenizer) struct JsonTokenizer {
    /// Recognizes special tokens.
    parsing: HfTokenizer,
    /// Treats special tokens as text. This is a setting of the crate and not an argument, so it
    /// takes a second tokenizer, which is built when it is first needed.
    plain: OnceLock<Box<HfTokenizer>>,
    /// Recognizes special tokens in a part of the text.
    mixed: OnceLock<Result<Box<Placeholders>, String>>,
    /// Whether the metadata, and not the post-processor, determines the tokens at the start and the
    /// end of a sequence.
    pub metadata_sets_ends: bool,
}

pub(in crate::tokenizer) fn from_file(path: &Path) -> Result<(Vocabulary, Encoder)> {
    let text = std::fs::read(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    let (vocabulary, json) = parse(&text).map_err(|what| Error::Tokenizer(format!("{}: {what}", path.display())))?;
    Ok((vocabulary, Encoder::Json(json)))
}

/// Reads the `tokenizer.json` in the metadata; `None` if there is none.
pub(in crate::tokenizer) fn from_gguf(gguf: &Gguf) -> Result<Option<(Vocabulary, Encoder)>> {
    const KEY: &str = "tokenizer.huggingface.json";
    let Some(text) = gguf.str(KEY)? else { return Ok(None) };
    let (mut vocabulary, mut json) = parse(text.as_bytes()).map_err(|what| Error::metadata(KEY, what))?;
    // A model may have more ids than its tokenizer, which it was not trained with. They get the
    // names that the converter to GGUF gives them.
    let model_ids = gguf.tensor("token_embd.weight").and_then(|embedding| embedding.shape.first().copied());
    for id in vocabulary.len()..model_ids.unwrap_or(0) {
        let text = format!("[PAD{id}]");
        vocabulary.push(TokenType::Unused, |out| out.extend_from_slice(text.as_bytes()));
    }
    vocabulary.read_ids(gguf)?;
    vocabulary.read_flags(gguf, false, false)?;
    let flags = ["tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token"];
    json.metadata_sets_ends = flags.iter().any(|flag| gguf.get(flag).is_some());
    Ok(Some((vocabulary, Encoder::Json(json))))
}

fn parse(text: &[u8]) -> Result<(Vocabulary, JsonTokenizer), String> {
    serde_json::from_slice::<IgnoredAny>(text).map_err(|e| format!("is not JSON: {e}"))?;
    catch_failures(|| {
        let mut tokenizer = HfTokenizer::from_bytes(text).map_err(|e| e.to_string())?;
        // Truncation would drop text silently, and padding would add tokens.
        tokenizer.with_truncation(None).map_err(|e| e.to_string())?.with_padding(None);
        let vocabulary = vocabulary(&tokenizer)?;
        check_added_ids(&tokenizer, &vocabulary)?;
        Ok((vocabulary, JsonTokenizer::new(tokenizer, false)))
    })
}

/// Checks the ids that the post-processor adds to every text: the file states them in addition to
/// the vocabulary.
fn check_added_ids(tokenizer: &HfTokenizer, vocabulary: &Vocabulary) -> Result<(), String> {
    let encoding = tokenizer.encode_fast("", true).map_err(|e| e.to_string())?;
    match encoding.get_ids().iter().find(|id| **id as usize >= vocabulary.len()) {
        Some(id) => {
            Err(format!("its post-processor adds token {id}, but its vocabulary has {} tokens", vocabulary.len()))
        }
        None => Ok(()),
    }
}

/// The spelling of the tokens in a vocabulary.
enum Spelling {
    Bytes,
    SentencePiece,
    /// WordPiece, with the prefix of tokens that continue a word.
    WordPiece(String),
}

fn vocabulary(tokenizer: &HfTokenizer) -> Result<Vocabulary, String> {
    let decoder = serde_json::to_value(tokenizer.get_decoder()).map_err(|e| e.to_string())?;
    let spelling = spelling(&decoder).ok_or("its decoder is not byte-level, SentencePiece or WordPiece")?;
    let added = tokenizer.get_added_tokens_decoder();
    let size = tokenizer.get_vocab(true).values().max().map_or(0, |&id| id as usize + 1);
    let tokens = tokenizer.get_vocab_size(true);
    if tokens == 0 || size > 16 * tokens {
        return Err(format!("its {tokens} tokens have ids up to {size}, but ids must be consecutive"));
    }
    let mut vocabulary = Vocabulary::default();
    vocabulary.adds_space = match spelling {
        Spelling::Bytes => false,
        Spelling::SentencePiece => strips_space(&decoder),
        Spelling::WordPiece(_) => true,
    };
    for id in 0..size as u32 {
        let text = tokenizer.id_to_token(id).unwrap_or_default();
        let kind = match added.get(&id) {
            Some(token) if token.special => TokenType::Control,
            Some(_) => TokenType::UserDefined,
            None if matches!(spelling, Spelling::SentencePiece) && spm::byte(&text).is_some() => TokenType::Byte,
            None => TokenType::Normal,
        };
        vocabulary.push(kind, |out| match &spelling {
            Spelling::WordPiece(prefix) => wordpiece::decode(&text, kind, prefix, out),
            Spelling::Bytes if kind == TokenType::Normal => bytes::unspell(&text, out),
            Spelling::Bytes | Spelling::SentencePiece => spm::decode(&text, kind, out),
        });
    }
    vocabulary.end_at_markers();
    Ok(vocabulary)
}

fn spelling(decoder: &Value) -> Option<Spelling> {
    let uses = |kind| find(decoder, &|step| step["type"] == kind);
    if uses("ByteLevel").is_some() {
        return Some(Spelling::Bytes);
    }
    if let Some(prefix) = uses("WordPiece").and_then(|step| step["prefix"].as_str()) {
        return Some(Spelling::WordPiece(prefix.to_owned()));
    }
    uses("ByteFallback").or(uses("Metaspace")).map(|_| Spelling::SentencePiece)
}

/// Returns whether decoding removes a space from the start of the text.
fn strips_space(decoder: &Value) -> bool {
    find(decoder, &|step| {
        (step["type"] == "Strip" && step["content"] == " " && step["start"].as_u64() > Some(0))
            || (step["type"] == "Metaspace" && step["prepend_scheme"] != "never")
    })
    .is_some()
}

/// Returns the first step of a decoder for which `holds` is true.
fn find<'d>(decoder: &'d Value, holds: &dyn Fn(&Value) -> bool) -> Option<&'d Value> {
    let steps = || decoder["decoders"].as_array()?.iter().find_map(|step| find(step, holds));
    if holds(decoder) { Some(decoder) } else { steps() }
}

impl JsonTokenizer {
    pub(super) fn new(parsing: HfTokenizer, metadata_sets_ends: bool) -> Self {
        Self { parsing, plain: OnceLock::new(), mixed: OnceLock::new(), metadata_sets_ends }
    }

    pub fn encode(&self, text: &str, special: SpecialScope<'_>) -> Result<Vec<u32>> {
        match special {
            SpecialScope::Everywhere => run(&self.parsing, text, false),
            SpecialScope::Nowhere => run(self.plain.get_or_init(|| Box::new(plain(&self.parsing))), text, false),
            SpecialScope::Outside(ranges) => {
                let placeholders = || Placeholders::new(&self.parsing, plain(&self.parsing)).map(Box::new);
                let mixed = self.mixed.get_or_init(|| catch_failures(placeholders));
                let mixed = mixed.as_ref().map_err(|reason| Error::Tokenizer(reason.clone()))?;
                match mixed.insert(text, ranges)? {
                    None => run(&self.parsing, text, false),
                    Some(text) => Ok(mixed.restore(run(mixed.tokenizer(), &text, false)?)),
                }
            }
        }
    }

    /// Returns the ids with the tokens that the file's post-processor adds.
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>> {
        run(&self.parsing, text, true)
    }
}

/// Returns a copy that treats special tokens as text.
fn plain(tokenizer: &HfTokenizer) -> HfTokenizer {
    let mut plain = tokenizer.clone();
    plain.set_encode_special_tokens(true);
    plain
}

fn run(tokenizer: &HfTokenizer, text: &str, add_special: bool) -> Result<Vec<u32>> {
    if let Some(pre_tokenizer) = tokenizer.get_pre_tokenizer() {
        pre_tokenizer.check(text)?;
    }
    let encode = || tokenizer.encode_fast(text, add_special).map_err(|e| e.to_string());
    Ok(catch_failures(encode).map_err(Error::Tokenizer)?.get_ids().to_vec())
}
