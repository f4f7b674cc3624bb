//! Settings of which one value is supported: the one that changes nothing.

use serde::Deserialize;

/// The priority of a request, which all requests share.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServiceTier {
    /// The choice of the server.
    Auto,
    /// The only one.
    Default,
}

/// The length of an answer.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verbosity {
    /// The model's own.
    Medium,
}
