//! The ends of the channels by which a runner's thread gives what it makes.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_channel::mpsc::{self, UnboundedReceiver, UnboundedSender};
use futures_core::Stream;

use super::{StopOnDrop, ended};
use crate::{
    Result,
    generate::{StopHandle, Summary},
};

/// A channel from a runner's thread.
pub(super) fn channel<T>() -> (UpdateSender<T>, Updates<T>) {
    let (sender, receiver) = mpsc::unbounded();
    let updates = Updates { receiver, stop: StopOnDrop::default(), summary: None, ended: false };
    (UpdateSender(sender), updates)
}

enum Update<T> {
    Item(Result<T>),
    /// The request is done; without a summary if it never began.
    End(Option<Summary>),
}

/// The runner's end. Nothing is sent where nobody listens any more.
pub(super) struct UpdateSender<T>(UnboundedSender<Update<T>>);

impl<T> UpdateSender<T> {
    pub fn send(&self, item: Result<T>) {
        _ = self.0.unbounded_send(Update::Item(item));
    }

    pub fn end(&self, result: Result<Summary>) {
        let summary = result.map_err(|error| self.send(Err(error))).ok();
        _ = self.0.unbounded_send(Update::End(summary));
    }
}

/// The caller's end.
pub(super) struct Updates<T> {
    receiver: UnboundedReceiver<Update<T>>,
    stop: StopOnDrop,
    summary: Option<Summary>,
    ended: bool,
}

impl<T> Updates<T> {
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.handle()
    }

    pub fn summary(&self) -> Option<&Summary> {
        self.summary.as_ref()
    }

    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let update = ready!(Pin::new(&mut self.receiver).poll_next(context));
        Poll::Ready(match update {
            Some(Update::Item(item)) => Some(item),
            Some(Update::End(summary)) => {
                (self.summary, self.ended) = (summary, true);
                None
            }
            None => {
                self.ended = true;
                Some(Err(ended()))
            }
        })
    }
}

impl<T> fmt::Debug for Updates<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Updates").field("summary", &self.summary).field("ended", &self.ended).finish_non_exhaustive()
    }
}

/// A text in the making, piece by piece: a stream of `Result<String>`, as [`Generation`](crate::Generation) is an iterator.
///
/// Dropping it ends the generation.
#[derive(Debug)]
#[must_use = "a stream that is dropped ends its generation"]
pub struct GenerationStream(Updates<String>);

impl GenerationStream {
    pub(super) fn new(updates: Updates<String>) -> Self {
        Self(updates)
    }

    /// A handle that stops the generation from elsewhere.
    pub fn stop_handle(&self) -> StopHandle {
        self.0.stop_handle()
    }

    /// How it went; `None` before the stream has ended, and where the generation could not begin.
    pub fn summary(&self) -> Option<&Summary> {
        self.0.summary()
    }
}

impl Stream for GenerationStream {
    type Item = Result<String>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll(context)
    }
}
