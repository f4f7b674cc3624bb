//! The parser: what was held back, and what may come next.

use super::call_format::Shape;
use super::offered_tools::Offered;
use super::scanner::{Ends, Scan};
use super::reasoning::Thinking;
use super::{AnswerEvent, CallForm};
use crate::chat::{ChatOptions, ChatTemplate, ToolCall, ToolChoice};
use crate::error::{Error, Result};

/// Takes an answer apart as it comes.
///
/// ```
/// use inkstone::chat::{AnswerEvent, ChatOptions, ChatTemplate};
///
/// let template = ChatTemplate::new("{{ '</think>' if not add_generation_prompt else '<think>\n' }}", "", "")?;
/// let mut parser = template.parser(&ChatOptions::default(), "<think>\n")?;
/// let mut events = parser.push("A sum.\n</th");
/// events.extend(parser.push("ink>\n\nIt is 4."));
/// events.extend(parser.finish());
/// let events = events.into_iter().collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(events, [AnswerEvent::Reasoning("A sum.".into()), AnswerEvent::Text("It is 4.".into())]);
/// # Ok::<(), inkstone::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AnswerParser {
    pub(super) thinking: Option<&'static Thinking>,
    pub(super) calls: Option<&'static Shape>,
    pub(super) offered: Offered,
    /// How many calls came.
    called: usize,
    state: State,
    /// What is not settled yet.
    held: String,
}

#[derive(Clone, Debug)]
enum State {
    /// Nothing is said yet, or nothing since a thought or a call; a call that has no mark may begin.
    Start { first: bool },
    /// Within a thought, of which something was given out or not.
    Thought { begun: bool },
    /// Within what is said.
    Said,
    /// Within a call that began with this mark, which was taken away.
    Call { mark: &'static str, scan: Scan },
}

/// What stands where a mark is looked for.
enum Mark {
    /// Something else.
    None,
    /// What may become one.
    Part,
    Whole,
}

type Events = Vec<Result<AnswerEvent>>;

impl ChatTemplate {
    /// What takes apart the model's answer to a prompt of this template.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] where there are tools and the template shows no form of calls that
    /// is known; [`Error::Argument`] for a tool whose schema cannot be checked by, and for a choice
    /// of a tool that is not offered.
    pub fn parser(&self, options: &ChatOptions, prompt: &str) -> Result<AnswerParser> {
        let thinking = Thinking::of(self.source());
        let form = options.call_form.or_else(|| CallForm::of(self.source()));
        let calls = match (options.tools.is_empty(), form) {
            (true, _) => None,
            (false, Some(form)) => Some(form.shape()),
            (false, None) => {
                let what = "shows none of the forms of tool calls that are known: set `ChatOptions::call_form`";
                return Err(Error::ChatTemplate(what.to_owned()));
            }
        };
        let state = match thinking {
            Some(thinking) if prompt.trim_end().ends_with(thinking.open) => State::Thought { begun: false },
            _ => State::Start { first: true },
        };
        let offered = Offered::new(options)?;
        Ok(AnswerParser { thinking, calls, offered, called: 0, state, held: String::new() })
    }
}

impl AnswerParser {
    /// Takes more of the text, and returns what that settles. A call that cannot be read, or does
    /// not fit the tools that were offered, is an [`Error::ToolCall`], after which the answer may
    /// go on.
    pub fn push(&mut self, text: &str) -> Vec<Result<AnswerEvent>> {
        self.held.push_str(text);
        self.settle(false)
    }

    /// What was held back, when no more text comes. A call that was not finished is an [`Error::ToolCall`].
    pub fn finish(&mut self) -> Vec<Result<AnswerEvent>> {
        self.settle(true)
    }

    /// Whether a special token of this text is a mark of the form in which the model thinks or calls, so that the parser has to
    /// be given it.
    pub fn reads(&self, token: &str) -> bool {
        let thinking = self.thinking.into_iter().flat_map(|thinking| [thinking.open, thinking.close]);
        self.calls.into_iter().flat_map(Shape::marks).chain(thinking).any(|mark| mark.contains(token))
    }

