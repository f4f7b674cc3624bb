//! Translates objects and arrays.

use serde_json::Value;

use super::{SchemaOrigin, SchemaPlace, Translation, array_of, rules::literal, values};
use crate::{error::Result, grammar::JsonObject};

/// The patterns that schemars writes for integer keys of maps, with the expression of their sign.
const INTEGER_KEYS: [(&str, &str); 2] = [(r"^\d+$", ""), (r"^-?\d+$", "-?")];

/// The largest number of digits of an integer key. schemars does not state the width of the
/// integer; every integer of 32 bits or more holds 9 digits.
const KEY_DIGITS: usize = 9;

/// An entry of an object.
struct SequenceItem {
    expression: String,
    required: bool,
}

impl Translation<'_> {
    /// Translates an object: the properties in the order of the schema, then additional entries.
    pub(super) fn object(&mut self, schema: &JsonObject, place: &SchemaPlace, depth: usize) -> Result<String> {
        let empty = JsonObject::new();
        let properties = match schema.get("properties") {
            Some(properties) => {
                properties.as_object().ok_or_else(|| place.keyword("properties", "is not an object"))?
            }
            None => &empty,
        };
        let required = match schema.get("required") {
            Some(_) => array_of(schema, "required", place)?.iter().filter_map(Value::as_str).collect(),
            None => vec![],
        };
        if let Some(name) = required.iter().find(|name| !properties.contains_key(**name)) {
            return Err(place.keyword("required", &format!("names `{name}`, which is not among the `properties`")));
        }
        let mut items = vec![];
        for (name, value) in properties {
            let is_required = required.contains(&name.as_str());
            if *value == Value::Bool(false) && !is_required {
                continue;
            }
            let value = self.node(value, &place.field(name), depth)?;
            let key = literal(&Value::from(name.as_str()).to_string());
            items.push(SequenceItem { expression: format!("{key} \":\" {value}"), required: is_required });
        }
        let named: Vec<&str> = properties.keys().map(String::as_str).collect();
        let entry = self.additional(schema, &named, place, depth)?;
        let CountLimits { min, max } = count_limits(schema, "minProperties", "maxProperties", place)?;
        if let (true, Some(entry)) = (properties.is_empty(), &entry) {
            let entries = repeated(entry, min.unwrap_or(0), max, place, "maxProperties")?;
            return Ok(self.rules.rule(format!("\"{{\" {entries} \"}}\"")));
        }
        if let Some(key) = ["minProperties", "maxProperties"].into_iter().find(|key| schema.contains_key(*key)) {
            return Err(place.keyword(key, "is only supported for maps, which have no `properties`"));
        }
        items.extend(
            entry.map(|entry| SequenceItem { expression: format!("{entry} (\",\" {entry})*"), required: false }),
        );
        let body = self.sequence(&items);
        Ok(self.rules.rule(format!("\"{{\" {body} \"}}\"")))
    }

    /// Returns an expression of an entry with a key that is not in `named`; `None` if there may be
    /// none.
    fn additional(
        &mut self,
        schema: &JsonObject,
        named: &[&str],
        place: &SchemaPlace,
        depth: usize,
    ) -> Result<Option<String>> {
        let patterns = schema.get("patternProperties").and_then(Value::as_object);
        let additional = schema.get("additionalProperties").unwrap_or(&Value::Bool(true));
        let Some(patterns) = patterns.filter(|patterns| !patterns.is_empty()) else {
            if *additional == Value::Bool(false) {
                return Ok(None);
            }
            let key = self.key(&values::text("*"), named);
            let value = self.node(additional, &place.field("<key>"), depth)?;
            return Ok(Some(self.rules.rule(format!("{key} \":\" {value}"))));
        };
        let mut entries = vec![];
        for (pattern, value) in patterns {
            let value = self.node(value, &place.field("<key>"), depth)?;
            let integers = INTEGER_KEYS.iter().find(|(known, _)| known == pattern);
            let key = match (integers, self.origin) {
                (Some((_, sign)), SchemaOrigin::Type(_)) => {
                    let digits = format!(r#""({sign}[1-9][0-9]{{0,{}}}|0)""#, KEY_DIGITS - 1);
                    self.key(&digits, named)
                }
                _ if named.is_empty() => self.matching(pattern, place)?,
                _ => return Err(place.keyword("patternProperties", "is not supported beside `properties`")),
            };
            entries.push(format!("{key} \":\" {value}"));
        }
        if *additional != Value::Bool(false) {
            return Err(place.keyword("patternProperties", "needs `additionalProperties: false` beside it"));
        }
        Ok(Some(self.rules.rule(entries.join(" | "))))
    }

    /// Returns a terminal of the keys that match an expression and are not in `named`.
    fn key(&mut self, expression: &str, named: &[&str]) -> String {
        let names: Vec<_> = named.iter().map(|name| literal(&Value::from(*name).to_string())).collect();
        let excluded = if names.is_empty() { String::new() } else { format!(" & ~({})", names.join(" | ")) };
        self.rules.terminal(format!("/{expression}/{excluded}"))
    }

    /// Returns an expression of items in order, separated by commas.
    fn sequence(&mut self, items: &[SequenceItem]) -> String {
        let Some(first) = items.iter().position(|item| item.required) else {
            return if items.is_empty() { String::new() } else { format!("({})?", self.some_of(items)) };
        };
        let mut text = String::new();
        for item in &items[..first] {
            text += &format!("({} \",\")? ", item.expression);
        }
        text += &items[first].expression;
        for SequenceItem { expression, required } in &items[first + 1..] {
            text += &if *required { format!(" \",\" {expression}") } else { format!(" (\",\" {expression})?") };
        }
        text
    }

    /// Returns a rule of one or more of the items. It halves the list, so that the nesting of rules
    /// is logarithmic.
    fn some_of(&mut self, items: &[SequenceItem]) -> String {
        if let [item] = items {
            return self.rules.rule(item.expression.clone());
        }
        let (left, right) = items.split_at(items.len() / 2);
        let (left, right) = (self.some_of(left), self.some_of(right));
        self.rules.rule(format!("{left} (\",\" {right})? | {right}"))
    }

    /// Translates an array: the items of `prefixItems`, then any number of `items`.
    pub(super) fn array(&mut self, schema: &JsonObject, place: &SchemaPlace, depth: usize) -> Result<String> {
        let CountLimits { min, max } = count_limits(schema, "minItems", "maxItems", place)?;
        let min = min.unwrap_or(0);
        if schema.contains_key("additionalItems") || schema.get("items").is_some_and(Value::is_array) {
            return Err(place
                .keyword("items", "is only supported as in draft 2020-12: use `prefixItems` for a list of schemas"));
        }
        let places = place.items();
        let prefix = if schema.contains_key("prefixItems") { array_of(schema, "prefixItems", place)? } else { &[] };
        let prefix = prefix.iter().map(|item| self.node(item, &places, depth)).collect::<Result<Vec<_>>>()?;
        let ends = max.is_some_and(|max| max <= prefix.len());
        let item = match schema.get("items") {
            _ if ends => None,
            Some(Value::Bool(false)) => None,
            Some(item) => Some(self.node(item, &places, depth)?),
            None => Some(self.any(&places)?),
        };
        if max.is_some_and(|max| max < min) || item.is_none() && prefix.len() < min {
            return Err(place.keyword("minItems", "requires more items than the schema allows"));
        }
        let body = match (prefix.is_empty(), item) {
            (true, None) => String::new(),
            (true, Some(item)) => repeated(&item, min, max, place, "maxItems")?,
            (false, item) => self.tuple(&prefix, item, min, max, place)?,
        };
        Ok(self.rules.rule(format!("\"[\" {body} \"]\"")))
    }

    fn tuple(
        &mut self,
        prefix: &[String],
        item: Option<String>,
        min: usize,
        max: Option<usize>,
        place: &SchemaPlace,
    ) -> Result<String> {
        let count = max.unwrap_or(usize::MAX).min(prefix.len());
        let mut tail = match item {
            Some(item) => {
                let (min, max) = (min.saturating_sub(count), max.map(|max| max - count));
                let rest = times(&format!("(\",\" {item})"), min, max, place, "maxItems")?;
                self.rules.rule(rest)
            }
            None => String::new(),
        };
        for (i, item) in prefix[..count].iter().enumerate().rev() {
            let comma = if i == 0 { "" } else { "\",\" " };
            let text = format!("{comma}{item} {tail}");
            tail = self.rules.rule(if i < min { text } else { format!("({text})?") });
        }
        Ok(tail)
    }
}

