//! Streams of answers to conversations.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_core::Stream;

use super::stream::Updates;
use crate::{
    Result,
    chat::{AnswerEvent, Message},
    generate::{StopHandle, Summary},
    runner::answer::{MessageBuilder, text_of},
};

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
        self.updates.summary()
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
