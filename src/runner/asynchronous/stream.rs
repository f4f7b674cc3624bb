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
    chat::{AnswerEvent, Message},
    generate::{StopHandle, Summary},
    runner::answer::{MessageBuilder, text_of},
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

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
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
        self.0.summary.as_ref()
    }
}

impl Stream for GenerationStream {
    type Item = Result<String>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll(context)
    }
}

/// An answer in the making: a stream of `Result<String>`, the text of the answer, as [`Answer`](crate::Answer) is an iterator.
///
/// What the model thinks is no part of that text. [`events`](Self::events) has all of it, and the calls of tools; and
/// [`message`](Self::message) is the answer for the conversation to go on from. Dropping the stream ends the answer.
#[must_use = "a stream that is dropped ends its answer"]
pub struct AnswerStream {
    updates: Updates<AnswerEvent>,
    message: MessageBuilder,
}

impl AnswerStream {
    pub(super) fn new(updates: Updates<AnswerEvent>) -> Self {
        Self { updates, message: MessageBuilder::default() }
    }

    /// All that comes: thoughts, text and calls of tools, as a stream of `Result<AnswerEvent>`; see
    /// [`Answer::events`](crate::Answer::events).
    pub fn events(&mut self) -> AnswerEventStream<'_> {
        AnswerEventStream(self)
    }

    /// Returns the events so far as a message, which is the answer once the stream has ended; see
    /// [`Answer::message`](crate::Answer::message).
    pub fn message(&self) -> Message {
        self.message.message()
    }

    /// A handle that stops the answer from elsewhere.
    pub fn stop_handle(&self) -> StopHandle {
        self.updates.stop_handle()
    }

    /// How it went; `None` before the stream has ended, and where the answer could not begin.
    pub fn summary(&self) -> Option<&Summary> {
        self.updates.summary.as_ref()
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<AnswerEvent>>> {
        let event = ready!(self.updates.poll(context));
        event.iter().for_each(|event| self.message.add(event));
        Poll::Ready(event)
    }
}

impl Stream for AnswerStream {
    type Item = Result<String>;

    /// The next piece of the answer's text. A call of a tool is an [`Error::ToolCall`](crate::Error::ToolCall) here: it comes by
    /// [`events`](AnswerStream::events).
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Some(event) = ready!(self.poll_event(context)) else { return Poll::Ready(None) };
            if let Some(text) = text_of(event) {
                return Poll::Ready(Some(text));
            }
        }
    }
}

impl fmt::Debug for AnswerStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerStream")
            .field("updates", &self.updates)
            .field("message", &self.message())
            .finish_non_exhaustive()
    }
}

/// All that comes of an [`AnswerStream`].
#[derive(Debug)]
pub struct AnswerEventStream<'a>(&'a mut AnswerStream);

impl Stream for AnswerEventStream<'_> {
    type Item = Result<AnswerEvent>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_event(context)
    }
}
