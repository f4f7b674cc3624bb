//! Translates JSON Schema into rules for the values that it allows.
//!
//! The rules may allow less than the schema, never more: objects have their named properties alone,
//! in the schema's order, unless the schema names none; numbers have a bounded number of digits;
//! references and values of any type nest a bounded number of times.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::dialect::Dialect;
use super::alternatives::{Form, forms};
use super::numbers;
use super::writer::{Writer, literal};
use crate::chat::schema;

/// How deep values may nest, which is less than every parser of calls takes.
const MAX_DEPTH: usize = 16;

/// How deep values may nest whose schema says nothing.
const MAX_FREE_DEPTH: usize = 3;

/// The rules for values by one schema.
pub(in crate::chat::answer) struct Values<'v, 't> {
    pub writer: &'v mut Writer<'t>,
    root: &'v Value,
    /// The rules of schemas by their text, the depth that is left and the dialect.
    translated: HashMap<(String, usize, Dialect), Option<String>>,
}

/// How an object's fields are written.
pub(in crate::chat::answer) struct Fields<'f> {
    pub open: &'f str,
    pub comma: &'f str,
    pub close: &'f str,
    /// The expression for a key with what separates it from its value; `None` where it cannot be
    /// written.
    pub key: &'f dyn Fn(&Writer<'_>, &str) -> Option<String>,
    /// The expression for any key with what separates it from its value, for objects whose fields
    /// have no names.
    pub any_key: &'f str,
    pub values: Dialect,
}

/// An expression, or nothing where there is no value that could be written.
type Expression = Result<Option<String>, String>;

impl<'v, 't> Values<'v, 't> {
    pub fn new(writer: &'v mut Writer<'t>, root: &'v Value) -> Self {
        Self { writer, root, translated: HashMap::new() }
    }

    /// The expression for the arguments of a call, an object with fields of this look.
    pub fn arguments(&mut self, look: &Fields<'_>) -> Result<String, String> {
        let mut alternatives = vec![];
        for form in forms(self.root, self.root)? {
            if form.allows("object") {
                alternatives.extend(self.object(&form, look, MAX_DEPTH)?);
            }
        }
        self.any_of(alternatives).ok_or_else(|| "allows no arguments that could be written".to_owned())
    }

    /// The expression for the arguments of a call, written as an object is in this dialect.
    pub fn object_arguments(&mut self, dialect: Dialect) -> Result<String, String> {
        self.with_object_look(dialect, |values, look| values.arguments(look))
    }

