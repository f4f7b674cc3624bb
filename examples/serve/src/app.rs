//! The endpoints, and what all of them check.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, Uri, header, uri::Authority},
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
    access: Access,
}

/// Who may send requests.
#[derive(Clone)]
pub enum Access {
    /// Programs on this machine.
    Local,
    /// Everyone with this key.
    Key(String),
    /// Everyone.
    Open,
}

impl App {
    /// Returns the state of a server.
    pub fn new(engine: Engine, name: String, access: Access) -> Self {
        Self { engine: Arc::new(engine), name, started: id::now(), access }
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

/// Refuses requests of those who may not send any.
async fn authorize(State(app): State<App>, request: Request, next: Next) -> Result<Response, ApiError> {
    match &app.access {
        Access::Local => check_host(request.headers())?,
        Access::Key(key) => check_key(key, request.headers())?,
        Access::Open => {}
    }
    Ok(next.run(request).await)
}

/// Refuses names of other machines: a web page can give its own name this machine's address, and
/// its scripts may then read answers.
fn check_host(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(host) = headers.get(header::HOST) else { return Ok(()) };
    let host: Option<Authority> = host.to_str().ok().and_then(|host| host.parse().ok());
    match host.as_ref().map(Authority::host) {
        Some("localhost" | "127.0.0.1" | "[::1]") => Ok(()),
        Some(_) | None => {
            let what = "is not this machine: start the server with --api-key, so that others can use it";
            Err(ApiError::field("host", what))
        }
    }
}

fn check_key(key: &str, headers: &HeaderMap) -> Result<(), ApiError> {
    let given = key_of(headers).unwrap_or_default();
    // Takes the same time for every wrong key of this length.
    let differences = key.bytes().zip(given.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b));
    if key.len() == given.len() && differences == 0 { Ok(()) } else { Err(ApiError::unauthorized()) }
}

fn key_of(headers: &HeaderMap) -> Option<&str> {
    if let Some(key) = headers.get("x-api-key") {
        return key.to_str().ok();
    }
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}
