//! Runs a Hugging Face `tokenizer.json` with the `tokenizers` crate, except for its normalizer and
//! its pre-tokenizer.

use std::{
    path::Path,
    str::FromStr,
    sync::{Arc, OnceLock},
};

use tokenizers::{
    DecoderWrapper, PostProcessorWrapper, Tokenizer, TokenizerImpl, pre_tokenizers::metaspace::PrependScheme,
};

use super::{
    added_tokens::take_added_tokens, failures::catch_failures, model::SharedModel, normalizer::NormalizerSteps,
    placeholders::Placeholders, pre_tokenizer::PreTokenizerSteps, wordpiece,
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
    TokenizerImpl<SharedModel, NormalizerSteps, PreTokenizerSteps, PostProcessorWrapper, DecoderWrapper>;

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
    let parsed = String::from_utf8(text).map_err(|e| format!("is not JSON: {e}")).and_then(parse);
    let (vocabulary, json) = parsed.map_err(|what| Error::Tokenizer(format!("{}: {what}", path.display())))?;
    Ok((vocabulary, Encoder::Json(json)))
}

/// Reads the `tokenizer.json` in the metadata; `None` if there is none.
pub(in crate::tokenizer) fn from_gguf(gguf: &Gguf) -> Result<Option<(Vocabulary, Encoder)>> {
    const KEY: &str = "tokenizer.huggingface.json";
    let Some(text) = gguf.str(KEY)? else { return Ok(None) };
    let (mut vocabulary, mut json) = parse(text.to_owned()).map_err(|what| Error::metadata(KEY, what))?;
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

fn parse(text: String) -> Result<(Vocabulary, JsonTokenizer), String> {
    catch_failures(|| {
        let tokenizer = read(text)?;
        let vocabulary = vocabulary(&tokenizer)?;
        check_added_ids(&tokenizer, &vocabulary)?;
        Ok((vocabulary, JsonTokenizer::new(tokenizer, false)))
    })
}

/// Reads the file with the crate's own type, for which the crate has compiled its deserializers: to
/// compile them for a type of ours takes a tenth of the time to compile our crate.
fn read(mut text: String) -> Result<HfTokenizer, String> {
    let added = take_added_tokens(&mut text)?;
    let file = Arc::new(Tokenizer::from_str(&text).map_err(|e| e.to_string())?);
    drop(text);
    // Not truncation, which would drop text silently, and not padding, which would add tokens.
    let mut tokenizer = HfTokenizer::new(SharedModel::new(Arc::clone(&file)));
    tokenizer.with_normalizer(file.get_normalizer().cloned()).map_err(|e| e.to_string())?;
    tokenizer.with_pre_tokenizer(file.get_pre_tokenizer().cloned());
    tokenizer.with_post_processor(file.get_post_processor().cloned());
    tokenizer.with_decoder(file.get_decoder().cloned());
    tokenizer.add_tokens(added).map_err(|e| e.to_string())?;
    Ok(tokenizer)
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
    let decoder = tokenizer.get_decoder().map(decoder_steps).unwrap_or_default();
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

/// Returns the steps of a decoder, in order.
fn decoder_steps(decoder: &DecoderWrapper) -> Vec<&DecoderWrapper> {
    match decoder {
        DecoderWrapper::Sequence(steps) => steps.get_decoders().iter().flat_map(decoder_steps).collect(),
        step => vec![step],
    }
}

fn spelling(decoder: &[&DecoderWrapper]) -> Option<Spelling> {
    if decoder.iter().any(|step| matches!(step, DecoderWrapper::ByteLevel(_))) {
        return Some(Spelling::Bytes);
    }
    let word_piece = decoder.iter().find_map(|step| match step {
        DecoderWrapper::WordPiece(decoder) => Some(Spelling::WordPiece(decoder.prefix.clone())),
        _ => None,
    });
    let pieces =
        |step: &&DecoderWrapper| matches!(step, DecoderWrapper::ByteFallback(_) | DecoderWrapper::Metaspace(_));
    word_piece.or_else(|| decoder.iter().any(pieces).then_some(Spelling::SentencePiece))
}

/// Returns whether decoding removes a space from the start of the text.
fn strips_space(decoder: &[&DecoderWrapper]) -> bool {
    decoder.iter().any(|step| match step {
        DecoderWrapper::Strip(strip) => strip.content == ' ' && strip.start > 0,
        DecoderWrapper::Metaspace(metaspace) => metaspace.prepend_scheme != PrependScheme::Never,
        _ => false,
    })
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
