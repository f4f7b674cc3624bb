//! A template's source in; the names that it reads and the texts that it quotes out.

use std::collections::BTreeSet;

/// What the expressions and statements of a template are made of.
#[derive(Clone, Debug, Default)]
pub(super) struct Source {
    /// Names of variables, filters, tests and functions; names of attributes are not among them.
    pub names: BTreeSet<String>,
    /// String literals, their escapes resolved.
    pub literals: BTreeSet<String>,
}

impl Source {
    pub fn read(template: &str) -> Self {
        let mut this = Self::default();
        let mut rest = template;
        while let Some(start) = rest.find("{{").into_iter().chain(rest.find("{%")).chain(rest.find("{#")).min() {
            let (open, inside) = rest[start..].split_at(2);
            rest = match open {
                "{#" => inside.find("#}").map_or("", |end| &inside[end + 2..]),
                "{{" => this.read_code(inside, "}}"),
                _ => this.read_code(inside, "%}"),
            };
        }
        this
    }

    /// Reads up to the tag's end, and returns what comes after.
    fn read_code<'t>(&mut self, mut rest: &'t str, end: &str) -> &'t str {
        let mut after_dot = false;
        while let Some(first) = rest.chars().next() {
            if let Some(after) = rest.strip_prefix(end) {
                return after;
            }
            let length = match first {
                '"' | '\'' => self.read_literal(&rest[1..], first) + 1,
                _ if is_name(first) => {
                    let length = rest.find(|char| !is_name(char)).unwrap_or(rest.len());
                    if !after_dot {
                        self.names.insert(rest[..length].to_owned());
                    }
                    length
                }
                _ => first.len_utf8(),
            };
            after_dot = first == '.';
            rest = &rest[length..];
        }
        rest
    }

    /// Returns the length up to and with the closing quote.
    fn read_literal(&mut self, text: &str, quote: char) -> usize {
        let mut literal = String::new();
        let mut chars = text.char_indices();
        while let Some((at, char)) = chars.next() {
            match char {
                '\\' => literal.extend(chars.next().map(|(_, escaped)| match escaped {
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    other => other,
                })),
                _ if char == quote => {
                    self.literals.insert(literal);
                    return at + 1;
                }
                _ => literal.push(char),
            }
        }
        text.len()
    }
}

fn is_name(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}
