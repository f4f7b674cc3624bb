//! Generates the answer to a conversation.

use std::{collections::VecDeque, fmt, iter::FusedIterator};

use crate::{
    Error, Result,
    chat::{AnswerEvent, AnswerParser, Message, ToolCall},
    generate::{Generation, StopHandle, Summary},
    sampler::LogitsProcessor,
};

/// Answers a conversation piece by piece: an iterator over `Result<String>`, the text of the
/// answer.
///
/// The text does not include reasoning and tool calls; [`events`](Self::events) returns them, too.
/// [`message`](Self::message) returns the answer as a message, with which the conversation can
/// continue. Dropping the answer ends it.
pub struct Answer<'a> {
    generation: Generation<'a>,
    parser: AnswerParser,
    ready: VecDeque<Result<AnswerEvent>>,
    ended: bool,
    message: MessageBuilder,
}

impl<'a> Answer<'a> {
    pub(super) fn new(generation: Generation<'a>, parser: AnswerParser) -> Self {
        Self { generation, parser, ready: VecDeque::new(), ended: false, message: MessageBuilder::default() }
    }

    /// Adds a stage to the sampler; see [`Generation::with_processor`].
    #[must_use]
    pub fn with_processor(mut self, processor: impl LogitsProcessor + 'static) -> Self {
        self.generation = self.generation.with_processor(processor);
        self
    }

    /// Replaces the stop handle of the answer.
    #[must_use]
    pub fn with_stop_handle(mut self, handle: StopHandle) -> Self {
        self.generation = self.generation.with_stop_handle(handle);
        self
    }

    /// Returns an iterator over the reasoning, the text and the tool calls of the answer, as
    /// `Result<AnswerEvent>`.
    ///
    /// An [`Error::ToolCall`] is a call that cannot be parsed, or that does not fit the offered
    /// tools. The answer may continue after it. See [`AnswerEvent::ToolCall`] for how to send it
    /// back to the model.
    pub fn events(&mut self) -> AnswerEvents<'_, 'a> {
        AnswerEvents(self)
    }

    /// Returns the events so far as a message, which is complete after the iterator has ended. It
    /// includes every call that could be parsed, even if it was reported as an [`Error::ToolCall`].
    pub fn message(&self) -> Message {
        self.message.message()
    }

    /// Generates the rest of the answer and returns its text, without the reasoning.
    ///
    /// # Errors
    /// The first error of the iterator; a tool call is an [`Error::ToolCall`].
    pub fn into_text(self) -> Result<String> {
        self.collect()
    }

    /// Returns a handle that stops the answer, for example from another thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.generation.stop_handle()
    }

    /// Returns the statistics, which are complete after the iterator has ended.
    pub fn summary(&self) -> &Summary {
        self.generation.summary()
    }

    /// Computes the prompt now; see [`Generation::prefill`].
    ///
    /// # Errors
    /// As [`Generation::prefill`].
    pub fn prefill(&mut self, progress: impl FnMut(usize, usize) -> bool) -> Result<()> {
        self.generation.prefill(progress)
    }

    /// Returns the generation whose text this answer splits into events.
    pub fn generation(&self) -> &Generation<'a> {
        &self.generation
    }

    fn next_event(&mut self) -> Option<Result<AnswerEvent>> {
        while self.ready.is_empty() && !self.ended {
            match self.generation.next() {
                Some(Ok(piece)) => self.ready.extend(self.parser.push(&piece)),
                Some(Err(error)) => self.ready.push_back(Err(error)),
                None => {
                    self.ended = true;
                    self.ready.extend(self.parser.finish());
                }
            }
        }
        let event = self.ready.pop_front()?;
        self.message.add(&event);
        Some(event)
    }
}

/// Collects the events of an answer into a message.
#[derive(Default)]
pub(super) struct MessageBuilder {
    text: String,
    reasoning: Option<String>,
    tool_calls: Vec<ToolCall>,
}

impl MessageBuilder {
    pub fn add(&mut self, event: &Result<AnswerEvent>) {
        match event {
            Ok(AnswerEvent::Text(text)) => self.text += text,
            Ok(AnswerEvent::Reasoning(text)) => *self.reasoning.get_or_insert_default() += text,
            Ok(AnswerEvent::ToolCall(call)) => self.tool_calls.push(call.clone()),
            // The message includes the call, so that the model can relate the error in the tool's
            // result to it.
            Err(Error::ToolCall { call: Some(call), .. }) => self.tool_calls.push((**call).clone()),
            Err(_) => {}
        }
    }

    pub fn message(&self) -> Message {
        let Self { text, reasoning, tool_calls } = self;
        let message = Message::assistant(text).with_tool_calls(tool_calls.iter().cloned());
        Message { reasoning: reasoning.clone(), ..message }
    }
}

/// Returns the item that an iterator over text yields for an event; `None` for reasoning.
pub(super) fn text_of(event: Result<AnswerEvent>) -> Option<Result<String>> {
    match event {
        Ok(AnswerEvent::Text(text)) => Some(Ok(text)),
        Ok(AnswerEvent::ToolCall(call)) => {
            let what = "cannot be returned as text: read the answer's `events`".to_owned();
            let text = format!("{}({})", call.name, call.arguments);
            Some(Err(Error::ToolCall { what, text, call: Some(Box::new(call)) }))
        }
        Ok(AnswerEvent::Reasoning(_)) => None,
        Err(error) => Some(Err(error)),
    }
}

impl Iterator for Answer<'_> {
    type Item = Result<String>;

    /// Returns the next piece of text. A tool call is an [`Error::ToolCall`] here; use
    /// [`events`](Answer::events) for answers with tools.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(text) = text_of(self.next_event()?) {
                return Some(text);
            }
        }
    }
}

impl FusedIterator for Answer<'_> {}

/// An iterator over the events of an [`Answer`].
#[derive(Debug)]
pub struct AnswerEvents<'r, 'a>(&'r mut Answer<'a>);

impl Iterator for AnswerEvents<'_, '_> {
    type Item = Result<AnswerEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next_event()
    }
}

impl FusedIterator for AnswerEvents<'_, '_> {}

impl fmt::Debug for Answer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("generation", &self.generation)
            .field("message", &self.message())
            .finish_non_exhaustive()
    }
}
