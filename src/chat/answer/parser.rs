//! The parser of answers: a state machine over text that arrives in pieces.

use super::{
    call_form::CallForm,
    call_format::{CallEnd, CallFormat},
    event::AnswerEvent,
    harmony::{self, Messages, Part},
    marks::{MarkMatch, match_mark, take_up_to},
    offered_tools::OfferedTools,
    reasoning::{self, ReasoningMarks},
    scanner::{CallRange, CallScanner},
};
use crate::{
    chat::{ChatOptions, ChatTemplate, ToolCall, ToolChoice},
    error::{Error, Result},
};

/// Splits a streamed answer into reasoning, text and tool calls.
///
/// ```
/// use inkstone::chat::{AnswerEvent, ChatOptions, ChatTemplate};
///
/// let source = "{{ '</think>' if not add_generation_prompt else '<think>\n' }}";
/// let template = ChatTemplate::new(source, "", "")?;
/// let mut parser = template.parser(&ChatOptions::default(), "<think>\n")?;
/// let mut events = parser.push("A sum.\n</th");
/// events.extend(parser.push("ink>\n\nIt is 4."));
/// events.extend(parser.finish());
/// let events = events.into_iter().collect::<Result<Vec<_>, _>>()?;
/// let reasoning = AnswerEvent::Reasoning("A sum.".into());
/// assert_eq!(events, [reasoning, AnswerEvent::Text("It is 4.".into())]);
/// # Ok::<(), inkstone::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AnswerParser {
    pub(super) reasoning: Option<&'static ReasoningMarks>,
    pub(super) calls: Option<&'static CallFormat>,
    pub(super) offered: OfferedTools,
    /// Number of calls so far.
    call_count: usize,
    state: ParserState,
    /// Text that may belong to a mark or to an unfinished call.
    held: String,
}

#[derive(Clone, Debug)]
enum ParserState {
    /// At the start of the answer (`first`), or right after reasoning or a call: an unmarked call
    /// may begin.
    Start { first: bool },
    /// Within reasoning; `begun` once a piece of it was returned.
    Reasoning { begun: bool },
    /// Within text.
    Text,
    /// In a list of messages, as gpt-oss writes.
    Messages(Messages),
    /// Within a call, after its opening mark, which was removed from the held text.
    Call { mark: &'static str, scanner: CallScanner },
}

type Events = Vec<Result<AnswerEvent>>;

impl ChatTemplate {
    /// Returns a parser for the model's answer to a prompt that this template rendered.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] if there are tools and the template shows no known format of tool
    /// calls; [`Error::Argument`] for a tool with a schema that calls cannot be checked against,
    /// and for a choice of a tool that is not offered.
    pub fn parser(&self, options: &ChatOptions, prompt: &str) -> Result<AnswerParser> {
        let reasoning = ReasoningMarks::shown_by(self.source());
        let form = options.call_form.or_else(|| CallForm::shown_by(self.source()));
        let calls = match form {
            _ if options.tools.is_empty() => None,
            Some(form) => Some(form.format()),
            None => {
                let what = "shows no known format of tool calls: set the model's format with `ChatOptions::call_form`";
                return Err(Error::ChatTemplate(what.to_owned()));
            }
        };
        if form == Some(CallForm::Harmony) || reasoning.is_some_and(|marks| marks.open == reasoning::HARMONY.open) {
            let (messages, held) = Messages::after(prompt, calls.is_some());
            let (state, reasoning) = (ParserState::Messages(messages), Some(&reasoning::HARMONY));
            let offered = OfferedTools::new(options)?;
            return Ok(AnswerParser { reasoning, calls, offered, call_count: 0, state, held });
        }
        let state = match reasoning {
            Some(reasoning) if prompt.trim_end().ends_with(reasoning.open) => ParserState::Reasoning { begun: false },
            _ => ParserState::Start { first: true },
        };
        let offered = OfferedTools::new(options)?;
        Ok(AnswerParser { reasoning, calls, offered, call_count: 0, state, held: String::new() })
    }
}

impl AnswerParser {
    /// Adds a piece of the model's output, and returns the events that are certain now. A call that
    /// cannot be parsed, or that does not fit the offered tools, is an [`Error::ToolCall`]; the
    /// answer may continue after it.
    pub fn push(&mut self, text: &str) -> Vec<Result<AnswerEvent>> {
        self.held.push_str(text);
        self.settle(false)
    }

