//! Collects the names that a template reads, and its string literals.

use std::collections::BTreeSet;

use super::lexer::{SourcePiece, TokenKind};

/// The names and literals in the tags of a template.
#[derive(Clone, Debug, Default)]
pub(super) struct TemplateSymbols {
    /// Names of variables, filters, tests and functions, but not of attributes.
    pub names: BTreeSet<String>,
    /// String literals without quotes and escapes.
    pub literals: BTreeSet<String>,
}

impl TemplateSymbols {
    pub fn new(pieces: &[SourcePiece<'_>]) -> Self {
        let mut this = Self::default();
        for piece in pieces {
            let SourcePiece::Tag(tag) = piece else { continue };
            let mut after_dot = false;
            for token in &tag.tokens {
                match token.kind {
                    TokenKind::Name if !after_dot => drop(this.names.insert(token.text.to_owned())),
                    TokenKind::Literal => drop(this.literals.insert(unescape(token.text))),
                    _ => {}
                }
                after_dot = token.is(".");
            }
        }
        this
    }
}

/// Returns a literal without its quotes and escapes.
fn unescape(literal: &str) -> String {
    let mut text = String::new();
    let mut chars = literal.get(1..literal.len() - 1).unwrap_or_default().chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => text.extend(chars.next().map(|escaped| match escaped {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                char => char,
            })),
            _ => text.push(char),
        }
    }
    text
}
