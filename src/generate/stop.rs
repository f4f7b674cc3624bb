//! Ends generations: stop reasons, stop handles, and the search for stop strings in streamed text.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The reason why a generation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// The model chose this end-of-generation token, which is not part of the text.
    EndOfGeneration(u32),
    /// The text reached this stop string, which is not part of it.
    StopString(String),
    /// [`GenerateOptions::max_tokens`](super::GenerateOptions::max_tokens) tokens were generated.
    TokenLimit,
    /// The context is full.
    ContextEnd,
    /// The caller ended it, by a stop handle or a callback, or has not read all of it.
    Caller,
    /// An error ended it, which the caller has received.
    Error,
}

/// Stops a generation, for example from another thread: before the next token, or before the next
/// chunk of the prompt.
#[derive(Clone, Debug, Default)]
pub struct StopHandle(Arc<AtomicBool>);

impl StopHandle {
    /// Returns a handle that has not been stopped.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops the generation.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether [`stop`](Self::stop) was called.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Finds stop strings in streamed text, and holds back text that may become one.
#[derive(Debug)]
pub(super) struct StopStrings {
    stops: Vec<String>,
    held: String,
}

impl StopStrings {
    pub(super) fn new(stops: &[String]) -> Result<Self> {
        if stops.iter().any(String::is_empty) {
            return Err(Error::argument(
                "stop",
                "contains an empty string, which would end every text at once: remove it",
            ));
        }
        Ok(Self { stops: stops.to_vec(), held: String::new() })
    }

    /// Adds a piece of text. Returns the text that can no longer be a part of a stop string, and
    /// the stop string if one is complete. Of several complete ones, it is the one that ends first,
    /// and of these the longest, so that the result does not depend on the pieces of the text.
    pub(super) fn push(&mut self, text: &str) -> (String, Option<String>) {
        self.held.push_str(text);
        let complete = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str()).map(|at| (at, stop)));
        if let Some((at, stop)) = complete.min_by_key(|(at, stop)| (at + stop.len(), *at)) {
            let stop = stop.clone();
            self.held.truncate(at);
            return (std::mem::take(&mut self.held), Some(stop));
        }
        let rest = self.held.split_off(self.settled());
        (std::mem::replace(&mut self.held, rest), None)
    }

    pub(super) fn is_pending(&self) -> bool {
        !self.held.is_empty()
    }

    /// Ends the text, and returns the text that was held back.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Returns the offset of the longest suffix of the held text with which a stop string begins.
    fn settled(&self) -> usize {
        let may_become = |at: &usize| self.stops.iter().any(|stop| stop.starts_with(&self.held[*at..]));
        self.held.char_indices().map(|(at, _)| at).find(may_become).unwrap_or(self.held.len())
    }
}
