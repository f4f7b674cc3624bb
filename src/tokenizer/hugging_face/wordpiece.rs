//! Encodes text with WordPiece (`tokenizer.ggml.model` = `bert`), by the `tokenizers` crate.
//!
//! A word is split into the longest token at its start, the longest token at the start of the rest,
//! and so on ([Song et al. 2021](https://arxiv.org/abs/2012.15524)). Words are BERT's: without
//! control characters, in lower case and without accents if the model is uncased, split at white
//! space, punctuation and Chinese characters. (llama.cpp removes more marks than accents, keeps
//! other control characters, does not decompose Hangul, and accepts words of more than 100
//! characters.)

use std::sync::Arc;

use ahash::AHashMap;
use tokenizers::{
    AddedToken, NormalizerWrapper, Tokenizer,
    models::wordpiece::WordPiece,
    normalizers::BertNormalizer,
    pre_tokenizers::{PreTokenizerWrapper, bert::BertPreTokenizer},
};

use super::{
    json::{HfTokenizer, JsonTokenizer},
    model::SharedModel,
};
use crate::{
    error::{Error, Result},
    gguf::Gguf,
    tokenizer::{
        Encoder,
        vocabulary::{self, TokenType, Vocabulary, special_id},
    },
};

/// The prefix of tokens that continue a word, in the models' own vocabularies.
const CONTINUATION: &str = "##";

/// The prefix of tokens that begin a word, in GGUF files.
const WORD_START: &str = "\u{2581}";

pub(in crate::tokenizer) fn from_gguf(gguf: &Gguf) -> Result<(Vocabulary, Encoder)> {
    let tokens = vocabulary::tokens(gguf)?;
    let own = |text: &str, kind: TokenType| match text.strip_prefix(WORD_START) {
        _ if kind.is_special() => text.to_owned(),
        Some(word) => word.to_owned(),
        None => format!("{CONTINUATION}{text}"),
    };
    let mut vocabulary =
        Vocabulary::from_gguf(gguf, tokens, |text, kind, out| decode(&own(text, kind), kind, CONTINUATION, out))?;
    vocabulary.adds_space = true;
    let id = |key: &str| special_id(gguf, key, tokens.len());
    vocabulary.bos = vocabulary.bos.or(id("tokenizer.ggml.cls_token_id")?);
    // The misspelling is part of the GGUF specification.
    vocabulary.eos = vocabulary.eos.or(id("tokenizer.ggml.seperator_token_id")?);
    vocabulary.read_flags(gguf, true, true)?;
    let Some(unknown) = vocabulary.unknown else {
        return Err(Error::metadata("tokenizer.ggml.unknown_token_id", "is missing"));
    };
    let texts: Vec<String> = tokens.iter().zip(vocabulary.types()).map(|(text, &kind)| own(text, kind)).collect();
    let added =
        texts.iter().zip(vocabulary.types()).filter(|(_, kind)| kind.is_special() || **kind == TokenType::UserDefined);
    let added = added.map(|(text, kind)| AddedToken::from(text.as_str(), kind.is_special()).normalized(false));
    let added: Vec<AddedToken> = added.collect();
    let model = WordPiece::builder().unk_token(texts[unknown as usize].clone());
    let model = model.vocab(texts.into_iter().zip(0..).collect::<AHashMap<String, u32>>()).build();
    let lowercase = gguf.bool("tokenizer.ggml.normalizer.lowercase")?.unwrap_or(true);
    let strips_accents = gguf.bool("tokenizer.ggml.normalizer.strip_accents")?;
    let failed = |e: tokenizers::Error| Error::Tokenizer(e.to_string());
    let model = SharedModel::new(Arc::new(Tokenizer::new(model.map_err(failed)?)));
    let mut tokenizer = HfTokenizer::new(model);
    let normalizer = NormalizerWrapper::from(BertNormalizer::new(true, true, strips_accents, lowercase));
    tokenizer.with_normalizer(Some(normalizer)).map_err(failed)?;
    tokenizer.with_pre_tokenizer(Some(PreTokenizerWrapper::from(BertPreTokenizer)));
    tokenizer.add_tokens(added).map_err(failed)?;
    Ok((vocabulary, Encoder::Json(JsonTokenizer::new(tokenizer, true))))
}

/// Appends the text of a token: with a space before it, unless it has the prefix of tokens that
/// continue a word.
pub(super) fn decode(text: &str, kind: TokenType, prefix: &str, out: &mut Vec<u8>) {
    match text.strip_prefix(prefix) {
        _ if kind.is_special() => out.extend_from_slice(text.as_bytes()),
        Some(rest) => out.extend_from_slice(rest.as_bytes()),
        None => {
            out.push(b' ');
            out.extend_from_slice(text.as_bytes());
        }
    }
}
