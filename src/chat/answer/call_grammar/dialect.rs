//! Writes values in the syntaxes of the call formats.

use serde_json::{Map, Value};

use super::writer::{ANY, GrammarWriter, lacks, literal, whole_text_pattern};
use crate::chat::schema;

/// The syntax of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::chat::answer) enum Dialect {
    Json,
    /// The value of a `<parameter=name>` tag, followed by `end`: strings without quotes, other
    /// values as JSON. `mark`, the closing tag, ends `end` and must not occur before it.
    Tagged {
        end: &'static str,
        mark: &'static str,
    },
    /// JSON within a `Tagged` value, which must not contain the closing tag.
    JsonWithout {
        mark: &'static str,
    },
    Python,
    /// JSON with unquoted keys, and with a mark instead of quotes around strings.
    Marked {
        quote: &'static str,
    },
}

/// The characters besides the quote that need an escape in a quoted string, for use in a negated
/// character class.
const ESCAPED: &str = r"\\\x00-\x1F\x7F";

/// The expression of keys without quotes.
pub(in crate::chat::answer) const NAME: &str = "/[A-Za-z_][0-9A-Za-z_]{0,63}/";

/// The escape of a code unit that is not a surrogate.
const CODE_UNIT: &str = r"u(?:[0-9A-CEFa-cef][0-9A-Fa-f]{3}|[Dd][0-7][0-9A-Fa-f]{2})";

impl Dialect {
    /// Returns the dialect of values within arrays and objects of this dialect.
    pub fn inner(self) -> Self {
        match self {
            Self::Tagged { mark, .. } => Self::JsonWithout { mark },
            dialect => dialect,
        }
    }

    /// Returns the expression of a value of this dialect, given the expression `inner` of the value
    /// in the inner dialect.
    pub fn finish(self, inner: String) -> String {
        match self {
            Self::Tagged { end, .. } => format!("{inner} {}", literal(end)),
            _ => inner,
        }
    }

    /// Returns the words for true, false and null.
    pub fn words(self) -> [(&'static str, Value); 3] {
        match self {
            Self::Python => [("True", true.into()), ("False", false.into()), ("None", Value::Null)],
            _ => [("true", true.into()), ("false", false.into()), ("null", Value::Null)],
        }
    }

    /// Returns the expression of the separator between two items.
    pub fn comma(self) -> &'static str {
        if matches!(self, Self::Marked { .. }) { "\",\"" } else { "/, ?/" }
    }

