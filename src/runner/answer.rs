//! A model's answer in the making.

use std::{collections::VecDeque, fmt, iter::FusedIterator};

use crate::{
    Error, Result,
    chat::{AnswerEvent, AnswerParser, Message, ToolCall},
    generate::{Generation, StopHandle, Summary},
    sampler::LogitsProcessor,
};

/// Answers a conversation piece by piece: an iterator over `Result<String>`, the text of the answer.
///
/// What the model thinks is no part of that text. [`events`](Self::events) has all of it, and the calls of tools; and
/// [`message`](Self::message) is the answer for the conversation to go on from. Dropping the answer ends it.
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

    /// Lets this handle stop the answer, in the place of its own.
    #[must_use]
    pub fn with_stop_handle(mut self, handle: StopHandle) -> Self {
        self.generation = self.generation.with_stop_handle(handle);
        self
    }

    /// All that comes: thoughts, text and calls of tools, as an iterator over `Result<AnswerEvent>`.
    ///
    /// An [`Error::ToolCall`] is one call that cannot be read, or that does not fit the tools that
    /// were offered; the answer may go on after it. See [`AnswerEvent::ToolCall`] for how to send
    /// it back to the model.
    pub fn events(&mut self) -> AnswerEvents<'_, 'a> {
        AnswerEvents(self)
    }

    /// Returns the events so far as a message, which is the answer once the iterator has ended. It
    /// has every call that could be read, also those that came as an [`Error::ToolCall`] because
    /// they do not fit their tool.
    pub fn message(&self) -> Message {
        self.message.message()
    }

    /// A handle that stops the answer from elsewhere.
    pub fn stop_handle(&self) -> StopHandle {
        self.generation.stop_handle()
    }

    /// How it went; complete once the iterator has ended.
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

    /// The text as the model makes it, which this takes apart.
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

/// The message that an answer's events come to.
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
            // The model must see its call to make sense of the error that is sent back as the
            // call's result.
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

/// What an event is to those who read the answer's text alone: `None` where it is no part of that.
pub(super) fn text_of(event: Result<AnswerEvent>) -> Option<Result<String>> {
    match event {
        Ok(AnswerEvent::Text(text)) => Some(Ok(text)),
        Ok(AnswerEvent::ToolCall(call)) => {
            let what = "came where only the answer's text is read: read its `events`".to_owned();
            let text = format!("{}({})", call.name, call.arguments);
            Some(Err(Error::ToolCall { what, text, call: Some(Box::new(call)) }))
        }
        Ok(AnswerEvent::Reasoning(_)) => None,
        Err(error) => Some(Err(error)),
    }
}

impl Iterator for Answer<'_> {
    type Item = Result<String>;

    /// The next piece of the answer's text. A call of a tool is an [`Error::ToolCall`] here: it comes by [`events`](Answer::events).
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(text) = text_of(self.next_event()?) {
                return Some(text);
            }
        }
    }
}

impl FusedIterator for Answer<'_> {}

/// All that comes of an [`Answer`].
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
