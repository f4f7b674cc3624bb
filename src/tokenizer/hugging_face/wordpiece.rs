//! WordPiece (`tokenizer.ggml.model` = `bert`): BERT's vocabularies, as the `tokenizers` crate knows them.
//!
//! A word becomes the longest token that it begins with, then the longest that the rest does, and so on
//! ([Song et al. 2021](https://arxiv.org/abs/2012.15524)). The words are BERT's: without control characters, in lower case
//! and without accents if the model is so, cut at white space, punctuation and Chinese characters. (llama.cpp drops more
//! marks than accents, keeps other control characters, does not take Hangul apart, and knows words of more than 100 characters.)

use ahash::AHashMap;
use tokenizers::AddedToken;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;

use super::json::{Json, Tokenizer};
use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::tokenizer::Encoder;
use crate::tokenizer::vocabulary::{self, Kind, Vocabulary, special_id};

/// Begins the tokens that go on from another, as the models' own vocabularies spell them. GGUF marks the others instead.
const CONTINUES: &str = "##";
const BEGINS: &str = "\u{2581}";

pub(in crate::tokenizer) fn from_gguf(gguf: &Gguf) -> Result<(Vocabulary, Encoder)> {
    let tokens = vocabulary::tokens(gguf)?;
    let own = |text: &str, kind: Kind| match text.strip_prefix(BEGINS) {
        _ if kind.is_mark() => text.to_owned(),
        Some(word) => word.to_owned(),
        None => format!("{CONTINUES}{text}"),
    };
    let mut vocabulary =
        Vocabulary::from_gguf(gguf, tokens, |text, kind, out| decode(&own(text, kind), kind, CONTINUES, out))?;
    vocabulary.adds_space = true;
    let id = |key: &str| special_id(gguf, key, tokens.len());
    vocabulary.bos = vocabulary.bos.or(id("tokenizer.ggml.cls_token_id")?);
    // Spelt so by everyone.
    vocabulary.eos = vocabulary.eos.or(id("tokenizer.ggml.seperator_token_id")?);
    vocabulary.read_flags(gguf, true, true)?;
    let Some(unknown) = vocabulary.unknown else {
        return Err(Error::metadata("tokenizer.ggml.unknown_token_id", "is missing"));
    };
    let texts: Vec<String> = tokens.iter().zip(vocabulary.kinds()).map(|(text, &kind)| own(text, kind)).collect();
    let added = texts.iter().zip(vocabulary.kinds()).filter(|(_, kind)| kind.is_mark() || **kind == Kind::UserDefined);
    let added = added.map(|(text, kind)| AddedToken::from(text.as_str(), kind.is_mark()).normalized(false));
    let added: Vec<AddedToken> = added.collect();
    let model = WordPiece::builder().unk_token(texts[unknown as usize].clone());
    let model = model.vocab(texts.into_iter().zip(0..).collect::<AHashMap<String, u32>>()).build();
    let lowercase = gguf.bool("tokenizer.ggml.normalizer.lowercase")?.unwrap_or(true);
    let strips_accents = gguf.bool("tokenizer.ggml.normalizer.strip_accents")?;
    let failed = |e: tokenizers::Error| Error::Tokenizer(e.to_string());
    let mut tokenizer = Tokenizer::new(model.map_err(failed)?.into());
    tokenizer.with_normalizer(Some(BertNormalizer::new(true, true, strips_accents, lowercase))).map_err(failed)?;
    tokenizer.with_pre_tokenizer(Some(PreTokenizerWrapper::from(BertPreTokenizer)));
    tokenizer.add_tokens(added).map_err(failed)?;
    Ok((vocabulary, Encoder::Json(Json::new(tokenizer, true))))
}

/// Appends what a token adds to a text: words come with a space, and what goes on from one, which begins with `continues`, without.
pub(super) fn decode(text: &str, kind: Kind, continues: &str, out: &mut Vec<u8>) {
    match text.strip_prefix(continues) {
        _ if kind.is_mark() => out.extend_from_slice(text.as_bytes()),
        Some(rest) => out.extend_from_slice(rest.as_bytes()),
        None => {
            out.push(b' ');
            out.extend_from_slice(text.as_bytes());
        }
    }
}
