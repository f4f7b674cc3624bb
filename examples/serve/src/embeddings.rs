//! The embeddings API: `/v1/embeddings`.

use crate::error::ApiError;

/// Refuses the request: the library has no embeddings.
pub async fn create() -> ApiError {
    ApiError::field("model", "has no embeddings: it generates text")
}
