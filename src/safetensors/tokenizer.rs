//! The tokenizer's files in; the keys that a GGUF file would have out.
//!
//! `tokenizer.json` is kept as it is, under the key that GGUF has for it. What else there is to know (which tokens begin and
//! end a sequence, the chat template) stands in up to four files more, which are asked as transformers asks them.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map as Object, Value as Json};

use super::json::{self, MAX_CONFIG, MAX_FIELDS, MAX_VOCABULARY};
use crate::{
    Error, Result,
    gguf::{Array, Value, quoted},
};

/// What of `tokenizer.json` is read here.
#[derive(Deserialize)]
struct Added {
    #[serde(default)]
    added_tokens: Vec<Token>,
}

#[derive(Deserialize)]
struct Token {
    id: u32,
    content: String,
}

/// What of `tokenizer_config.json` is read.
#[derive(Default, Deserialize)]
struct Config {
    bos_token: Option<Text>,
    eos_token: Option<Text>,
    add_bos_token: Option<bool>,
    add_eos_token: Option<bool>,
    chat_template: Option<Templates>,
}

/// A token by its text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Text {
    Plain(String),
    Token { content: String },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Templates {
    One(String),
    Several(Vec<Template>),
}

#[derive(Deserialize)]
struct Template {
    name: String,
    template: String,
}

/// The keys about the tokenizer of the model in the directory, whose `config.json` this is.
pub(super) fn keys(directory: &Path, config: &Object<String, Json>) -> Result<Vec<(String, Value)>> {
    let path = directory.join("tokenizer.json");
    let missing = || {
        let what =
            "is missing, and a vocabulary in another form is not read: let transformers save the tokenizer as one";
        Error::InvalidFile { path: path.clone(), what: what.into() }
    };
    let text = json::text(&path, MAX_VOCABULARY)?.ok_or_else(missing)?;
    let Added { added_tokens } = json::parse(&path, &text)?;
    let path = directory.join("tokenizer_config.json");
    let own = json::optional::<Config>(&path, MAX_FIELDS)?.unwrap_or_default();
    let generation_path = directory.join("generation_config.json");
    let generation = json::optional::<Object<String, Json>>(&generation_path, MAX_CONFIG)?.unwrap_or_default();

    let token = |text: &Option<Text>| {
        let Some(Text::Plain(text) | Text::Token { content: text }) = text else { return Ok(None) };
        let token = added_tokens.iter().find(|token| token.content == *text);
        let unknown = || format!("names the token {}, which is no added token of tokenizer.json", quoted(text));
        token.map(|token| Some(token.id)).ok_or_else(|| Error::InvalidFile { path: path.clone(), what: unknown() })
    };
    let ids = |name: &str| -> Result<Vec<u32>> {
        let mut all = ids(&directory.join("config.json"), config, name)?;
        all.extend(ids(&generation_path, &generation, name)?);
        Ok(all)
    };
    let (bos_ids, mut ends) = (ids("bos_token_id")?, ids("eos_token_id")?);
    let bos = token(&own.bos_token)?.or_else(|| bos_ids.first().copied());
    let eos = token(&own.eos_token)?.or_else(|| ends.first().copied());
    ends.extend(eos);
    ends.sort_unstable();
    ends.dedup();

    let keys = [
        ("tokenizer.huggingface.json", Some(Value::String(text))),
        ("tokenizer.ggml.bos_token_id", bos.map(Value::U32)),
        ("tokenizer.ggml.eos_token_id", eos.map(Value::U32)),
        ("tokenizer.ggml.eos_token_ids", Some(Value::Array(Array::U32(ends)))),
        ("tokenizer.ggml.add_bos_token", own.add_bos_token.map(Value::Bool)),
        ("tokenizer.ggml.add_eos_token", own.add_eos_token.map(Value::Bool)),
        ("tokenizer.chat_template", template(directory, own.chat_template)?.map(Value::String)),
    ];
    Ok(keys.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect())
}

/// One id or several.
fn ids(path: &Path, config: &Object<String, Json>, name: &str) -> Result<Vec<u32>> {
    let id = |value: &Json| value.as_u64().and_then(|id| u32::try_from(id).ok());
    let ids = match config.get(name) {
        None | Some(Json::Null) => Some(vec![]),
        Some(Json::Array(values)) => values.iter().map(id).collect(),
        Some(value) => id(value).map(|id| vec![id]),
    };
    let what = || format!("`{name}` is neither a token's id nor a list of them");
    ids.ok_or_else(|| Error::InvalidFile { path: path.into(), what: what() })
}

/// The template in a file of its own, else that in the tokenizer's config; of several the default one.
fn template(directory: &Path, configured: Option<Templates>) -> Result<Option<String>> {
    if let Some(text) = json::text(&directory.join("chat_template.jinja"), MAX_CONFIG)? {
        return Ok(Some(text));
    }
    Ok(match configured {
        Some(Templates::One(text)) => Some(text),
        Some(Templates::Several(all)) => {
            all.into_iter().find(|template| template.name == "default").map(|template| template.template)
        }
        None => None,
    })
}
