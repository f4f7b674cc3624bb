//! Translates JSON Schema into grammar rules for values.
//!
//! The rules may allow less than the schema, never more: objects have the named properties only, in
//! the schema's order, unless the schema names none; numbers have a limited number of digits;
//! references and values of any type have a limited depth.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{
    alternatives::{Alternative, alternatives},
    dialect::Dialect,
    numbers,
    writer::{GrammarWriter, literal},
};
use crate::chat::schema;

/// The deepest nesting of values; less than the limit of every parser of calls.
const MAX_DEPTH: usize = 16;

/// The deepest nesting of values without a schema.
const MAX_UNRESTRICTED_DEPTH: usize = 3;

/// The grammar rules for the values of one schema.
pub(in crate::chat::answer) struct ValueRules<'v, 't> {
    pub writer: &'v mut GrammarWriter<'t>,
    root: &'v Value,
    /// Rules by the text of their schema, the remaining depth and the dialect.
    translated: HashMap<(String, usize, Dialect), Option<String>>,
}

/// The syntax of an object's fields.
pub(in crate::chat::answer) struct FieldSyntax<'f> {
    pub open: &'f str,
    pub comma: &'f str,
    pub close: &'f str,
    /// Returns the expression of a key and the separator after it; `None` if the format cannot
    /// express the key.
    pub key: &'f dyn Fn(&GrammarWriter<'_>, &str) -> Option<String>,
    /// The expression of any key and the separator after it, for objects without named fields.
    pub any_key: &'f str,
    pub values: Dialect,
}

/// A field of an object.
struct ObjectField {
    expression: String,
    required: bool,
}

/// An expression; `None` if no value can be written.
type Expression = Result<Option<String>, String>;

impl<'v, 't> ValueRules<'v, 't> {
    pub fn new(writer: &'v mut GrammarWriter<'t>, root: &'v Value) -> Self {
        Self { writer, root, translated: HashMap::new() }
    }

    /// Returns the expression of a call's arguments: an object with fields of the given syntax.
    pub fn arguments(&mut self, syntax: &FieldSyntax<'_>) -> Result<String, String> {
        let mut expressions = vec![];
        for alternative in alternatives(self.root, self.root)? {
            if alternative.allows("object") {
                expressions.extend(self.object(&alternative, syntax, MAX_DEPTH)?);
            }
        }
        self.any_of(expressions).ok_or_else(|| "allows no arguments that can be written: relax its limits".to_owned())
    }

    /// Returns the expression of a call's arguments, written as an object of the dialect.
    pub fn object_arguments(&mut self, dialect: Dialect) -> Result<String, String> {
        self.with_object_syntax(dialect, |values, syntax| values.arguments(syntax))
    }

