//! A template's source in; the names that it reads and the texts that it quotes out.

use std::collections::BTreeSet;

use super::lexer::{Kind, Piece};

/// What the expressions and statements of a template are made of.
#[derive(Clone, Debug, Default)]
pub(super) struct Source {
    /// Names of variables, filters, tests and functions; names of attributes are not among them.
    pub names: BTreeSet<String>,
    /// String literals, their escapes resolved.
    pub literals: BTreeSet<String>,
}

impl Source {
    pub fn new(pieces: &[Piece<'_>]) -> Self {
        let mut this = Self::default();
        for piece in pieces {
            let Piece::Tag(tag) = piece else { continue };
            let mut after_dot = false;
            for token in &tag.tokens {
                match token.kind {
                    Kind::Name if !after_dot => drop(this.names.insert(token.text.to_owned())),
                    Kind::Literal => drop(this.literals.insert(unescape(token.text))),
                    _ => {}
                }
                after_dot = token.is(".");
            }
        }
        this
    }
}

/// A literal without its quotes and escapes.
fn unescape(literal: &str) -> String {
    let mut text = String::new();
    let mut chars = literal.get(1..literal.len() - 1).unwrap_or_default().chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => text.extend(chars.next().map(|escaped| match escaped {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                other => other,
            })),
            _ => text.push(char),
        }
    }
    text
}