    /// The marks around a thought, of models that think.
    #[cfg(feature = "constrained")]
    pub(crate) fn thought_marks(&self) -> Option<[&'static str; 2]> {
        self.thinking.map(|thinking| [thinking.open, thinking.close])
    }

    /// The mark that begins a call, where a call would also end a thought that was not closed.
    #[cfg(feature = "constrained")]
    pub(crate) fn mark_within_thoughts(&self) -> Option<&'static str> {
        self.calls.filter(|calls| calls.ends_thought).map(|calls| calls.open)
    }

    /// Whether tools are offered.
    #[cfg(feature = "constrained")]
    pub(crate) fn offers_tools(&self) -> bool {
        self.calls.is_some()
    }

    /// The choice of tools that was set.
    pub(crate) fn tool_choice(&self) -> Option<&ToolChoice> {
        self.offered.choice.as_ref()
    }

    /// Takes calls for text.
    #[cfg(feature = "constrained")]
    pub(crate) fn without_calls(self) -> Self {
        Self { calls: None, ..self }
    }

    /// Whether what comes next is of a thought.
    #[cfg(feature = "constrained")]
    pub(crate) fn is_thinking(&self) -> bool {
        matches!(self.state, State::Thought { .. })
    }

    fn settle(&mut self, last: bool) -> Events {
        let mut events = vec![];
        loop {
            let goes_on = match self.state {
                State::Start { first } => self.start(first, last),
                State::Thought { begun } => self.think(begun, last, &mut events),
                State::Said => self.say(last, &mut events),
                State::Call { .. } => self.call(last, &mut events),
            };
            if !goes_on {
                return events;
            }
        }
    }

    /// Decides what begins here. The white space before it counts only at the very start of what is said.
    fn start(&mut self, first: bool, last: bool) -> bool {
        let between = self.calls.map_or(&[][..], |calls| calls.between);
        let skipped = |char: char| char.is_whitespace() || (!first && between.contains(&char));
        let rest = self.held.trim_start_matches(skipped);
        let space = self.held.len() - rest.len();
        let thought = match self.thinking {
            Some(thinking) if first => stands(thinking.open, rest),
            _ => Mark::None,
        };
        let call =
            match self.calls.and_then(|calls| calls.bare.as_ref()).map(|bare| (bare.begins)(rest, &self.offered.tools))
            {
                None | Some(Some(false)) => Mark::None,
                Some(None) => Mark::Part,
                Some(Some(true)) => Mark::Whole,
            };
        match (thought, call) {
            (Mark::Whole, _) => {
                let open = self.thinking.map_or(0, |thinking| thinking.open.len());
                self.held.drain(..space + open);
                self.state = State::Thought { begun: false };
            }
            (_, Mark::Whole) => {
                self.held.drain(..space);
                self.state = call_after("");
            }
            (Mark::Part, _) | (_, Mark::Part) if !last => return false,
            _ if first => self.state = State::Said,
            _ => {
                self.held.drain(..space);
                if self.held.is_empty() {
                    return false;
                }
                self.state = State::Said;
            }
        }
        true
    }

    fn think(&mut self, begun: bool, last: bool, events: &mut Events) -> bool {
        let (thinking, calls) = (self.thinking, self.calls.filter(|calls| calls.ends_thought));
        let close = thinking.map_or("", |thinking| thinking.close);
        let ends: Vec<&'static str> = [close].into_iter().chain(calls.map(|calls| calls.open)).collect();
        if !begun {
            let space = self.held.len() - self.held.trim_start().len();
            self.held.drain(..space);
        }
        let (text, found) = self.take_up_to(&ends, last);
        let text = if found.is_some() || last { text.trim_end() } else { &text };
        if !text.is_empty() {
            events.push(Ok(AnswerEvent::Reasoning(text.to_owned())));
        }
        match found {
            None => {
                self.state = State::Thought { begun: begun || !text.is_empty() };
                return false;
            }
            Some(end) if end == close => self.state = State::Start { first: false },
            Some(open) => self.state = call_after(open),
        }
        true
    }

