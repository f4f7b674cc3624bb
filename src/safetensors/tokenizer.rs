//! Translates the tokenizer's files into GGUF keys.
//!
//! The text of `tokenizer.json` is stored unparsed under `tokenizer.huggingface.json`. The BOS and
//! EOS tokens and the chat template come from up to four other files, with the same precedence as
//! in transformers.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map as Object, Value as Json};

use super::json::{self, MAX_CONFIG, MAX_FIELDS, MAX_VOCABULARY};
use crate::{
    Error, Result,
    gguf::{Array, Value, quoted},
};

/// The fields of `tokenizer.json` that are read here.
#[derive(Deserialize)]
struct TokenizerFile {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
}

/// The fields of `tokenizer_config.json` that are read here.
#[derive(Default, Deserialize)]
struct TokenizerConfig {
    bos_token: Option<TokenText>,
    eos_token: Option<TokenText>,
    add_bos_token: Option<bool>,
    add_eos_token: Option<bool>,
    chat_template: Option<ChatTemplates>,
}

/// The text of a token, as a string or as an object.
#[derive(Deserialize)]
#[serde(untagged)]
enum TokenText {
    Plain(String),
    Token { content: String },
}

/// A chat template, or several with names.
#[derive(Deserialize)]
#[serde(untagged)]
enum ChatTemplates {
    Single(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

/// Returns the tokenizer's GGUF keys for the model in `directory`, whose `config.json` is `config`.
pub(super) fn keys(directory: &Path, config: &Object<String, Json>) -> Result<Vec<(String, Value)>> {
    let path = directory.join("tokenizer.json");
    let missing = || {
        let what = "is missing: save the tokenizer with transformers' `save_pretrained`; other formats are not read";
        Error::InvalidFile { path: path.clone(), what: what.into() }
    };
    let text = json::text(&path, MAX_VOCABULARY)?.ok_or_else(missing)?;
    let TokenizerFile { added_tokens } = json::parse(&path, &text)?;
    let path = directory.join("tokenizer_config.json");
    let own = json::optional::<TokenizerConfig>(&path, MAX_FIELDS)?.unwrap_or_default();
    let generation_path = directory.join("generation_config.json");
    let generation = json::optional::<Object<String, Json>>(&generation_path, MAX_CONFIG)?.unwrap_or_default();

    let token_id = |text: &Option<TokenText>| {
        let Some(TokenText::Plain(text) | TokenText::Token { content: text }) = text else { return Ok(None) };
        let token = added_tokens.iter().find(|token| token.content == *text);
        let unknown = || format!("names the token {}, which is not an added token of tokenizer.json", quoted(text));
        token.map(|token| Some(token.id)).ok_or_else(|| Error::InvalidFile { path: path.clone(), what: unknown() })
    };
    let ids = |name: &str| -> Result<Vec<u32>> {
        let mut all = ids(&directory.join("config.json"), config, name)?;
        all.extend(ids(&generation_path, &generation, name)?);
        Ok(all)
    };
    let (bos_ids, mut eos_ids) = (ids("bos_token_id")?, ids("eos_token_id")?);
    let bos = token_id(&own.bos_token)?.or_else(|| bos_ids.first().copied());
    let eos = token_id(&own.eos_token)?.or_else(|| eos_ids.first().copied());
    eos_ids.extend(eos);
    eos_ids.sort_unstable();
    eos_ids.dedup();

    let keys = [
        ("tokenizer.huggingface.json", Some(Value::String(text))),
        ("tokenizer.ggml.bos_token_id", bos.map(Value::U32)),
        ("tokenizer.ggml.eos_token_id", eos.map(Value::U32)),
        ("tokenizer.ggml.eos_token_ids", Some(Value::Array(Array::U32(eos_ids)))),
        ("tokenizer.ggml.add_bos_token", own.add_bos_token.map(Value::Bool)),
        ("tokenizer.ggml.add_eos_token", own.add_eos_token.map(Value::Bool)),
        ("tokenizer.chat_template", chat_template(directory, own.chat_template)?.map(Value::String)),
    ];
    Ok(keys.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect())
}

/// Returns the token ids of the setting `name`: one id or a list; none if it is missing.
fn ids(path: &Path, config: &Object<String, Json>, name: &str) -> Result<Vec<u32>> {
    let id = |value: &Json| value.as_u64().and_then(|id| u32::try_from(id).ok());
    let ids = match config.get(name) {
        None | Some(Json::Null) => Some(vec![]),
        Some(Json::Array(values)) => values.iter().map(id).collect(),
        Some(value) => id(value).map(|id| vec![id]),
    };
    let what = || format!("`{name}` must be a token id or a list of token ids");
    ids.ok_or_else(|| Error::InvalidFile { path: path.into(), what: what() })
}

/// Returns the template in `chat_template.jinja`, else the one in the tokenizer's config: of
/// several, the one named `default`.
fn chat_template(directory: &Path, configured: Option<ChatTemplates>) -> Result<Option<String>> {
    if let Some(text) = json::text(&directory.join("chat_template.jinja"), MAX_CONFIG)? {
        return Ok(Some(text));
    }
    Ok(match configured {
        Some(ChatTemplates::Single(text)) => Some(text),
        Some(ChatTemplates::Named(templates)) => {
            templates.into_iter().find(|template| template.name == "default").map(|template| template.template)
        }
        None => None,
    })
}
