//! Reads a text from left to right, for the formats that are not JSON. Errors complete the sentence
//! "the call ..".

use serde_json::{Number, Value};

/// The deepest nesting of values.
const MAX_DEPTH: usize = 64;

/// A call's text and the position in it.
pub(super) struct CallCursor<'t> {
    pub rest: &'t str,
    depth: usize,
}

impl<'t> CallCursor<'t> {
    pub fn new(text: &'t str) -> Self {
        Self { rest: text, depth: 0 }
    }

    /// Skips white space, and then `text` if it follows. Returns whether it did.
    pub fn eat(&mut self, text: &str) -> bool {
        self.rest = self.rest.trim_start();
        let Some(rest) = self.rest.strip_prefix(text) else { return false };
        self.rest = rest;
        true
    }

    pub fn expect(&mut self, text: &str) -> Result<(), String> {
        if self.eat(text) { Ok(()) } else { Err(format!("lacks a `{text}` before `{}`", self.excerpt())) }
    }

    /// Returns the text before the next `text`, and skips both.
    pub fn until(&mut self, text: &str) -> Result<&'t str, String> {
        let (before, after) = self.rest.split_once(text).ok_or_else(|| format!("lacks a `{text}` at its end"))?;
        self.rest = after;
        Ok(before)
    }

    /// Skips white space, and returns the characters that follow for which `is` holds: at least
    /// one. `what` names them in the error.
    pub fn take(&mut self, what: &str, is: impl Fn(char) -> bool) -> Result<&'t str, String> {
        self.rest = self.rest.trim_start();
        let (matched, rest) = self.rest.split_at(self.rest.find(|char| !is(char)).unwrap_or(self.rest.len()));
        if matched.is_empty() {
            return Err(format!("lacks {what} before `{}`", self.excerpt()));
        }
        self.rest = rest;
        Ok(matched)
    }

    /// Reads the name of a function or an argument.
    pub fn name(&mut self) -> Result<&'t str, String> {
        self.take("a name", is_name_char)
    }

    /// Reads items separated by commas up to `close`.
    pub fn list<T>(&mut self, close: &str, item: impl Fn(&mut Self) -> Result<T, String>) -> Result<Vec<T>, String> {
        if self.depth == MAX_DEPTH {
            return Err(format!("nests values more than {MAX_DEPTH} deep"));
        }
        self.depth += 1;
        let mut items = vec![];
        while !self.eat(close) {
            items.push(item(self)?);
            if !self.eat(",") {
                self.expect(close)?;
                break;
            }
        }
        self.depth -= 1;
        Ok(items)
    }

    /// Reads a number or one of the given words.
    pub fn number_or_word(&mut self, words: &[(&str, Value)]) -> Result<Value, String> {
        let text = self.take("a value", |char| is_name_char(char) || char == '+')?;
        let word = words.iter().find(|(word, _)| *word == text).map(|(_, value)| value.clone());
        let float = || text.parse().ok().and_then(Number::from_f64);
        let number = || text.parse().ok().or_else(float).map(Value::Number);
        word.or_else(number).ok_or_else(|| format!("has `{text}`, which is not a value"))
    }

    /// Returns the next 20 characters, for errors.
    fn excerpt(&self) -> String {
        self.rest.chars().take(20).collect()
    }
}

pub(super) fn is_name_char(char: char) -> bool {
    char.is_alphanumeric() || matches!(char, '_' | '-' | '.')
}
