//! Describes a format of tool calls: its marks, its parser and its grammar.

#[cfg(feature = "constrained")]
use super::call_grammar::WriteCalls;
use crate::chat::{Tool, ToolCall};

/// The syntax of one format of tool calls.
#[derive(Debug)]
pub(super) struct CallFormat {
    /// Sets of texts. All texts of one set occur in the chat template of a model with this format.
    /// A `\"` in a template counts as `"`.
    pub template_marks: &'static [&'static [&'static str]],
    /// The mark before a call; empty if calls have none.
    pub open: &'static str,
    /// Recognition of a call at the start of an answer, without the mark.
    pub unmarked: Option<UnmarkedCall>,
    /// The quotes within which the end of a call is not searched for.
    pub quotes: &'static [Quote],
    pub end: CallEnd,
    /// Characters that may stand between two calls, besides white space.
    pub separators: &'static [char],
    /// Marks between the parts of a call.
    pub inner: &'static [&'static str],
    /// Whether a call also ends reasoning that was not closed.
    pub ends_reasoning: bool,
    /// Parses the text between the marks; an error completes the sentence "the call ..".
    pub parse: fn(&str, &[Tool]) -> Result<Vec<ToolCall>, String>,
    /// Writes the grammar of calls of the given tools, after the mark before the first one.
    #[cfg(feature = "constrained")]
    pub write: WriteCalls,
}

/// How a call is recognized at the start of an answer that has no mark before it.
#[derive(Debug)]
pub(super) struct UnmarkedCall {
    /// Returns whether an answer with this beginning is a call of one of the tools; `None` if more
    /// text is needed to tell.
    pub begins: fn(&str, &[Tool]) -> Option<bool>,
    /// Returns the regular expression of the beginnings for which `begins` is true.
    #[cfg(feature = "constrained")]
    pub expression: fn(&[Tool]) -> String,
}

/// The end of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum CallEnd {
    Mark(&'static str),
    /// The bracket that closes the first one.
    Bracket,
}

/// A kind of quoted text, in which neither marks nor brackets count.
#[derive(Debug)]
pub(super) struct Quote {
    pub open: &'static str,
    pub close: &'static str,
    /// Whether a backslash escapes the character after it.
    pub escapes: bool,
}

/// A JSON or Python string in double quotes.
pub(super) const DOUBLE: Quote = Quote { open: "\"", close: "\"", escapes: true };

/// A Python string in single quotes.
pub(super) const SINGLE: Quote = Quote { open: "'", close: "'", escapes: true };

impl CallFormat {
    /// Returns the mark after a call; empty if a bracket ends it.
    pub const fn close(&self) -> &'static str {
        match self.end {
            CallEnd::Mark(mark) => mark,
            CallEnd::Bracket => "",
        }
    }

    /// Returns every mark of the format.
    pub fn marks(&self) -> impl Iterator<Item = &'static str> {
        let quotes = self.quotes.iter().flat_map(|quote| [quote.open, quote.close]);
        [self.open, self.close()].into_iter().chain(quotes).chain(self.inner.iter().copied())
    }
}
