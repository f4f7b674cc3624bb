//! Collects the rules of a Lark grammar, and names the places of a schema for errors.

use std::{collections::HashMap, fmt::Write};

use crate::error::Error;

/// The rules of a grammar. Rules with equal bodies share a name.
#[derive(Default)]
pub struct GrammarRules {
    text: String,
    names: HashMap<String, String>,
    count: usize,
}

impl GrammarRules {
    /// Adds a rule and returns its name.
    pub fn rule(&mut self, body: String) -> String {
        self.named(body, 'r')
    }

    /// Adds a terminal, which llguidance matches as one regular expression, and returns its name.
    pub fn terminal(&mut self, body: String) -> String {
        self.named(body, 'T')
    }

    fn named(&mut self, body: String, kind: char) -> String {
        if let Some(name) = self.names.get(&body) {
            return name.clone();
        }
        self.count += 1;
        let name = format!("{kind}{}", self.count);
        self.define(&name, &body);
        self.names.insert(body, name.clone());
        name
    }

    /// Returns the name of a rule that is defined later.
    pub fn reserve(&mut self) -> String {
        self.count += 1;
        format!("r{}", self.count)
    }

    /// Defines a reserved rule.
    pub fn define(&mut self, name: &str, body: &str) {
        _ = writeln!(self.text, "{name}: {body}");
    }

    /// Returns all rules, one on each line.
    pub fn into_text(self) -> String {
        self.text
    }
}

/// Returns a Lark literal, which is a JSON string. llguidance's lexer rejects an unescaped DEL.
pub fn literal(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', r"\u007f")
}

/// A place in a schema for errors: a type, and a field of it.
#[derive(Clone)]
pub struct SchemaPlace {
    owner: String,
    field: String,
}

impl SchemaPlace {
    /// Returns the place of a whole type or schema.
    pub fn new(owner: String) -> Self {
        Self { owner, field: String::new() }
    }

    /// Returns the place of a field.
    pub fn field(&self, name: &str) -> Self {
        let dot = if self.field.is_empty() { "" } else { "." };
        Self { owner: self.owner.clone(), field: format!("{}{dot}{name}", self.field) }
    }

    /// Returns the place of the items of an array.
    pub fn items(&self) -> Self {
        Self { owner: self.owner.clone(), field: format!("{}[]", self.field) }
    }

    /// Returns an error that names this place and a keyword.
    pub fn keyword(&self, key: &str, what: &str) -> Error {
        self.error(format!("the keyword `{key}` {what}"))
    }

    /// Returns an error that names this place.
    pub fn error(&self, what: impl std::fmt::Display) -> Error {
        let Self { owner, field } = self;
        match field.as_str() {
            "" => Error::Grammar(format!("{owner}: {what}")),
            field => Error::Grammar(format!("{owner}, field `{field}`: {what}")),
        }
    }
}
