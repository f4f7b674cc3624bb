//! Tests of the public API.

#[cfg(feature = "async")]
mod asynchronous;
mod errors;
mod examples;
mod generate;
#[cfg(feature = "constrained")]
mod grammar;
mod load;
mod loading;
mod many;
mod profile;
mod prompts;
mod readme;
mod runner;
mod sampler;
mod score;
mod score_many;
mod session;
mod shared;
mod speculation;
#[cfg(feature = "constrained")]
mod typed;