    /// Ends the answer, and returns the events of the text that was held back. An unfinished call
    /// is an [`Error::ToolCall`].
    pub fn finish(&mut self) -> Vec<Result<AnswerEvent>> {
        self.settle(true)
    }

    /// Returns whether a special token with this text is part of a mark around reasoning or calls,
    /// so that [`push`](Self::push) has to receive it.
    pub fn reads(&self, token: &str) -> bool {
        let reasoning = self.reasoning.into_iter().flat_map(|reasoning| [reasoning.open, reasoning.close]);
        let messages = matches!(self.state, ParserState::Messages(_)).then_some(harmony::MARKS).into_iter().flatten();
        let calls = self.calls.into_iter().flat_map(CallFormat::marks);
        calls.chain(reasoning).chain(messages).any(|mark| mark.contains(token))
    }

    /// Returns the marks before and after reasoning; `None` for models without reasoning.
    #[cfg(feature = "constrained")]
    pub(crate) fn reasoning_marks(&self) -> Option<[&'static str; 2]> {
        self.reasoning.map(|reasoning| [reasoning.open, reasoning.close])
    }

    /// Returns the opening mark of calls, if a call also ends reasoning that was not closed.
    #[cfg(feature = "constrained")]
    pub(crate) fn call_mark_within_reasoning(&self) -> Option<&'static str> {
        self.calls.filter(|calls| calls.ends_reasoning).map(|calls| calls.open)
    }

    /// Returns whether tools are offered.
    #[cfg(feature = "constrained")]
    pub(crate) fn offers_tools(&self) -> bool {
        self.calls.is_some()
    }

    /// Returns the tool choice of the options.
    pub(crate) fn tool_choice(&self) -> Option<&ToolChoice> {
        self.offered.choice.as_ref()
    }

    /// Returns a parser that treats calls as text.
    #[cfg(feature = "constrained")]
    pub(crate) fn without_calls(self) -> Self {
        Self { calls: None, ..self }
    }

    /// Returns whether the next text is reasoning.
    #[cfg(feature = "constrained")]
    pub(crate) fn is_reasoning(&self) -> bool {
        match &self.state {
            ParserState::Reasoning { .. } => true,
            ParserState::Messages(messages) => messages.is_reasoning(),
            ParserState::Start { .. } | ParserState::Text | ParserState::Call { .. } => false,
        }
    }

    fn settle(&mut self, last: bool) -> Events {
        let mut events = vec![];
        loop {
            let goes_on = match &mut self.state {
                &mut ParserState::Start { first } => self.start(first, last),
                &mut ParserState::Reasoning { begun } => self.reasoning(begun, last, &mut events),
                ParserState::Text => self.text(last, &mut events),
                ParserState::Call { .. } => self.call(last, &mut events),
                ParserState::Messages(messages) => {
                    let part = messages.next(&mut self.held, last);
                    part.is_some_and(|part| self.part(part, &mut events))
                }
            };
            if !goes_on {
                return events;
            }
        }
    }

    /// Decides between reasoning, a call and text. White space before text is kept only at the
    /// start of the answer. Returns whether there is text to continue with.
    fn start(&mut self, first: bool, last: bool) -> bool {
        let separators = self.calls.map_or(&[][..], |calls| calls.separators);
        let skipped = |char: char| char.is_whitespace() || (!first && separators.contains(&char));
        let rest = self.held.trim_start_matches(skipped);
        let space = self.held.len() - rest.len();
        let reasoning = match self.reasoning {
            Some(reasoning) if first => match_mark(reasoning.open, rest),
            _ => MarkMatch::None,
        };
        let call = match self
            .calls
            .and_then(|calls| calls.unmarked.as_ref())
            .map(|unmarked| (unmarked.begins)(rest, &self.offered.tools))
        {
            None | Some(Some(false)) => MarkMatch::None,
            Some(None) => MarkMatch::Partial,
            Some(Some(true)) => MarkMatch::Full,
        };
        match (reasoning, call) {
            (MarkMatch::Full, _) => {
                let open = self.reasoning.map_or(0, |reasoning| reasoning.open.len());
                self.held.drain(..space + open);
                self.state = ParserState::Reasoning { begun: false };
            }
            (_, MarkMatch::Full) => {
                self.held.drain(..space);
                self.state = call_after("");
            }
            (MarkMatch::Partial, _) | (_, MarkMatch::Partial) if !last => return false,
            _ if first => self.state = ParserState::Text,
            _ => {
                self.held.drain(..space);
                if self.held.is_empty() {
                    return false;
                }
                self.state = ParserState::Text;
            }
        }
        true
    }

