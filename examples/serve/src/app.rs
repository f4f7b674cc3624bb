//! The endpoints, and what all of them check.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, Uri, header},
    middleware::{self, Next},
    response::{Html, IntoResponse, Response},
    routing::{get, post},
};

use crate::{
    chat, completions, embeddings, engine::Engine, error, error::ApiError, health, id, messages, models, responses,
    tokenize,
};

/// The state that all requests share.
#[derive(Clone)]
pub struct App {
    /// The model.
    pub engine: Arc<Engine>,
    /// The name of the model.
    pub name: String,
    /// The time of the start in seconds since 1970.
    pub started: u64,
    api_key: Option<String>,
}

impl App {
    /// Returns the state of a server.
    pub fn new(engine: Engine, name: String, api_key: Option<String>) -> Self {
        Self { engine: Arc::new(engine), name, started: id::now(), api_key }
    }

    /// Refuses models that are not served.
    ///
    /// # Errors
    /// [`ApiError::no_model`].
    pub fn check_model(&self, model: &str) -> Result<(), ApiError> {
        if model == self.name { Ok(()) } else { Err(ApiError::no_model(model, &self.name)) }
    }

    /// Returns the endpoints.
    pub fn router(self) -> Router {
        let private = Router::new()
            .route("/v1/chat/completions", post(chat::create))
            .route("/v1/completions", post(completions::create))
            .route("/v1/embeddings", post(embeddings::create))
            .route("/v1/messages", post(messages::create))
            .route("/v1/messages/count_tokens", post(messages::count_tokens))
            .route("/v1/models", get(models::list))
            .route("/v1/models/{id}", get(models::get))
            .route("/v1/responses", post(responses::create))
            .route("/tokenize", post(tokenize::create))
            .route("/metrics", get(health::metrics))
            .route_layer(middleware::from_fn_with_state(self.clone(), authorize));
        Router::new()
            .merge(private)
            .route("/", get(page))
            .route("/health", get(health::health))
            .method_not_allowed_fallback(async || ApiError::method())
            .fallback(async |uri: Uri| ApiError::no_path(uri.path()))
            .layer(middleware::from_fn(error::render))
            .with_state(self)
    }
}

/// What the page may do: talk to this server, and show images that it has itself.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                           connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                           frame-ancestors 'none'";

/// Returns the page for people.
async fn page() -> impl IntoResponse {
    ([(header::CONTENT_SECURITY_POLICY, PAGE_POLICY)], Html(include_str!("page.html")))
}

/// Refuses requests without the key.
async fn authorize(State(app): State<App>, request: Request, next: Next) -> Result<Response, ApiError> {
    let Some(key) = &app.api_key else { return Ok(next.run(request).await) };
    let given = key_of(request.headers()).unwrap_or_default();
    // Takes the same time for every wrong key of this length.
    let differences = key.bytes().zip(given.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    if key.len() != given.len() || differences != 0 {
        return Err(ApiError::unauthorized());
    }
    Ok(next.run(request).await)
}

fn key_of(headers: &HeaderMap) -> Option<&str> {
    if let Some(key) = headers.get("x-api-key") {
        return key.to_str().ok();
    }
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}
