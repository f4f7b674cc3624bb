//! The messages of gpt-oss ([OpenAI 2025](https://cookbook.openai.com/articles/openai-harmony)): an
//! answer is a list of messages, each with a header that names a channel, and the recipient of a
//! call.

use super::marks::take_up_to;

/// The mark between a message's header and its content.
pub(super) const MESSAGE: &str = "<|message|>";
/// The mark before a message.
const START: &str = "<|start|>";
/// The mark before the name of a channel.
const CHANNEL: &str = "<|channel|>";
/// The mark before the format of a content.
const CONSTRAIN: &str = "<|constrain|>";
/// The role of all messages of an answer.
const ROLE: &str = "assistant";
/// The word before the recipient of a call.
const RECIPIENT: &str = "to=";
/// The marks that end a content: the first three are no part of the message that follows.
const ENDS: [&str; 5] = ["<|end|>", "<|call|>", "<|return|>", START, CHANNEL];
/// Every mark that is a special token.
pub(super) const MARKS: [&str; 7] = [MESSAGE, START, CHANNEL, CONSTRAIN, ENDS[0], ENDS[1], ENDS[2]];
/// The most bytes of a header.
const MAX_HEADER: usize = 512;

/// The messages of an answer, as far as they were read.
#[derive(Clone, Debug)]
pub(super) struct Messages {
    section: Section,
    /// Whether the section has returned a part.
    begun: bool,
    /// Whether earlier messages had reasoning, and text, from which a line sets further ones apart.
    earlier: [bool; 2],
    /// Whether there are tools to call: otherwise calls are text.
    offers: bool,
}

/// The section of an answer that comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Section {
    /// A message's header.
    Header,
    /// The content of a message that is reasoning.
    Reasoning,
    /// The content of a message for the user.
    Text,
    /// The arguments of a call, after this header.
    Call(String),
}

/// A part of an answer.
pub(super) enum Part {
    /// A header or a mark.
    Nothing,
    Reasoning(String),
    Text(String),
    /// The header, the mark after it and the arguments of a call.
    Call(String),
}

impl Messages {
    /// Returns the messages after a prompt, and the beginning of the next that the prompt has.
    pub fn after(prompt: &str, offers: bool) -> (Self, String) {
        let message = prompt.rfind(START).map_or("", |at| &prompt[at..]);
        let (section, header) = match message.split_once(MESSAGE) {
            Some((header, _)) => (Section::after(header, offers), ""),
            None => (Section::Header, message.trim_end()),
        };
        (Self { section, begun: false, earlier: [false; 2], offers }, header.to_owned())
    }

    /// Returns whether the next text is reasoning.
    #[cfg(feature = "constrained")]
    pub fn is_reasoning(&self) -> bool {
        self.section == Section::Reasoning
    }

    /// Removes the next part from the text `held`, which is all of the answer's rest if `last`.
    /// Returns `None` if more text is needed, or nothing is left.
    pub fn next(&mut self, held: &mut String, last: bool) -> Option<Part> {
        match &self.section {
            Section::Header => {
                if let Some((header, content)) = held.split_once(MESSAGE) {
                    self.section = Section::after(header, self.offers);
                    *held = content.to_owned();
                } else if may_be_header(held) {
                    return None;
                } else {
                    // Not a message: for example an answer that a grammar has constrained.
                    let started = held.strip_prefix(START);
                    let rest = started.map(|rest| rest.strip_prefix(ROLE).unwrap_or(rest));
                    *held = rest.or_else(|| held.strip_prefix(CHANNEL)).unwrap_or(held).to_owned();
                    self.section = Section::Text;
                }
                Some(Part::Nothing)
            }
            Section::Call(header) => {
                let marks = ENDS.iter().filter_map(|mark| Some((held.find(mark)?, *mark)));
                let end = marks.min_by_key(|(at, _)| *at).or_else(|| last.then_some((held.len(), "")));
                let (end, mark) = end?;
                let text = format!("{header}{MESSAGE}{}", &held[..end]);
                held.drain(..end + mark.len());
                self.end(held, mark);
                Some(Part::Call(text))
            }
            Section::Reasoning | Section::Text => self.content(held, last),
        }
    }

    /// Returns the next part of a content that is not a call.
    fn content(&mut self, held: &mut String, last: bool) -> Option<Part> {
        let kind = usize::from(self.section == Section::Text);
        let (mut text, found) = take_up_to(held, &ENDS, last);
        let is_empty = text.is_empty();
        if !is_empty && !self.begun && self.earlier[kind] {
            text.insert_str(0, "\n\n");
        }
        self.begun |= !is_empty;
        if let Some(mark) = found {
            self.earlier[kind] |= self.begun;
            self.end(held, mark);
        }
        match (is_empty, kind) {
            (true, _) => found.map(|_| Part::Nothing),
            (false, 0) => Some(Part::Reasoning(text)),
            (false, _) => Some(Part::Text(text)),
        }
    }

    /// Continues after a content that `mark` has ended, which may be part of the next header.
    fn end(&mut self, held: &mut String, mark: &str) {
        if [START, CHANNEL].contains(&mark) {
            held.insert_str(0, mark);
        }
        (self.section, self.begun) = (Section::Header, false);
    }
}

impl Section {
    /// Returns the content that follows a header.
    fn after(header: &str, offers: bool) -> Self {
        if offers && recipient(header).is_some() {
            return Self::Call(header.to_owned());
        }
        if word_after(header, CHANNEL) == Some("analysis") { Self::Reasoning } else { Self::Text }
    }
}

/// Returns the name of the function that a header calls.
pub(super) fn recipient(header: &str) -> Option<&str> {
    let name = word_after(header, RECIPIENT)?;
    Some(name.strip_prefix("functions.").unwrap_or(name))
}

/// Returns whether a text without the mark after it is the beginning of a header.
fn may_be_header(text: &str) -> bool {
    let parts = [START, ROLE];
    let mut rest = text;
    for part in parts {
        if part.starts_with(rest) {
            return true;
        }
        rest = rest.strip_prefix(part).unwrap_or(rest);
    }
    let rest = rest.trim_start();
    let follows = [CHANNEL, RECIPIENT, CONSTRAIN, MESSAGE].iter();
    let mut follows = follows.map(|mark| mark.starts_with(rest) || rest.starts_with(mark));
    text.len() <= MAX_HEADER && !text.contains('\n') && follows.any(|follows| follows)
}

fn word_after<'a>(header: &'a str, mark: &str) -> Option<&'a str> {
    let (_, rest) = header.split_once(mark)?;
    let end = rest.find(|char: char| char.is_whitespace() || char == '<').unwrap_or(rest.len());
    Some(&rest[..end]).filter(|word| !word.is_empty())
}
