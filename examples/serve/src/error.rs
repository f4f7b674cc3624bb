//! The errors that clients receive, in the form of the API that they use.

use axum::{
    extract::Request,
    http::{HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use inkstone::Error;
use serde_json::{Value, json};

use crate::id;

/// Reports why a request failed, with the field that is the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    kind: ErrorKind,
    message: String,
    /// The field of the request, as `messages[0].content`.
    field: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorKind {
    Invalid,
    ContextLength,
    Unauthorized,
    NotFound,
    Method,
    TooLarge,
    Busy,
    Draining,
    Memory,
    Internal,
}

impl ErrorKind {
    fn status(self) -> StatusCode {
        match self {
            Self::Invalid | Self::ContextLength => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Busy => StatusCode::TOO_MANY_REQUESTS,
            Self::Draining | Self::Memory => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns the type and the code of OpenAI's API.
    fn openai(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Invalid | Self::Method | Self::TooLarge => ("invalid_request_error", None),
            Self::ContextLength => ("invalid_request_error", Some("context_length_exceeded")),
            Self::Unauthorized => ("authentication_error", Some("invalid_api_key")),
            Self::NotFound => ("invalid_request_error", Some("not_found")),
            Self::Busy => ("rate_limit_error", Some("queue_full")),
            Self::Draining | Self::Memory | Self::Internal => ("server_error", None),
        }
    }

    /// Returns the type of Anthropic's API.
    fn anthropic(self) -> &'static str {
        match self {
            Self::Invalid | Self::ContextLength | Self::Method => "invalid_request_error",
            Self::Unauthorized => "authentication_error",
            Self::NotFound => "not_found_error",
            Self::TooLarge => "request_too_large",
            Self::Busy => "rate_limit_error",
            Self::Draining | Self::Memory => "overloaded_error",
            Self::Internal => "api_error",
        }
    }
}

impl ApiError {
    fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), field: None }
    }

    /// Returns the error for a field of the request.
    pub fn field(field: impl Into<String>, what: &str) -> Self {
        let field = field.into();
        let message = format!("{field}: {what}");
        Self { field: Some(field), ..Self::new(ErrorKind::Invalid, message) }
    }

    /// Returns the error for a request that is malformed as a whole.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// Returns the error for a missing or wrong key.
    pub fn unauthorized() -> Self {
        let message = "the API key is missing or wrong: send `Authorization: Bearer KEY` or `x-api-key: KEY`";
        Self::new(ErrorKind::Unauthorized, message)
    }

    /// Returns the error for a path that is not served.
    pub fn no_path(path: &str) -> Self {
        Self::new(ErrorKind::NotFound, format!("{path}: there is no such endpoint"))
    }

    /// Returns the error for a model that is not served.
    pub fn no_model(model: &str, served: &str) -> Self {
        let message = format!("model: `{model}` is not served, only `{served}`");
        Self { field: Some("model".into()), ..Self::new(ErrorKind::NotFound, message) }
    }

    /// Returns the error for a method that the path does not take.
    pub fn method() -> Self {
        Self::new(ErrorKind::Method, "the endpoint does not take this method")
    }

    /// Returns the error for a body that is larger than `most` bytes.
    pub fn too_large(most: usize) -> Self {
        Self::new(ErrorKind::TooLarge, format!("the body is larger than {most} bytes"))
    }

    /// Returns the error for a request that finds the queue full.
    pub fn busy() -> Self {
        Self::new(ErrorKind::Busy, "too many requests wait: try again later")
    }

    /// Returns the error for a request that the server cannot finish before it ends.
    pub fn draining() -> Self {
        Self::new(ErrorKind::Draining, "the server is shutting down")
    }

    /// Returns the error for a fault of the server.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// Sets the field, unless the error has one.
    #[must_use]
    pub fn or_field(mut self, field: &str) -> Self {
        self.field.get_or_insert_with(|| field.to_owned());
        self
    }

    /// Sets the field of the prompt, if the prompt is the reason.
    #[must_use]
    pub fn in_prompt(self, field: &str) -> Self {
        if self.kind == ErrorKind::ContextLength { self.or_field(field) } else { self }
    }

    /// Returns the error as OpenAI's API has it.
    pub fn openai(&self) -> Value {
        let (kind, code) = self.kind.openai();
        json!({"error": {"message": self.message, "type": kind, "param": self.field, "code": code}})
    }

    /// Returns the error as Anthropic's API has it.
    pub fn anthropic(&self) -> Value {
        json!({
            "type": "error",
            "error": {"type": self.kind.anthropic(), "message": self.message},
            "request_id": id::unique("req_"),
        })
    }

    /// Returns the error as an answer of the responses API has it.
    pub fn of_response(&self) -> Value {
        let code = match self.kind {
            ErrorKind::Busy => "rate_limit_exceeded",
            ErrorKind::Invalid | ErrorKind::ContextLength => "invalid_prompt",
            _ => "server_error",
        };
        json!({"code": code, "message": self.message})
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::Argument { name, .. } => {
                Self { field: Some(name.to_owned()), ..Self::new(ErrorKind::Invalid, message) }
            }
            Error::ContextFull { .. } => Self::new(ErrorKind::ContextLength, message),
            Error::ChatTemplate(_)
            | Error::Grammar(_)
            | Error::Image { .. }
            | Error::ImageTooLarge { .. }
            | Error::Tokenizer(_)
            | Error::Unsupported(_)
            | Error::VisionEncoder { .. }
            | Error::MissingFeature { .. } => Self::new(ErrorKind::Invalid, message),
            Error::Busy { .. } => Self::new(ErrorKind::Busy, message),
            Error::Memory { .. } | Error::OutOfMemory { .. } | Error::DeviceMemory { .. } => {
                Self::new(ErrorKind::Memory, message)
            }
            _ => Self::new(ErrorKind::Internal, message),
        }
    }
}

/// Returns a response without a body, which [`render`] writes.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.kind.status().into_response();
        if self.kind == ErrorKind::Busy {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

/// Writes errors in the form of the API that the request is for.
pub async fn render(request: Request, next: Next) -> Response {
    let is_anthropic = request.uri().path().starts_with("/v1/messages");
    let mut response = next.run(request).await;
    let Some(error) = response.extensions_mut().remove::<ApiError>() else { return response };
    let body = if is_anthropic { error.anthropic() } else { error.openai() };
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    (parts.status, parts.headers, axum::Json(body)).into_response()
}
