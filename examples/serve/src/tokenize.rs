//! The tokens of a text: `/tokenize`.

use axum::{
    Json,
    extract::{Request, State},
};
use inkstone::tokenizer::SpecialTokens;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{app::App, body, error::ApiError};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenizeRequest {
    content: String,
    /// Whether to add the tokens with which a prompt begins, and to read special tokens.
    #[serde(default)]
    add_special: bool,
    /// Whether to return the text of each token.
    #[serde(default)]
    with_pieces: bool,
}

/// Returns the ids of a text's tokens.
pub async fn create(State(app): State<App>, request: Request) -> Result<Json<Value>, ApiError> {
    let (tokens, _) = body::read(&app, request, tokens).await?;
    Ok(Json(tokens))
}

fn tokens(request: TokenizeRequest, app: &App) -> Result<Value, ApiError> {
    let tokenizer = app.engine.model().tokenizer();
    let ids = match request.add_special {
        true => tokenizer.encode_prompt(&request.content)?,
        false => tokenizer.encode(&request.content, SpecialTokens::Plain)?,
    };
    if !request.with_pieces {
        return Ok(json!({"tokens": ids, "count": ids.len()}));
    }
    let piece = |id: &u32| Ok(json!({"id": id, "piece": String::from_utf8_lossy(tokenizer.token_bytes(*id)?)}));
    let pieces = ids.iter().map(piece).collect::<Result<Vec<_>, inkstone::Error>>()?;
    Ok(json!({"tokens": pieces, "count": ids.len()}))
}
