//! Where a call ends, found as its text comes.

use super::call_format::Shape;

/// What a call ends with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ends {
    /// This mark.
    Mark(&'static str),
    /// The bracket that closes the first one.
    Brackets,
}

/// A stretch in which neither marks nor brackets count.
#[derive(Debug)]
pub(super) struct Quote {
    pub open: &'static str,
    pub close: &'static str,
    /// Whether a backslash takes its meaning from what follows it.
    pub escapes: bool,
}

/// A JSON or Python string.
pub(super) const DOUBLE: Quote = Quote { open: "\"", close: "\"", escapes: true };
pub(super) const SINGLE: Quote = Quote { open: "'", close: "'", escapes: true };

/// How far a call was looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Scan {
    at: usize,
    depth: usize,
    quote: Option<&'static Quote>,
}

impl Scan {
    /// Looks on in `text`, all of what came so far of the call. Returns where what it says ends, and where what follows it begins.
    pub fn advance(&mut self, text: &str, shape: &'static Shape, last: bool) -> Option<(usize, usize)> {
        while let Some(char) = text[self.at..].chars().next() {
            let rest = &text[self.at..];
            if !last && self.marks(shape).any(|mark| mark.len() > rest.len() && mark.starts_with(rest)) {
                return None;
            }
            match self.quote {
                Some(quote) if quote.escapes && char == '\\' => {
                    self.at += 1 + rest[1..].chars().next().or_else(|| last.then_some('\0'))?.len_utf8();
                    self.at = self.at.min(text.len());
                }
                Some(quote) if rest.starts_with(quote.close) => {
                    self.at += quote.close.len();
                    self.quote = None;
                }
                Some(_) => self.at += char.len_utf8(),
                None => {
                    if let Some(end) = self.outside(rest, char, shape) {
                        return Some(end);
                    }
                }
            }
        }
        None
    }

    /// Steps over what stands at the begin of `rest`, outside of quotes, if it is not the end.
    fn outside(&mut self, rest: &str, char: char, shape: &'static Shape) -> Option<(usize, usize)> {
        if let Ends::Mark(mark) = shape.ends
            && rest.starts_with(mark)
        {
            return Some((self.at, self.at + mark.len()));
        }
        self.quote = shape.quotes.iter().find(|quote| rest.starts_with(quote.open));
        self.at += self.quote.map_or(char.len_utf8(), |quote| quote.open.len());
        if let (Ends::Brackets, None) = (shape.ends, self.quote) {
            match char {
                '(' | '[' | '{' => self.depth += 1,
                ')' | ']' | '}' if self.depth <= 1 => return Some((self.at, self.at)),
                ')' | ']' | '}' => self.depth -= 1,
                _ => {}
            }
        }
        None
    }

    /// What would be noticed next.
    fn marks(&self, shape: &'static Shape) -> impl Iterator<Item = &'static str> {
        let closing = self.quote.map(|quote| quote.close);
        let opening = shape.marks().filter(move |_| closing.is_none());
        closing.into_iter().chain(opening)
    }
}