    fn with_object_syntax<T>(&mut self, dialect: Dialect, act: impl FnOnce(&mut Self, &FieldSyntax<'_>) -> T) -> T {
        let key =
            |writer: &GrammarWriter<'_>, key: &str| Some(format!("{} {}", dialect.key(writer, key)?, dialect.colon()));
        let any_key = format!("{} {}", dialect.any_key(self.writer), dialect.colon());
        let (open, comma, close) = ("\"{\"", dialect.comma(), "\"}\"");
        act(self, &FieldSyntax { open, comma, close, key: &key, any_key: &any_key, values: dialect })
    }

    /// Returns the expression of the values that a schema allows.
    fn value(&mut self, schema: &Value, dialect: Dialect, depth: usize) -> Expression {
        let Some(depth) = depth.checked_sub(1) else { return Ok(None) };
        // Without this cache the work on schemas that refer to themselves doubles at each level.
        let key = (schema.to_string(), depth, dialect);
        if let Some(rule) = self.translated.get(&key) {
            return Ok(rule.clone());
        }
        let mut expressions = vec![];
        for alternative in alternatives(self.root, schema)? {
            self.alternative(&alternative, dialect, depth, &mut expressions)?;
        }
        let rule = self.any_of(expressions);
        self.translated.insert(key, rule.clone());
        Ok(rule)
    }

    fn any_of(&mut self, mut expressions: Vec<String>) -> Option<String> {
        expressions.dedup();
        (!expressions.is_empty()).then(|| self.writer.rule(expressions.join(" | ")))
    }

    fn alternative(
        &mut self,
        alternative: &Alternative,
        dialect: Dialect,
        depth: usize,
        into: &mut Vec<String>,
    ) -> Result<(), String> {
        if let Some(values) = alternative.values() {
            let schema = Value::Object(alternative.schema.clone());
            let allowed = values.into_iter().filter(|value| schema::check_within(self.root, &schema, value).is_ok());
            into.extend(allowed.filter_map(|value| dialect.literal(self.writer, value)));
            return Ok(());
        }
        let inner = dialect.inner();
        if alternative.is_unrestricted() && inner != dialect {
            // A tag's value without a type is text.
            into.push(dialect.string(self.writer, &alternative.schema));
            return Ok(());
        }
        if alternative.is_unrestricted() {
            into.extend(self.any_value(dialect, depth.min(MAX_UNRESTRICTED_DEPTH)));
            return Ok(());
        }
        let [true_word, false_word, null] = inner.words().map(|(word, _)| dialect.finish(literal(word)));
        if alternative.allows("string") {
            into.push(dialect.string(self.writer, &alternative.schema));
        }
        let number =
            if alternative.allows("number") { Some(false) } else { alternative.allows("integer").then_some(true) };
        let number = number.and_then(|integers| numbers::expression(&alternative.schema, integers));
        into.extend(number.map(|number| dialect.finish(format!("/{number}/"))));
        if alternative.allows("boolean") {
            into.extend([true_word, false_word]);
        }
        if alternative.allows("null") {
            into.push(null);
        }
        if alternative.allows("array") {
            into.extend(self.array(alternative, inner, depth)?.map(|array| dialect.finish(array)));
        }
        if alternative.allows("object") {
            let object = self.with_object_syntax(inner, |values, syntax| values.object(alternative, syntax, depth))?;
            into.extend(object.map(|object| dialect.finish(object)));
        }
        Ok(())
    }

    /// Returns the expression of values of any type, with at most this nesting.
    fn any_value(&mut self, dialect: Dialect, depth: usize) -> Option<String> {
        let empty = Map::new();
        let mut expressions = vec![dialect.string(self.writer, &empty)];
        expressions.extend(numbers::expression(&empty, false).map(|number| format!("/{number}/")));
        expressions.extend(dialect.words().map(|(word, _)| literal(word)));
        if let Some(inner) = depth.checked_sub(1) {
            let value = self.any_value(dialect, inner);
            expressions.extend(value.as_ref().map(|value| self.list(value, dialect, 0, None)));
            let map = |value| self.with_object_syntax(dialect, |values, syntax| values.map(value, syntax, 0, None));
            expressions.extend(value.map(map));
        }
        self.any_of(expressions)
    }

    fn array(&mut self, alternative: &Alternative, dialect: Dialect, depth: usize) -> Expression {
        let (min, max) = (alternative.count("minItems").unwrap_or(0), alternative.count("maxItems"));
        let item = match alternative.schema.get("items") {
            _ if max == Some(0) => None,
            Some(schema) => self.value(schema, dialect, depth)?,
            None => self.any_value(dialect, depth.min(MAX_UNRESTRICTED_DEPTH)),
        };
        Ok(match item {
            Some(item) if max.is_none_or(|max| min <= max) => Some(self.list(&item, dialect, min, max)),
            None if min == 0 => Some("\"[]\"".to_owned()),
            _ => None,
        })
    }

    fn list(&mut self, item: &str, dialect: Dialect, min: usize, max: Option<usize>) -> String {
        let items = repeated(item, dialect.comma(), min, max);
        self.writer.rule(format!("\"[\" {items} \"]\""))
    }

    fn map(&mut self, value: String, syntax: &FieldSyntax<'_>, min: usize, max: Option<usize>) -> String {
        let entry = self.writer.rule(format!("{} {value}", syntax.any_key));
        let entries = repeated(&entry, syntax.comma, min, max);
        self.writer.rule(format!("{} {entries} {}", syntax.open, syntax.close).trim().to_owned())
    }

    fn object(&mut self, alternative: &Alternative, syntax: &FieldSyntax<'_>, depth: usize) -> Expression {
        let names_fields = !alternative.properties().is_empty() || !alternative.required().is_empty();
        // Schemas declare a tool without arguments by an empty list of properties.
        let is_open = alternative.schema.get("additionalProperties").is_none_or(|open| *open == true);
        if names_fields || is_open && alternative.schema.contains_key("properties") {
            return self.fields(alternative, syntax, depth);
        }
        let (min, max) = (alternative.count("minProperties").unwrap_or(0), alternative.count("maxProperties"));
        if min > 1 {
            return Err(
                "has `minProperties` without named properties, which a grammar cannot express: remove it".to_owned()
            );
        }
        let value = match alternative.schema.get("additionalProperties") {
            Some(schema) if !is_open => self.value(schema, syntax.values, depth)?,
            _ => self.value(&Value::Bool(true), syntax.values, depth.min(MAX_UNRESTRICTED_DEPTH + 1))?,
        };
        Ok(match value {
            Some(value) if max.is_none_or(|max| min <= max) => Some(self.map(value, syntax, min, max)),
            None if min == 0 => Some(self.writer.rule(format!("{} {}", syntax.open, syntax.close).trim().to_owned())),
            _ => None,
        })
    }

    /// Returns the expression of an object with named fields.
    fn fields(&mut self, alternative: &Alternative, syntax: &FieldSyntax<'_>, depth: usize) -> Expression {
        let (properties, required) = (alternative.properties(), alternative.required());
        let min = alternative.count("minProperties").unwrap_or(0);
        let names: Vec<&str> = properties.keys().map(String::as_str).collect();
        let more: Vec<&str> = required.iter().copied().filter(|name| !properties.contains_key(*name)).collect();
        if min > required.len() || alternative.count("maxProperties").is_some_and(|max| max < names.len() + more.len())
        {
            return Err(
                "has `minProperties` or `maxProperties` with optional properties, which a grammar cannot express: \
                 remove it"
                    .into(),
            );
        }
        let unnamed = alternative.schema.get("additionalProperties").unwrap_or(&Value::Bool(true));
        let mut items = vec![];
        for name in names.into_iter().chain(more) {
            let value = self.value(properties.get(name).unwrap_or(unnamed), syntax.values, depth)?;
            let key = (syntax.key)(self.writer, name);
            match (key, value) {
                (Some(key), Some(value)) => {
                    items.push(ObjectField { expression: format!("{key} {value}"), required: required.contains(&name) })
                }
                (None, _) => {
                    return Err(format!(
                        "has the property `{name}`, which the model's call format cannot write: rename it"
                    ));
                }
                (_, None) if required.contains(&name) => return Ok(None),
                (_, None) => {}
            }
        }
        let items = self.sequence(&items, syntax.comma);
        Ok(Some(self.writer.rule(format!("{} {items} {}", syntax.open, syntax.close).trim().to_owned())))
    }

    /// Returns the expression of items in order.
    fn sequence(&mut self, items: &[ObjectField], comma: &str) -> String {
        // The rest of the sequence from an item on: after an earlier item, and as the first.
        let (mut after, mut first) = ("\"\"".to_owned(), "\"\"".to_owned());
        for ObjectField { expression, required } in items.iter().rev() {
            let (next, alone) = (format!("{comma} {expression} {after}"), format!("{expression} {after}"));
            let (next, alone) =
                if *required { (next, alone) } else { (format!("{next} | {after}"), format!("{alone} | {first}")) };
            (after, first) = (self.writer.rule(next.trim().to_owned()), self.writer.rule(alone));
        }
        first
    }
}

fn repeated(item: &str, comma: &str, min: usize, max: Option<usize>) -> String {
    let more = max.map_or(String::new(), |max| max.saturating_sub(1).to_string());
    let some = format!("{item} ({comma} {item}){{{},{more}}}", min.saturating_sub(1));
    match (min, max) {
        (_, Some(0)) => "\"\"".to_owned(),
        (0, _) => format!("({some})?"),
        _ => some,
    }
}