    /// Returns the expression of the separator between a key and its value.
    pub fn colon(self) -> &'static str {
        if matches!(self, Self::Marked { .. }) { "\":\"" } else { "/: ?/" }
    }

    /// Returns the expression of an object's key; `None` if the dialect cannot express it.
    pub fn key(self, writer: &GrammarWriter<'_>, key: &str) -> Option<String> {
        match self {
            Self::Marked { .. } if is_unquoted_key(key) => Some(literal(key)),
            _ => self.literal(writer, &key.into()),
        }
    }

    /// Returns the expression of any key of an object.
    pub fn any_key(self, writer: &mut GrammarWriter<'_>) -> String {
        match self {
            Self::Marked { .. } => NAME.to_owned(),
            _ => self.string(writer, &Map::new()),
        }
    }

    /// Returns the text of a value; `None` if the dialect cannot express it.
    pub fn text(self, value: &Value) -> Option<String> {
        match (self, value) {
            (Self::Tagged { end, mark }, Value::String(text)) => (!text.contains(mark)).then(|| format!("{text}{end}")),
            (Self::Tagged { end, .. }, value) => Some(self.inner().text(value)? + end),
            (Self::Python, Value::String(text)) => Some(python_string(text)),
            (Self::Marked { quote }, Value::String(text)) => {
                (!text.contains(quote)).then(|| format!("{quote}{text}{quote}"))
            }
            (_, Value::Array(items)) => {
                let items: Vec<String> = items.iter().map(|item| self.text(item)).collect::<Option<_>>()?;
                Some(format!("[{}]", items.join(self.separators().0)))
            }
            (_, Value::Object(fields)) => self.object_text(fields),
            (_, Value::Bool(_) | Value::Null) => {
                self.words().into_iter().find(|(_, word)| word == value).map(|(text, _)| text.to_owned())
            }
            (_, value) => Some(value.to_string()).filter(|text| match self {
                Self::JsonWithout { mark } => !text.contains(mark),
                _ => true,
            }),
        }
    }

    fn object_text(self, fields: &Map<String, Value>) -> Option<String> {
        let (comma, colon) = self.separators();
        let field = |(key, value): (&String, &Value)| {
            let key = match self {
                Self::Marked { .. } if is_unquoted_key(key) => key.clone(),
                _ => self.text(&key.as_str().into())?,
            };
            Some(format!("{key}{colon}{}", self.text(value)?))
        };
        let fields: Vec<String> = fields.iter().map(field).collect::<Option<_>>()?;
        Some(format!("{{{}}}", fields.join(comma)))
    }

    fn separators(self) -> (&'static str, &'static str) {
        if matches!(self, Self::Marked { .. }) { (",", ":") } else { (", ", ": ") }
    }

    /// Returns the expression of exactly one value; `None` if the dialect cannot express it.
    pub fn literal(self, writer: &GrammarWriter<'_>, value: &Value) -> Option<String> {
        match (self, value) {
            (Self::Marked { quote }, value) => marked_literal(writer, quote, &self.text(value)?),
            _ => Some(literal(&self.text(value)?)),
        }
    }

    /// Returns the expression of the strings that `minLength`, `maxLength` and `pattern` of a
    /// schema allow.
    pub fn string(self, writer: &mut GrammarWriter<'_>, schema: &Map<String, Value>) -> String {
        let count = |name: &str| schema.get(name).and_then(Value::as_f64).map(|count| count as u64);
        let min = count("minLength").unwrap_or(0);
        let max = count("maxLength").map(|max| max.to_string()).unwrap_or_default();
        let length = format!("{{{min},{max}}}");
        let pattern = schema.get("pattern").and_then(Value::as_str);
        let whole = pattern.map(|pattern| format!("/{}/", whole_text_pattern(pattern)));
        let and_pattern =
            |content: String| whole.iter().fold(content, |content, pattern| format!("{content} & {pattern}"));
        let bounded = if min == 0 && max.is_empty() { ANY.to_owned() } else { format!("/(?s:.){length}/") };
        match self {
            Self::Tagged { end, mark } => writer.ended_text(&and_pattern(bounded), end, mark),
            Self::Marked { quote } => {
                let empty = min == 0 && pattern.is_none_or(schema::pattern_matches_empty);
                format!("{} {}", writer.mark(quote), writer.text_before(quote, &and_pattern(bounded), empty))
            }
            Self::Python if pattern.is_none() => {
                let quoted = |quote: char| {
                    format!(r#"{quote}(?:[^{quote}{ESCAPED}]|\\(?:["'\\nrt]|{CODE_UNIT})){length}{quote}"#)
                };
                format!("/{}|{}/", quoted('"'), quoted('\''))
            }
            _ if pattern.is_some() => {
                // The pattern applies to the text without escapes, so escapes are left out.
                let content = and_pattern(format!("/[^\"{ESCAPED}]{length}/"));
                writer.terminal(self.avoiding(format!("\"\\\"\" ({content}) \"\\\"\"")))
            }
            _ => {
                let text = format!(r#"/"(?:[^"{ESCAPED}]|\\(?:["\\\/bfnrt]|{CODE_UNIT})){length}"/"#);
                writer.terminal(self.avoiding(text))
            }
        }
    }

    fn avoiding(self, terminal: String) -> String {
        match self {
            Self::JsonWithout { mark } => format!("{terminal} & {}", lacks(mark)),
            _ => terminal,
        }
    }
}

/// Returns whether `Marked` writes a key without quotes.
fn is_unquoted_key(key: &str) -> bool {
    let plain = |char: char| char.is_alphanumeric() || "_-.$/@ ".contains(char);
    !key.is_empty() && key.chars().all(plain) && !key.starts_with(' ')
}

fn python_string(text: &str) -> String {
    let mut written = String::from('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => written.extend(['\\', char]),
            '\n' => written.push_str("\\n"),
            '\r' => written.push_str("\\r"),
            '\t' => written.push_str("\\t"),
            char if char.is_control() => written.push_str(&format!("\\u{:04x}", char as u32)),
            char => written.push(char),
        }
    }
    written + "\""
}

/// Returns the expression of a text with marks as quotes, which may be special tokens.
fn marked_literal(writer: &GrammarWriter<'_>, quote: &str, text: &str) -> Option<String> {
    let mark = writer.mark(quote);
    let parts = text.split(quote).map(|part| if part.is_empty() { String::new() } else { literal(part) });
    let expression = parts.collect::<Vec<_>>().join(&format!(" {mark} "));
    Some(expression.trim().to_owned()).filter(|expression| !expression.is_empty())
}
