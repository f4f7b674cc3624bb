//! Splits a template into text and the tokens of its tags, as minijinja does.

use std::ops::Range;

/// A part of a template's source. Comments are left out.
#[derive(Debug)]
pub(super) enum SourcePiece<'t> {
    /// Text outside of tags, with its length in bytes. White space at its ends may be trimmed.
    Text(usize),
    /// An expression or a statement.
    Tag(Tag<'t>),
}

/// `{{ … }}` or `{% … %}`.
#[derive(Debug)]
pub(super) struct Tag<'t> {
    /// Whether the tag is a statement.
    pub statement: bool,
    pub tokens: Vec<TagToken<'t>>,
    /// The closing delimiter with its white space control, such as `-%}`; empty if it is missing.
    pub close: &'t str,
    /// Offset in bytes of `{{` or `{%` in the template.
    pub start: usize,
    /// Offset in bytes after the closing delimiter.
    pub end: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    Name,
    Number,
    /// A string in quotes.
    Literal,
    Symbol,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct TagToken<'t> {
    pub kind: TokenKind,
    pub text: &'t str,
    /// Offset in bytes in the template.
    pub offset: usize,
}

impl TagToken<'_> {
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.text.len()
    }

    pub fn is(&self, symbol_or_name: &str) -> bool {
        self.text == symbol_or_name && matches!(self.kind, TokenKind::Symbol | TokenKind::Name)
    }
}

/// Splits a template into pieces, in order.
pub(super) fn pieces(template: &str) -> Vec<SourcePiece<'_>> {
    let mut pieces = vec![];
    let mut at = 0;
    while at < template.len() {
        let rest = &template[at..];
        let mut braces = rest.match_indices('{').map(|(start, _)| start);
        let start = braces.find(|start| rest[start + 1..].starts_with(['{', '%', '#'])).unwrap_or(rest.len());
        if start > 0 {
            pieces.push(SourcePiece::Text(start));
        }
        at += start;
        let rest = &template[at..];
        at = match rest.get(..2) {
            None => template.len(),
            Some("{#") => rest[2..].find("#}").map_or(template.len(), |length| at + length + 4),
            Some(open) => match raw(rest) {
                Some((text, length)) => {
                    pieces.push(SourcePiece::Text(text));
                    at + length
                }
                None => {
                    let tag = tag(template, at + 2, open == "{%");
                    let end = tag.end;
                    pieces.push(SourcePiece::Tag(tag));
                    end
                }
            },
        };
    }
    pieces
}

/// Returns the lengths of the text within `{% raw %}` and of everything up to the end of
/// `{% endraw %}`, if `template` begins with `{% raw %}`.
fn raw(template: &str) -> Option<(usize, usize)> {
    let start = word_tag(template, "raw")?;
    let ends = template[start..].match_indices("{%").map(|(at, _)| start + at);
    let mut ends = ends.filter_map(|at| Some((at - start, at + word_tag(&template[at..], "endraw")?)));
    Some(ends.next().unwrap_or((template.len() - start, template.len())))
}

/// Returns the length of a tag with this word as its content, if `template` begins with one.
fn word_tag(template: &str, word: &str) -> Option<usize> {
    let inside = template.strip_prefix("{%")?;
    let inside = inside.strip_prefix(['-', '+']).unwrap_or(inside);
    let rest = inside.trim_ascii_start().strip_prefix(word)?.trim_ascii_start();
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest).strip_prefix("%}")?;
    Some(template.len() - rest.len())
}

/// Reads the tag whose content begins at `start`, up to a closing delimiter outside of brackets.
fn tag(template: &str, start: usize, statement: bool) -> Tag<'_> {
    let closes = if statement { ["-%}", "+%}", "%}"] } else { ["-}}", "+}}", "}}"] };
    let mut tokens: Vec<TagToken<'_>> = vec![];
    let mut at = start + usize::from(template[start..].starts_with(['-', '+']));
    let mut open = 0i64;
    while let Some(first) = template[at..].chars().next() {
        let rest = &template[at..];
        if first.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        if let Some(close) = closes.iter().find(|close| open == 0 && rest.starts_with(**close)) {
            return Tag { statement, tokens, close: &rest[..close.len()], start: start - 2, end: at + close.len() };
        }
        let after_dot = at > start && template[..at].ends_with('.');
        let (kind, length) = token(rest, first, after_dot);
        open += match first {
            '(' | '[' | '{' => 1,
            ')' | ']' | '}' => -1,
            _ => 0,
        };
        tokens.push(TagToken { kind, text: &rest[..length], offset: at });
        at += length;
    }
    Tag { statement, tokens, close: "", start: start - 2, end: template.len() }
}

/// Returns the kind and the length of the token at the start of `text`.
fn token(text: &str, first: char, after_dot: bool) -> (TokenKind, usize) {
    match first {
        '"' | '\'' => (TokenKind::Literal, literal_length(text, first)),
        '0'..='9' => (TokenKind::Number, number_length(text, after_dot)),
        _ if is_name(first) => (TokenKind::Name, text.find(|char| !is_name(char)).unwrap_or(text.len())),
        _ => {
            let two = ["//", "**", "==", "!=", ">=", "<="].iter().any(|symbol| text.starts_with(symbol));
            (TokenKind::Symbol, if two { 2 } else { first.len_utf8() })
        }
    }
}

fn is_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_'
}

fn literal_length(text: &str, quote: char) -> usize {
    let mut chars = text.char_indices().skip(1);
    while let Some((at, char)) = chars.next() {
        match char {
            '\\' => drop(chars.next()),
            _ if char == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of a number with fraction and exponent. A number after a dot is an index, and
/// has no fraction.
fn number_length(text: &str, after_dot: bool) -> usize {
    let bytes = text.as_bytes();
    let is = |at: usize, of: &[u8]| bytes.get(at).is_some_and(|byte| of.contains(byte));
    let run = |from: usize, digit: fn(&u8) -> bool| {
        from + bytes[from.min(bytes.len())..].iter().take_while(|byte| digit(byte) || **byte == b'_').count()
    };
    if bytes[0] == b'0' && is(1, b"xXoObB") {
        return run(2, u8::is_ascii_hexdigit);
    }
    let mut end = run(0, u8::is_ascii_digit);
    let exponent = |at: usize| is(at, b"eE") && is(at + 1, b"+-0123456789");
    let attribute = |at: usize| bytes.get(at).is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
    if !after_dot && is(end, b".") && (exponent(end + 1) || !attribute(end + 1)) {
        end = run(end + 1, u8::is_ascii_digit);
    }
    if is(end, b"eE") {
        end = run(end + 1 + usize::from(is(end + 1, b"+-")), u8::is_ascii_digit);
    }
    end
}
