//! Finds the end of a tool call in streamed text.

use super::call_format::{CallEnd, CallFormat, Quote};

/// The state of the search for the end of one call.
#[derive(Clone, Debug, Default)]
pub(super) struct CallScanner {
    /// Number of bytes that were searched.
    position: usize,
    /// Number of open brackets.
    depth: usize,
    quote: Option<&'static Quote>,
}

/// The end of a call in the text after its opening mark, in bytes.
pub(super) struct CallRange {
    /// End of the content, before the closing mark.
    pub content_end: usize,
    /// End of the closing mark.
    pub mark_end: usize,
}

impl CallScanner {
    /// Continues the search in `text`, which is the text after the call's opening mark so far, and
    /// all of it if `last`. Returns `None` if the call does not end in it.
    pub fn advance(&mut self, text: &str, format: &'static CallFormat, last: bool) -> Option<CallRange> {
        while let Some(char) = text[self.position..].chars().next() {
            let rest = &text[self.position..];
            if !last && self.marks(format).any(|mark| mark.len() > rest.len() && mark.starts_with(rest)) {
                return None;
            }
            match self.quote {
                Some(quote) if quote.escapes && char == '\\' => {
                    self.position += 1 + rest[1..].chars().next().or_else(|| last.then_some('\0'))?.len_utf8();
                    self.position = self.position.min(text.len());
                }
                Some(quote) if rest.starts_with(quote.close) => {
                    self.position += quote.close.len();
                    self.quote = None;
                }
                Some(_) => self.position += char.len_utf8(),
                None => {
                    if let Some(end) = self.skip_unquoted(rest, char, format) {
                        return Some(end);
                    }
                }
            }
        }
        None
    }

    /// Skips the character or opening quote at the start of `rest`, which is outside of quotes.
    /// Returns the same as [`advance`](Self::advance) if the call ends there.
    fn skip_unquoted(&mut self, rest: &str, char: char, format: &'static CallFormat) -> Option<CallRange> {
        if let CallEnd::Mark(mark) = format.end
            && rest.starts_with(mark)
        {
            return Some(CallRange { content_end: self.position, mark_end: self.position + mark.len() });
        }
        self.quote = format.quotes.iter().find(|quote| rest.starts_with(quote.open));
        self.position += self.quote.map_or(char.len_utf8(), |quote| quote.open.len());
        if let (CallEnd::Bracket, None) = (format.end, self.quote) {
            match char {
                '(' | '[' | '{' => self.depth += 1,
                ')' | ']' | '}' if self.depth <= 1 => {
                    return Some(CallRange { content_end: self.position, mark_end: self.position });
                }
                ')' | ']' | '}' => self.depth -= 1,
                _ => {}
            }
        }
        None
    }

    /// Returns the marks that matter at the current position.
    fn marks(&self, format: &'static CallFormat) -> impl Iterator<Item = &'static str> {
        let closing = self.quote.map(|quote| quote.close);
        let opening = format.marks().filter(move |_| closing.is_none());
        closing.into_iter().chain(opening)
    }
}
