//! Hugging Face's `tokenizer.json` in; the `tokenizers` crate runs it as it is, but for `cutter.rs`.

use std::{path::Path, sync::OnceLock};

use serde_json::Value;
use tokenizers::{DecoderWrapper, ModelWrapper, NormalizerWrapper, PostProcessorWrapper, TokenizerImpl};

use super::{placeholders::StandIns, pre_tokenizer::Cutter, wordpiece};
use crate::{
    error::{Error, Result},
    gguf::Gguf,
    tokenizer::{
        Encoder, Special, bytes, spm,
        vocabulary::{Kind, Vocabulary},
    },
};

/// A tokenizer of the `tokenizers` crate, but for how it cuts texts.
pub(super) type Tokenizer =
    TokenizerImpl<ModelWrapper, NormalizerWrapper, Cutter, PostProcessorWrapper, DecoderWrapper>;

/// Such a tokenizer, with special tokens where they count.
pub(in crate::tokenizer) struct Json {
    parsing: Tokenizer,
    /// The same, taking special tokens for ordinary text: that is a setting, not an argument, so it is another tokenizer. Few need it.
    plain: OnceLock<Box<Tokenizer>>,
    /// The same again, for texts in which some count and some do not.
    mixed: OnceLock<Result<Box<StandIns>, String>>,
    /// Whether the metadata says how the begin and the end of a sequence are marked, rather than the post-processor.
    pub marks_are_flagged: bool,
}

pub(in crate::tokenizer) fn from_file(path: &Path) -> Result<(Vocabulary, Encoder)> {
    let text = std::fs::read(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    let (vocabulary, json) = parse(&text).map_err(|what| Error::Tokenizer(format!("{}: {what}", path.display())))?;
    Ok((vocabulary, Encoder::Json(json)))
}

/// The tokenizer that the metadata holds as a whole, if it does.
pub(in crate::tokenizer) fn from_gguf(gguf: &Gguf) -> Result<Option<(Vocabulary, Encoder)>> {
    const KEY: &str = "tokenizer.huggingface.json";
    let Some(text) = gguf.str(KEY)? else { return Ok(None) };
    let (mut vocabulary, mut json) = parse(text.as_bytes()).map_err(|what| Error::metadata(KEY, what))?;
    // A model may know more ids than its tokenizer, though none that it was trained to give. They are called as the
    // converter to GGUF calls them.
    let known = gguf.tensor("token_embd.weight").and_then(|embedding| embedding.shape.first().copied());
    for id in vocabulary.len()..known.unwrap_or(0) {
        let text = format!("[PAD{id}]");
        vocabulary.push(Kind::Unused, |out| out.extend_from_slice(text.as_bytes()));
    }
    vocabulary.read_ids(gguf)?;
    vocabulary.read_flags(gguf, false, false)?;
    let flags = ["tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token"];
    json.marks_are_flagged = flags.iter().any(|flag| gguf.get(flag).is_some());
    Ok(Some((vocabulary, Encoder::Json(json))))
}

fn parse(text: &[u8]) -> Result<(Vocabulary, Json), String> {
    let mut tokenizer = Tokenizer::from_bytes(text).map_err(|e| e.to_string())?;
    // Truncation would lose text without a word, and padding add some.
    tokenizer.with_truncation(None).map_err(|e| e.to_string())?.with_padding(None);
    Ok((vocabulary(&tokenizer)?, Json::new(tokenizer, false)))
}

/// How a vocabulary spells what its tokens add to a text.
enum Spelling {
    Bytes,
    SentencePiece,
    /// What goes on from another token begins so.
    WordPiece(String),
}

fn vocabulary(tokenizer: &Tokenizer) -> Result<Vocabulary, String> {
    let decoder = serde_json::to_value(tokenizer.get_decoder()).map_err(|e| e.to_string())?;
    let spelling = spelling(&decoder).ok_or("its decoder is neither byte-level nor SentencePiece's nor WordPiece's")?;
    let added = tokenizer.get_added_tokens_decoder();
    let size = tokenizer.get_vocab(true).values().max().map_or(0, |&id| id as usize + 1);
    let tokens = tokenizer.get_vocab_size(true);
    if tokens == 0 || size > 16 * tokens {
        return Err(format!("its {tokens} tokens have ids up to {size}"));
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
            Some(token) if token.special => Kind::Control,
            Some(_) => Kind::UserDefined,
            None if matches!(spelling, Spelling::SentencePiece) && spm::byte(&text).is_some() => Kind::Byte,
            None => Kind::Normal,
        };
        vocabulary.push(kind, |out| match &spelling {
            Spelling::WordPiece(continues) => wordpiece::decode(&text, kind, continues, out),
            Spelling::Bytes if kind == Kind::Normal => bytes::unspell(&text, out),
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
    if let Some(continues) = uses("WordPiece").and_then(|step| step["prefix"].as_str()) {
        return Some(Spelling::WordPiece(continues.to_owned()));
    }
    uses("ByteFallback").or(uses("Metaspace")).map(|_| Spelling::SentencePiece)
}

/// Whether decoding takes a space off the begin of the text.
fn strips_space(decoder: &Value) -> bool {
    find(decoder, &|step| {
        (step["type"] == "Strip" && step["content"] == " " && step["start"].as_u64() > Some(0))
            || (step["type"] == "Metaspace" && step["prepend_scheme"] != "never")
    })
    .is_some()
}

/// Of a decoder, which may be a sequence, the first step of which this holds.
fn find<'d>(decoder: &'d Value, holds: &dyn Fn(&Value) -> bool) -> Option<&'d Value> {
    let steps = || decoder["decoders"].as_array()?.iter().find_map(|step| find(step, holds));
    if holds(decoder) { Some(decoder) } else { steps() }
}

impl Json {
    pub(super) fn new(parsing: Tokenizer, marks_are_flagged: bool) -> Self {
        Self { parsing, plain: OnceLock::new(), mixed: OnceLock::new(), marks_are_flagged }
    }

    pub fn encode(&self, text: &str, special: Special<'_>) -> Result<Vec<u32>> {
        match special {
            Special::Parsed => run(&self.parsing, text, false),
            Special::Plain => run(self.plain.get_or_init(|| Box::new(plain(&self.parsing))), text, false),
            Special::PlainWithin(ranges) => {
                let mixed = self.mixed.get_or_init(|| StandIns::new(&self.parsing, plain(&self.parsing)).map(Box::new));
                let mixed = mixed.as_ref().map_err(|what| Error::Tokenizer(what.clone()))?;
                match mixed.put_in(text, ranges)? {
                    None => run(&self.parsing, text, false),
                    Some(text) => Ok(mixed.take_out(run(mixed.tokenizer(), &text, false)?)),
                }
            }
        }
    }

    /// With what the file's post-processor adds.
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>> {
        run(&self.parsing, text, true)
    }
}

/// A tokenizer that takes special tokens for ordinary text.
fn plain(tokenizer: &Tokenizer) -> Tokenizer {
    let mut plain = tokenizer.clone();
    plain.set_encode_special_tokens(true);
    plain
}

fn run(tokenizer: &Tokenizer, text: &str, add_special: bool) -> Result<Vec<u32>> {
    if let Some(cutter) = tokenizer.get_pre_tokenizer() {
        cutter.check(text)?;
    }
    let encoding = tokenizer.encode_fast(text, add_special).map_err(|e| Error::Tokenizer(e.to_string()))?;
    Ok(encoding.get_ids().to_vec())
}
