//! Streams the answers to conversations.

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

/// Answers a conversation piece by piece: a stream of `Result<String>`, the text of the answer.
///
/// It is the asynchronous [`Answer`](crate::Answer): [`events`](Self::events) also returns
/// reasoning and tool calls, and [`message`](Self::message) the answer as a message. Dropping the
/// stream ends the answer.
#[must_use = "a stream that is dropped ends its answer"]
pub struct AnswerStream {
    updates: Updates<AnswerEvent>,
    message: MessageBuilder,
}

impl AnswerStream {
    pub(super) fn new(updates: Updates<AnswerEvent>) -> Self {
        Self { updates, message: MessageBuilder::default() }
    }

    /// Returns a stream of the reasoning, the text and the tool calls of the answer, as
    /// `Result<AnswerEvent>`; see [`Answer::events`](crate::Answer::events).
    pub fn events(&mut self) -> AnswerEventStream<'_> {
        AnswerEventStream(self)
    }

    /// Returns the events so far as a message, which is complete after the stream has ended; see
    /// [`Answer::message`](crate::Answer::message).
    pub fn message(&self) -> Message {
        self.message.message()
    }

    /// Returns a handle that stops the answer, for example from another thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.updates.stop_handle()
    }

    /// Returns the statistics up to the last event, which are complete after the stream has ended;
    /// `None` before the first event, and if the answer could not start.
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

    /// Returns the next piece of text. A tool call is an
    /// [`Error::ToolCall`](crate::Error::ToolCall) here; use [`events`](AnswerStream::events) for
    /// answers with tools.
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

/// A stream of the events of an [`AnswerStream`].
#[derive(Debug)]
pub struct AnswerEventStream<'a>(&'a mut AnswerStream);

impl Stream for AnswerEventStream<'_> {
    type Item = Result<AnswerEvent>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_event(context)
    }
}
