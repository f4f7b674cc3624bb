//! What ends a generation: the reasons, the caller's handle, and the search for stop strings in a stream of text.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::{Error, Result};

/// Why a generation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// The model chose this end-of-generation token, which is not part of the text.
    EndOfGeneration(u32),
    /// The text came to this stop string, which is not part of it.
    StopString(String),
    /// As many tokens were generated as were asked for.
    TokenLimit,
    /// The context is full.
    ContextEnd,
    /// The caller did not go on: by its handle, its callback, or by not asking for more.
    Caller,
    /// An error, which the caller was given.
    Error,
}

/// Stops a generation from elsewhere, for instance from another thread: before the next token, or before the next chunk
/// of the prompt.
#[derive(Clone, Debug, Default)]
pub struct StopHandle(Arc<AtomicBool>);

impl StopHandle {
    /// A handle that is not stopped.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops the generation.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`stop`](Self::stop) was called.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Finds stop strings in text that comes piece by piece, and holds back what may become one.
#[derive(Debug)]
pub(super) struct StopStrings {
    stops: Vec<String>,
    held: String,
}

impl StopStrings {
    pub(super) fn new(stops: &[String]) -> Result<Self> {
        if stops.iter().any(String::is_empty) {
            return Err(Error::argument("stop", "has an empty string, which would stop at once"));
        }
        Ok(Self { stops: stops.to_vec(), held: String::new() })
    }

    /// Takes more text and returns what of all that came can no longer be part of a stop string; and the stop string,
    /// if one is complete. Where several are, it is the one that was complete first, and of these the longest: so that
    /// it does not matter into which pieces the text was cut.
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

    /// What was held back, at the end of the text.
    pub(super) fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Where the first suffix begins that a stop string begins with.
    fn settled(&self) -> usize {
        let may_become = |at: &usize| self.stops.iter().any(|stop| stop.starts_with(&self.held[*at..]));
        self.held.char_indices().map(|(at, _)| at).find(may_become).unwrap_or(self.held.len())
    }
}