    fn reasoning(&mut self, begun: bool, last: bool, events: &mut Events) -> bool {
        let (reasoning, calls) = (self.reasoning, self.calls.filter(|calls| calls.ends_reasoning));
        let close = reasoning.map_or("", |reasoning| reasoning.close);
        let end: Vec<&'static str> = [close].into_iter().chain(calls.map(|calls| calls.open)).collect();
        if !begun {
            let space = self.held.len() - self.held.trim_start().len();
            self.held.drain(..space);
        }
        let (text, found) = take_up_to(&mut self.held, &end, last);
        let text = if found.is_some() || last { text.trim_end() } else { &text };
        if !text.is_empty() {
            events.push(Ok(AnswerEvent::Reasoning(text.to_owned())));
        }
        match found {
            None => {
                self.state = ParserState::Reasoning { begun: begun || !text.is_empty() };
                return false;
            }
            Some(mark) if mark == close => self.state = ParserState::Start { first: false },
            Some(open) => self.state = call_after(open),
        }
        true
    }

    fn text(&mut self, last: bool, events: &mut Events) -> bool {
        let reasoning = self.reasoning.filter(|reasoning| reasoning.anywhere).map(|reasoning| reasoning.open);
        let open = self.calls.map(|calls| calls.open).filter(|open| !open.is_empty());
        let marks: Vec<&'static str> = open.into_iter().chain(reasoning).collect();
        let (text, found) = take_up_to(&mut self.held, &marks, last);
        let text = if found.is_some() { text.trim_end() } else { &text };
        if !text.is_empty() {
            events.push(Ok(AnswerEvent::Text(text.to_owned())));
        }
        match found {
            None => return false,
            Some(mark) if Some(mark) == open => self.state = call_after(mark),
            Some(_) => self.state = ParserState::Reasoning { begun: false },
        }
        true
    }

    fn call(&mut self, last: bool, events: &mut Events) -> bool {
        let (ParserState::Call { mark, scanner }, Some(format)) = (&mut self.state, self.calls) else { return false };
        // If a quote was never closed, the end is searched for within it, too.
        let unquoted = || match format.end {
            CallEnd::Mark(mark) if last => {
                self.held.find(mark).map(|content_end| CallRange { content_end, mark_end: content_end + mark.len() })
            }
            _ => None,
        };
        let Some(CallRange { content_end, mark_end }) = scanner.advance(&self.held, format, last).or_else(unquoted)
        else {
            if last {
                events.push(Err(Error::ToolCall {
                    what: "is not finished".to_owned(),
                    text: mark.to_owned() + &self.held,
                    call: None,
                }));
                self.held.clear();
                self.state = ParserState::Start { first: false };
            }
            return false;
        };
        let text = mark.to_owned() + &self.held[..mark_end];
        match (format.parse)(&self.held[..content_end], &self.offered.tools) {
            Ok(calls) => events.extend(calls.into_iter().map(|call| self.check_call(call, &text))),
            Err(what) => events.push(Err(Error::ToolCall { what, text, call: None })),
        }
        self.held.drain(..mark_end);
        self.state = ParserState::Start { first: false };
        true
    }

    /// Adds the events of a part of a message. Returns whether there may be text to continue with.
    fn part(&mut self, part: Part, events: &mut Events) -> bool {
        let text = match part {
            Part::Nothing => return true,
            Part::Reasoning(text) => {
                events.push(Ok(AnswerEvent::Reasoning(text)));
                return true;
            }
            Part::Text(text) => {
                events.push(Ok(AnswerEvent::Text(text)));
                return true;
            }
            Part::Call(text) => text,
        };
        match self.calls.map(|format| (format.parse)(&text, &self.offered.tools)) {
            Some(Ok(calls)) => events.extend(calls.into_iter().map(|call| self.check_call(call, &text))),
            Some(Err(what)) => events.push(Err(Error::ToolCall { what, text, call: None })),
            None => {}
        }
        true
    }

    fn check_call(&mut self, call: ToolCall, text: &str) -> Result<AnswerEvent> {
        let checked = self.offered.check(&call, self.call_count);
        self.call_count += 1;
        match checked {
            Ok(()) => Ok(AnswerEvent::ToolCall(call)),
            Err(what) => Err(Error::ToolCall { what, text: text.to_owned(), call: Some(Box::new(call)) }),
        }
    }
}

fn call_after(mark: &'static str) -> ParserState {
    ParserState::Call { mark, scanner: CallScanner::default() }
}
