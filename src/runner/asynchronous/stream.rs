//! The channels through which the runner's thread sends pieces of text and events.

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

/// Returns a channel from the runner's thread to a caller.
pub(super) fn channel<T>() -> (UpdateSender<T>, Updates<T>) {
    let (sender, receiver) = mpsc::unbounded();
    let updates = Updates { receiver, stop: StopOnDrop::default(), summary: None, ended: false };
    (UpdateSender(sender), updates)
}

enum Update<T> {
    /// An item, and the statistics so far.
    Item(Result<T>, Summary),
    /// The end of the request, with the error if it could not start.
    End(Result<Summary>),
}

/// The sending end, on the runner's thread. Updates are dropped if the receiver was dropped.
pub(super) struct UpdateSender<T>(UnboundedSender<Update<T>>);

impl<T> UpdateSender<T> {
    pub fn send(&self, item: Result<T>, summary: &Summary) {
        _ = self.0.unbounded_send(Update::Item(item, summary.clone()));
    }

    pub fn end(&self, result: Result<Summary>) {
        _ = self.0.unbounded_send(Update::End(result));
    }
}

/// The receiving end of the caller.
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
            Some(Update::Item(item, summary)) => {
                self.summary = Some(summary);
                Some(item)
            }
            Some(Update::End(Ok(summary))) => {
                (self.summary, self.ended) = (Some(summary), true);
                None
            }
            Some(Update::End(Err(error))) => {
                self.ended = true;
                Some(Err(error))
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

/// Generates a text piece by piece: a stream of `Result<String>`.
///
/// It is the asynchronous [`Generation`](crate::Generation). Dropping it ends the generation.
#[derive(Debug)]
#[must_use = "a stream that is dropped ends its generation"]
pub struct GenerationStream(Updates<String>);

impl GenerationStream {
    pub(super) fn new(updates: Updates<String>) -> Self {
        Self(updates)
    }

    /// Returns a handle that stops the generation, for example from another thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.0.stop_handle()
    }

    /// Returns the statistics up to the last piece, which are complete after the stream has ended;
    /// `None` before the first piece, and if the generation could not start.
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