    fn say(&mut self, last: bool, events: &mut Events) -> bool {
        let thinking = self.thinking.filter(|thinking| thinking.anywhere).map(|thinking| thinking.open);
        let open = self.calls.map(|calls| calls.open).filter(|open| !open.is_empty());
        let marks: Vec<&'static str> = open.into_iter().chain(thinking).collect();
        let (text, found) = self.take_up_to(&marks, last);
        let text = if found.is_some() { text.trim_end() } else { &text };
        if !text.is_empty() {
            events.push(Ok(AnswerEvent::Text(text.to_owned())));
        }
        match found {
            None => return false,
            Some(mark) if Some(mark) == open => self.state = call_after(mark),
            Some(_) => self.state = State::Thought { begun: false },
        }
        true
    }

    fn call(&mut self, last: bool, events: &mut Events) -> bool {
        let (State::Call { mark, scan }, Some(shape)) = (&mut self.state, self.calls) else { return false };
        // Where a quote was never closed, the mark counts within it.
        let unquoted = || match shape.ends {
            Ends::Mark(mark) if last => self.held.find(mark).map(|at| (at, at + mark.len())),
            _ => None,
        };
        let Some((end, next)) = scan.advance(&self.held, shape, last).or_else(unquoted) else {
            if last {
                events.push(Err(Error::ToolCall {
                    what: "is not finished".to_owned(),
                    text: mark.to_owned() + &self.held,
                    call: None,
                }));
                self.held.clear();
                self.state = State::Start { first: false };
            }
            return false;
        };
        let text = mark.to_owned() + &self.held[..next];
        match (shape.parse)(&self.held[..end], &self.offered.tools) {
            Ok(calls) => events.extend(calls.into_iter().map(|call| self.checked(call, &text))),
            Err(what) => events.push(Err(Error::ToolCall { what, text, call: None })),
        }
        self.held.drain(..next);
        self.state = State::Start { first: false };
        true
    }

    fn checked(&mut self, call: ToolCall, text: &str) -> Result<AnswerEvent> {
        let checked = self.offered.check(&call, self.called);
        self.called += 1;
        match checked {
            Ok(()) => Ok(AnswerEvent::ToolCall(call)),
            Err(what) => Err(Error::ToolCall { what, text: text.to_owned(), call: Some(Box::new(call)) }),
        }
    }

    /// Takes the text up to the first of the marks, and the mark. Where there is none yet, what may become one stays, and the white space
    /// before it.
    fn take_up_to(&mut self, marks: &[&'static str], last: bool) -> (String, Option<&'static str>) {
        let found = marks.iter().filter_map(|mark| Some((self.held.find(mark)?, *mark))).min_by_key(|(at, _)| *at);
        if let Some((at, mark)) = found {
            let text = self.held[..at].to_owned();
            self.held.drain(..at + mark.len());
            return (text, Some(mark));
        }
        if last || marks.is_empty() {
            return (std::mem::take(&mut self.held), None);
        }
        let may_become = |at: &usize| marks.iter().any(|mark| mark.starts_with(&self.held[*at..]));
        let longest = marks.iter().map(|mark| mark.len()).max().unwrap_or(0);
        let ends = self.held.char_indices().map(|(at, _)| at).filter(|at| self.held.len() - at < longest);
        let settled = ends.clone().find(may_become).unwrap_or(self.held.len());
        let rest = self.held.split_off(self.held[..settled].trim_end().len());
        (std::mem::replace(&mut self.held, rest), None)
    }
}

fn call_after(mark: &'static str) -> State {
    State::Call { mark, scan: Scan::default() }
}

/// Whether a mark stands at the begin of a text.
fn stands(mark: &str, text: &str) -> Mark {
    if text.starts_with(mark) {
        Mark::Whole
    } else if mark.starts_with(text) {
        Mark::Part
    } else {
        Mark::None
    }
}