    fn with_object_look<T>(&mut self, dialect: Dialect, act: impl FnOnce(&mut Self, &Fields<'_>) -> T) -> T {
        let key = |writer: &Writer<'_>, key: &str| Some(format!("{} {}", dialect.key(writer, key)?, dialect.colon()));
        let any_key = format!("{} {}", dialect.any_key(self.writer), dialect.colon());
        let (open, comma, close) = ("\"{\"", dialect.comma(), "\"}\"");
        act(self, &Fields { open, comma, close, key: &key, any_key: &any_key, values: dialect })
    }

    /// The expression for the values that a schema allows.
    fn value(&mut self, schema: &Value, dialect: Dialect, depth: usize) -> Expression {
        let Some(depth) = depth.checked_sub(1) else { return Ok(None) };
        // Schemas that refer to themselves would otherwise be translated twice as often at each
        // level.
        let key = (schema.to_string(), depth, dialect);
        if let Some(rule) = self.translated.get(&key) {
            return Ok(rule.clone());
        }
        let mut alternatives = vec![];
        for form in forms(self.root, schema)? {
            self.form(&form, dialect, depth, &mut alternatives)?;
        }
        let rule = self.any_of(alternatives);
        self.translated.insert(key, rule.clone());
        Ok(rule)
    }

    fn any_of(&mut self, mut alternatives: Vec<String>) -> Option<String> {
        alternatives.dedup();
        (!alternatives.is_empty()).then(|| self.writer.rule(alternatives.join(" | ")))
    }

    fn form(&mut self, form: &Form, dialect: Dialect, depth: usize, into: &mut Vec<String>) -> Result<(), String> {
        if let Some(values) = form.values() {
            let schema = Value::Object(form.schema.clone());
            let allowed = values.into_iter().filter(|value| schema::check_within(self.root, &schema, value).is_ok());
            into.extend(allowed.filter_map(|value| dialect.literal(self.writer, value)));
            return Ok(());
        }
        let inner = dialect.inner();
        if form.is_free() && inner != dialect {
            // Text without a type is taken as it is.
            into.push(dialect.string(self.writer, &form.schema));
            return Ok(());
        }
        if form.is_free() {
            into.extend(self.free_value(dialect, depth.min(MAX_FREE_DEPTH)));
            return Ok(());
        }
        let [yes, no, null] = inner.words().map(|(word, _)| dialect.finish(literal(word)));
        if form.allows("string") {
            into.push(dialect.string(self.writer, &form.schema));
        }
        let number = if form.allows("number") { Some(false) } else { form.allows("integer").then_some(true) };
        let number = number.and_then(|integers| numbers::expression(&form.schema, integers));
        into.extend(number.map(|number| dialect.finish(format!("/{number}/"))));
        if form.allows("boolean") {
            into.extend([yes, no]);
        }
        if form.allows("null") {
            into.push(null);
        }
        if form.allows("array") {
            into.extend(self.array(form, inner, depth)?.map(|array| dialect.finish(array)));
        }
        if form.allows("object") {
            let object = self.with_object_look(inner, |values, look| values.object(form, look, depth))?;
            into.extend(object.map(|object| dialect.finish(object)));
        }
        Ok(())
    }

    /// The expressions for values of any type, nested at most this deep.
    fn free_value(&mut self, dialect: Dialect, depth: usize) -> Option<String> {
        let empty = Map::new();
        let mut alternatives = vec![dialect.string(self.writer, &empty)];
        alternatives.extend(numbers::expression(&empty, false).map(|number| format!("/{number}/")));
        alternatives.extend(dialect.words().map(|(word, _)| literal(word)));
        if let Some(inner) = depth.checked_sub(1) {
            let value = self.free_value(dialect, inner);
            alternatives.extend(value.as_ref().map(|value| self.list(value, dialect, 0, None)));
            let map = |value| self.with_object_look(dialect, |values, look| values.map(value, look, 0, None));
            alternatives.extend(value.map(map));
        }
        self.any_of(alternatives)
    }

    fn array(&mut self, form: &Form, dialect: Dialect, depth: usize) -> Expression {
        let (least, most) = (form.count("minItems").unwrap_or(0), form.count("maxItems"));
        let item = match form.schema.get("items") {
            _ if most == Some(0) => None,
            Some(schema) => self.value(schema, dialect, depth)?,
            None => self.free_value(dialect, depth.min(MAX_FREE_DEPTH)),
        };
        Ok(match item {
            Some(item) if most.is_none_or(|most| least <= most) => Some(self.list(&item, dialect, least, most)),
            None if least == 0 => Some("\"[]\"".to_owned()),
            _ => None,
        })
    }

    fn list(&mut self, item: &str, dialect: Dialect, least: usize, most: Option<usize>) -> String {
        let items = repeated(item, dialect.comma(), least, most);
        self.writer.rule(format!("\"[\" {items} \"]\""))
    }

    fn map(&mut self, value: String, look: &Fields<'_>, least: usize, most: Option<usize>) -> String {
        let entry = self.writer.rule(format!("{} {value}", look.any_key));
        let entries = repeated(&entry, look.comma, least, most);
        self.writer.rule(format!("{} {entries} {}", look.open, look.close).trim().to_owned())
    }

    fn object(&mut self, form: &Form, look: &Fields<'_>, depth: usize) -> Expression {
        let names_fields = !form.properties().is_empty() || !form.required().is_empty();
        // An empty list of properties is how schemas say that there are no arguments.
        let is_open = form.schema.get("additionalProperties").is_none_or(|open| *open == true);
        if names_fields || is_open && form.schema.contains_key("properties") {
            return self.fields(form, look, depth);
        }
        let (least, most) = (form.count("minProperties").unwrap_or(0), form.count("maxProperties"));
        if least > 1 {
            return Err("has `minProperties`, which no grammar can hold to: two keys may be the same".to_owned());
        }
        let value = match form.schema.get("additionalProperties") {
            Some(schema) if !is_open => self.value(schema, look.values, depth)?,
            _ => self.value(&Value::Bool(true), look.values, depth.min(MAX_FREE_DEPTH + 1))?,
        };
        Ok(match value {
            Some(value) if most.is_none_or(|most| least <= most) => Some(self.map(value, look, least, most)),
            None if least == 0 => Some(self.writer.rule(format!("{} {}", look.open, look.close).trim().to_owned())),
            _ => None,
        })
    }

    /// The expression for an object with named fields.
    fn fields(&mut self, form: &Form, look: &Fields<'_>, depth: usize) -> Expression {
        let (properties, required) = (form.properties(), form.required());
        let least = form.count("minProperties").unwrap_or(0);
        let names: Vec<&str> = properties.keys().map(String::as_str).collect();
        let more: Vec<&str> = required.iter().copied().filter(|name| !properties.contains_key(*name)).collect();
        if least > required.len() || form.count("maxProperties").is_some_and(|most| most < names.len() + more.len()) {
            return Err(
                "has `minProperties` or `maxProperties` with optional properties, which no grammar can hold to".into(),
            );
        }
        let unnamed = form.schema.get("additionalProperties").unwrap_or(&Value::Bool(true));
        let mut items = vec![];
        for name in names.into_iter().chain(more) {
            let value = self.value(properties.get(name).unwrap_or(unnamed), look.values, depth)?;
            let key = (look.key)(self.writer, name);
            match (key, value) {
                (Some(key), Some(value)) => items.push((format!("{key} {value}"), required.contains(&name))),
                (None, _) => {
                    return Err(format!("has the property `{name}`, which the model's form of calls cannot write"));
                }
                (_, None) if required.contains(&name) => return Ok(None),
                (_, None) => {}
            }
        }
        let items = self.sequence(&items, look.comma);
        Ok(Some(self.writer.rule(format!("{} {items} {}", look.open, look.close).trim().to_owned())))
    }

    /// The expression for these items in their order, of which those that are not required may be
    /// left out.
    fn sequence(&mut self, items: &[(String, bool)], comma: &str) -> String {
        // What may come from an item on: after another one, and as the first.
        let (mut after, mut first) = ("\"\"".to_owned(), "\"\"".to_owned());
        for (item, required) in items.iter().rev() {
            let (next, alone) = (format!("{comma} {item} {after}"), format!("{item} {after}"));
            let (next, alone) = match required {
                true => (next, alone),
                false => (format!("{next} | {after}"), format!("{alone} | {first}")),
            };
            (after, first) = (self.writer.rule(next.trim().to_owned()), self.writer.rule(alone));
        }
        first
    }
}

fn repeated(item: &str, comma: &str, least: usize, most: Option<usize>) -> String {
    let more = most.map_or(String::new(), |most| most.saturating_sub(1).to_string());
    let some = format!("{item} ({comma} {item}){{{},{more}}}", least.saturating_sub(1));
    match (least, most) {
        (_, Some(0)) => "\"\"".to_owned(),
        (0, _) => format!("({some})?"),
        _ => some,
    }
}