/// Returns an expression of `min` to `max` items, separated by commas.
fn repeated(item: &str, min: usize, max: Option<usize>, place: &SchemaPlace, key: &str) -> Result<String> {
    if max == Some(0) {
        return Ok(String::new());
    }
    let rest = times(&format!("(\",\" {item})"), min.saturating_sub(1), max.map(|max| max - 1), place, key)?;
    Ok(if min == 0 { format!("({item} {rest})?") } else { format!("{item} {rest}") })
}

/// Returns an expression of `min` to `max` repetitions of an atom.
fn times(atom: &str, min: usize, max: Option<usize>, place: &SchemaPlace, key: &str) -> Result<String> {
    let fits = |count: usize| i32::try_from(count).is_ok_and(|count| count < i32::MAX);
    if !fits(min) || max.is_some_and(|max| !fits(max)) {
        return Err(place.keyword(key, "is larger than 2147483646"));
    }
    Ok(match (min, max) {
        (0, Some(0)) => String::new(),
        (0, None) => format!("{atom}*"),
        (min, None) => format!("{atom}~{min}..{min} {atom}*"),
        (min, Some(max)) => format!("{atom}~{min}..{max}"),
    })
}

/// The limits of a count.
pub(super) struct CountLimits {
    pub min: Option<usize>,
    pub max: Option<usize>,
}

/// Returns the limits of a count, given the keywords for the lower and the upper limit.
pub(super) fn count_limits(
    schema: &JsonObject,
    min_key: &str,
    max_key: &str,
    place: &SchemaPlace,
) -> Result<CountLimits> {
    let limit = |key: &str| match schema.get(key) {
        None => Ok(None),
        Some(value) => {
            let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
            count.map(Some).ok_or_else(|| place.keyword(key, "is not a non-negative integer"))
        }
    };
    let (min, max) = (limit(min_key)?, limit(max_key)?);
    if min.zip(max).is_some_and(|(min, max)| min > max) {
        return Err(place.keyword(min_key, &format!("is larger than `{max_key}`")));
    }
    Ok(CountLimits { min, max })
}
