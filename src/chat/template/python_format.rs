//! Formats values as Python's `str()` and `json.dumps` do, for which templates are written.

use minijinja::{
    Error, ErrorKind, Output, State,
    value::{Kwargs, Value, ValueKind},
};

use super::budget::{MAX_DEPTH, MAX_TEXT, spend};

/// Writes an expression's value as jinja2 does: `str(value)`, and no text for an undefined value.
pub(super) fn print(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    let formatted = value.as_str().is_none().then(|| str(value)).transpose()?;
    let text = formatted.as_deref().or(value.as_str()).unwrap_or_default();
    spend(state, text.len())?;
    Ok(out.write_str(text)?)
}

/// The filter `string`.
pub(super) fn string(value: &Value) -> Result<Value, Error> {
    if value.kind() == ValueKind::String { Ok(value.clone()) } else { Ok(Value::from(str(value)?)) }
}

/// Returns `str(value)`, which is empty for an undefined value.
fn str(value: &Value) -> Result<String, Error> {
    let mut text = String::new();
    match value.kind() {
        ValueKind::Undefined => {}
        ValueKind::String => text.push_str(value.as_str().unwrap_or_default()),
        _ => PythonWriter { style: Style::Repr, text: &mut text }.value(value, 0)?,
    }
    Ok(text)
}

/// The filter `tojson` as transformers defines it: `json.dumps` with `ensure_ascii=False`.
pub(super) fn tojson(value: &Value, options: Kwargs) -> Result<Value, Error> {
    let separators = options.get::<Option<Vec<String>>>("separators")?;
    let indent = options.get::<Option<usize>>("indent")?;
    let (item, key) = match separators.as_deref() {
        None if indent.is_some() => (",", ": "),
        None => (", ", ": "),
        Some([item, key]) => (item.as_str(), key.as_str()),
        Some(_) => return Err(invalid("tojson: `separators` must be two strings")),
    };
    if indent.is_some_and(|indent| indent > 64) {
        return Err(invalid("tojson: `indent` must be at most 64"));
    }
    let style = Style::Json {
        item,
        key,
        indent,
        ensure_ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    options.assert_all_used()?;
    let mut text = String::new();
    PythonWriter { style, text: &mut text }.value(value, 0)?;
    Ok(Value::from(text))
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, what.into())
}

#[derive(Clone, Copy)]
enum Style<'a> {
    /// `repr(value)`.
    Repr,
    /// `json.dumps(value)`, with the separators after an item and after a key.
    Json { item: &'a str, key: &'a str, indent: Option<usize>, ensure_ascii: bool, sort_keys: bool },
}

struct PythonWriter<'a> {
    style: Style<'a>,
    text: &'a mut String,
}

