//! Reads the bodies of requests.

use std::{fmt, marker::PhantomData};

use axum::{
    body::{self, Bytes},
    extract::Request,
    http::{HeaderMap, header},
};
use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeOwned, SeqAccess, Visitor},
};
use serde_json::Value;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    task, time,
};

use crate::{app::App, engine::Admission, error::ApiError, limits};

/// Reads the JSON of a request and converts it with `convert`, which may take long.
///
/// # Errors
/// [`ApiError`] if the server has too many requests, or the body is too large or malformed; as
/// `convert`.
pub async fn read<T, U>(
    app: &App,
    request: Request,
    convert: impl FnOnce(T, &App) -> Result<U, ApiError> + Send + 'static,
) -> Result<(U, Admission), ApiError>
where
    T: DeserializeOwned,
    U: Send + 'static,
{
    let admission = app.engine.admit()?;
    check_type(request.headers())?;
    let (bytes, large) = bytes(request).await?;
    // Images take much more memory than their files.
    static PARSERS: Semaphore = Semaphore::const_new(limits::PARSERS);
    let permit = PARSERS.acquire().await;
    let app = app.clone();
    let parsed = task::spawn_blocking(move || {
        let parsed = parse(&bytes).and_then(|request| convert(request, &app));
        drop((bytes, large, permit));
        parsed
    });
    let parsed = parsed.await.map_err(|_| ApiError::internal("reading the request has panicked"))?;
    Ok((parsed?, admission))
}

/// Returns the body of a request, and the permit of a large one: few of them are in memory at a
/// time.
async fn bytes(request: Request) -> Result<(Bytes, Option<SemaphorePermit<'static>>), ApiError> {
    static LARGE_BODIES: Semaphore = Semaphore::const_new(limits::LARGE_BODIES);
    let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let is_large = length.is_none_or(|length: usize| length > limits::LARGE_BODY);
    let permit = if is_large { LARGE_BODIES.acquire().await.ok() } else { None };
    let bytes = time::timeout(limits::BODY_TIME, body::to_bytes(request.into_body(), limits::BODY_BYTES)).await;
    let bytes = bytes.map_err(|_| ApiError::invalid("the body did not arrive in time"))?;
    Ok((bytes.map_err(|_| ApiError::too_large(limits::BODY_BYTES))?, permit))
}

/// Refuses bodies that a browser sends to other servers without asking them.
fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(ApiError::invalid("the header `content-type` must be `application/json`"))
}

/// Parses a request. A field that is null counts as absent.
///
/// # Errors
/// [`ApiError`] with the field that is unknown, missing or malformed.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let value: Value = serde_json::from_slice(bytes)
        .map_err(|error| ApiError::invalid(format!("the body is not valid JSON: {error}")))?;
    let Value::Object(mut fields) = value else {
        return Err(ApiError::invalid("the body must be a JSON object"));
    };
    fields.retain(|_, value| !value.is_null());
    serde_path_to_error::deserialize(Value::Object(fields)).map_err(|error| {
        let (path, what) = (error.path().to_string(), error.inner().to_string());
        ApiError::field(field_of(&path, &what), &what)
    })
}

/// Returns the path of the field that an error is about.
fn field_of(path: &str, what: &str) -> String {
    let named = ["unknown field `", "missing field `", "duplicate field `"]
        .iter()
        .find_map(|start| what.strip_prefix(start)?.split('`').next());
    let path = if path == "." { "" } else { path };
    match named {
        None if path.is_empty() => "body".to_owned(),
        None => path.to_owned(),
        Some(name) if path.is_empty() => name.to_owned(),
        Some(name) if path == name || path.ends_with(&format!(".{name}")) => path.to_owned(),
        Some(name) => format!("{path}.{name}"),
    }
}

/// A field that may only be null: clients send it back from answers, or always.
#[derive(Clone, Copy, Debug, Default)]
pub struct Null;

impl<'de> Deserialize<'de> for Null {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Option::<Value>::deserialize(deserializer)? {
            None => Ok(Self),
            Some(_) => Err(de::Error::custom("is not supported here, and must be null or absent")),
        }
    }
}

/// A text, or a list.
#[derive(Clone, Debug)]
pub enum TextOr<T> {
    /// A text.
    Text(String),
    /// A list.
    List(Vec<T>),
}

/// Reads a text or a list. Unlike `untagged`, it reports what is wrong with an element of a list.
impl<'de, T: Deserialize<'de>> Deserialize<'de> for TextOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrVisitor(PhantomData))
    }
}

struct TextOrVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for TextOrVisitor<T> {
    type Value = TextOr<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a list")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(TextOr::Text(text.to_owned()))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Self::Value, E> {
        Ok(TextOr::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        Vec::deserialize(de::value::SeqAccessDeserializer::new(list)).map(TextOr::List)
    }
}

impl TextOr<String> {
    /// Returns the texts as a list.
    pub fn into_vec(self) -> Vec<String> {
        match self {
            Self::Text(text) => vec![text],
            Self::List(texts) => texts,
        }
    }
}
