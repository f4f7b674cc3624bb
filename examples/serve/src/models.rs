//! The list of models: `/v1/models`. There is one.

use axum::{
    Json,
    extract::{Path, State},
};
use serde_json::{Value, json};

use crate::{app::App, error::ApiError};

/// Returns the list.
pub async fn list(State(app): State<App>) -> Json<Value> {
    let model = model(&app);
    let id = &app.name;
    Json(json!({"object": "list", "data": [model], "has_more": false, "first_id": id, "last_id": id}))
}

/// Returns one model.
pub async fn get(State(app): State<App>, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    app.check_model(&id)?;
    Ok(Json(model(&app)))
}

/// Returns the model with the fields of both APIs.
fn model(app: &App) -> Value {
    json!({
        "id": app.name,
        "object": "model",
        "type": "model",
        "display_name": app.name,
        "created": app.started,
        "created_at": "1970-01-01T00:00:00Z",
        "owned_by": "inkstone",
        "context_length": app.engine.model().context_length(),
    })
}