impl PythonWriter<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid("a value is nested too deeply"));
        }
        self.check_length()?;
        let json = matches!(self.style, Style::Json { .. });
        match value.kind() {
            ValueKind::None => self.text.push_str(if json { "null" } else { "None" }),
            ValueKind::Bool => self.text.push_str(match (json, value.is_true()) {
                (true, true) => "true",
                (true, false) => "false",
                (false, true) => "True",
                (false, false) => "False",
            }),
            ValueKind::Number if value.is_integer() => self.text.push_str(&value.to_string()),
            ValueKind::Number => self.float(f64::try_from(value.clone())?),
            ValueKind::String => self.string(value.as_str().unwrap_or_default())?,
            ValueKind::Seq | ValueKind::Iterable => {
                let brackets = if value.is_tuple() && !json {
                    ("(", if value.len() == Some(1) { ",)" } else { ")" })
                } else {
                    ("[", "]")
                };
                self.items(brackets, value.try_iter()?, depth, |this, item| this.value(item, depth + 1))?;
            }
            ValueKind::Map => self.map(value, depth)?,
            kind @ (ValueKind::Undefined | ValueKind::Bytes | ValueKind::Plain | ValueKind::Invalid) if json => {
                return Err(invalid(format!("tojson: a value that is {kind} cannot be written as JSON")));
            }
            _ => self.text.push_str(&value.to_string()),
        }
        Ok(())
    }

    /// Values can share contents, so that a small value has a text of exponential size.
    fn check_length(&self) -> Result<(), Error> {
        if self.text.len() > MAX_TEXT { Err(invalid("a value is too long to be written")) } else { Ok(()) }
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if matches!(self.style, Style::Json { sort_keys: true, .. }) {
            keys.sort();
        }
        let separator = match self.style {
            Style::Repr => ": ".to_owned(),
            Style::Json { key, .. } => key.to_owned(),
        };
        self.items(("{", "}"), keys.into_iter(), depth, |this, key| {
            match (this.style, key.as_str()) {
                (Style::Json { .. }, None) => this.string(&key.to_string())?,
                _ => this.value(key, depth + 1)?,
            }
            this.text.push_str(&separator);
            this.value(&value.get_item(key)?, depth + 1)
        })
    }

    fn items(
        &mut self,
        (open, close): (&str, &str),
        items: impl Iterator<Item = Value>,
        depth: usize,
        mut each: impl FnMut(&mut Self, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut items = items.peekable();
        let (separator, indent) = match self.style {
            Style::Repr => (", ", None),
            Style::Json { item, indent, .. } => (item, indent.filter(|_| items.peek().is_some())),
        };
        let new_line = |text: &mut String, depth: usize| {
            if let Some(indent) = indent {
                text.push('\n');
                text.extend(std::iter::repeat_n(' ', indent * depth));
            }
        };
        self.text.push_str(open);
        for (index, item) in items.enumerate() {
            self.text.push_str(if index == 0 { "" } else { separator });
            new_line(self.text, depth + 1);
            each(self, &item)?;
        }
        new_line(self.text, depth);
        self.text.push_str(close);
        Ok(())
    }

    /// Writes the shortest digits that parse back. Rust and Python write an exponent for the same
    /// numbers, but Python adds a sign and a second digit.
    fn float(&mut self, number: f64) {
        let json = matches!(self.style, Style::Json { .. });
        if !number.is_finite() {
            let name = if number.is_nan() {
                "NaN"
            } else if number > 0.0 {
                "Infinity"
            } else {
                "-Infinity"
            };
            let repr = name.to_lowercase().replace("infinity", "inf");
            return self.text.push_str(if json { name } else { &repr });
        }
        let digits = format!("{number:?}");
        match digits.split_once('e') {
            None => self.text.push_str(&digits),
            Some((mantissa, exponent)) => {
                let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
                let mantissa = mantissa.strip_suffix(".0").unwrap_or(mantissa);
                self.text.push_str(&format!("{mantissa}e{sign}{exponent:0>2}"));
            }
        }
    }

    fn string(&mut self, string: &str) -> Result<(), Error> {
        let (quote, ensure_ascii) = match self.style {
            Style::Json { ensure_ascii, .. } => ('"', ensure_ascii),
            // Python prefers the quote that needs no escape.
            Style::Repr if string.contains('\'') && !string.contains('"') => ('"', false),
            Style::Repr => ('\'', false),
        };
        let json = matches!(self.style, Style::Json { .. });
        self.text.push(quote);
        for char in string.chars() {
            self.check_length()?;
            match char {
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                '\r' => self.text.push_str("\\r"),
                '\t' => self.text.push_str("\\t"),
                '\u{8}' if json => self.text.push_str("\\b"),
                '\u{c}' if json => self.text.push_str("\\f"),
                char if char == quote => self.text.extend(['\\', char]),
                '\0'..='\x1f' if json => self.text.push_str(&format!("\\u{:04x}", char as u32)),
                '\0'..='\x1f' | '\x7f'..='\u{a0}' if !json => self.text.push_str(&format!("\\x{:02x}", char as u32)),
                char if ensure_ascii && !char.is_ascii() => {
                    for unit in char.encode_utf16(&mut [0; 2]) {
                        self.text.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                char => self.text.push(char),
            }
        }
        self.text.push(quote);
        Ok(())
    }
}
