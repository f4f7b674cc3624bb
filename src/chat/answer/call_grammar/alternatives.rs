//! Resolves references and combinations of a schema into a list of alternative plain schemas.

use serde_json::{Map, Value};

use crate::chat::schema;

/// The deepest nesting of references and combinations.
const MAX_DEPTH: usize = 16;

/// The largest number of alternatives of one schema.
const MAX_ALTERNATIVES: usize = 256;

/// Keywords that calls are checked against, but that grammars cannot express.
const UNTRANSLATED: [&str; 5] = ["multipleOf", "patternProperties", "prefixItems", "uniqueItems", "not"];

/// Keywords that combine schemas.
const COMBINING: [&str; 4] = ["$ref", "allOf", "anyOf", "oneOf"];

/// Types and the keywords that apply to them alone. A schema without `type` that has one of these
/// keywords is translated for that type only.
const TYPE_KEYWORDS: [(&str, &[&str]); 4] = [
    ("object", &["properties", "required", "additionalProperties", "minProperties", "maxProperties"]),
    ("array", &["items", "minItems", "maxItems"]),
    ("string", &["minLength", "maxLength", "pattern"]),
    ("number", &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]),
];

/// A schema without references and combinations.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Alternative {
    pub schema: Map<String, Value>,
}

/// Returns the alternatives of `schema`, a part of the schema `root`. A value is valid according to
/// `schema` if it is valid according to one of them.
pub(super) fn alternatives(root: &Value, schema: &Value) -> Result<Vec<Alternative>, String> {
    resolve(root, schema, MAX_DEPTH)
}

fn resolve(root: &Value, schema: &Value, depth: usize) -> Result<Vec<Alternative>, String> {
    let depth = depth.checked_sub(1).ok_or("has references that never end")?;
    let object = match schema {
        Value::Object(object) => object,
        Value::Bool(false) => return Ok(vec![]),
        _ => return Ok(vec![Alternative::default()]),
    };
    let unsupported = |name: &&str| object.get(*name).is_some_and(|argument| argument != false);
    if let Some(name) = UNTRANSLATED.iter().find(|name| unsupported(name)) {
        return Err(format!("has `{name}`, which a grammar cannot express: remove it"));
    }
    let own = object.iter().filter(|(key, _)| !COMBINING.contains(&key.as_str()) && is_checked(key));
    let mut alternatives = vec![Alternative { schema: own.map(|(key, value)| (key.clone(), value.clone())).collect() }];
    if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
        let target = schema::resolve(root, reference).unwrap_or(&Value::Null);
        alternatives = intersect(&alternatives, &resolve(root, target, depth)?)?;
    }
    for part in object.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        alternatives = intersect(&alternatives, &resolve(root, part, depth)?)?;
    }
    for union in ["anyOf", "oneOf"] {
        let Some(parts) = object.get(union).and_then(Value::as_array) else { continue };
        let parts: Vec<Vec<Alternative>> =
            parts.iter().map(|part| resolve(root, part, depth)).collect::<Result<_, _>>()?;
        if union == "oneOf" && overlap(&parts) {
            return Err(
                "has `oneOf` with alternatives that may be valid at once, which a grammar cannot express: use `anyOf`"
                    .into(),
            );
        }
        alternatives = intersect(&alternatives, &parts.concat())?;
    }
    Ok(alternatives)
}

/// Returns whether a keyword restricts values; definitions and descriptions do not.
fn is_checked(key: &str) -> bool {
    let typical = TYPE_KEYWORDS.iter().any(|(_, keys)| keys.contains(&key));
    typical || ["type", "enum", "const", "nullable"].contains(&key)
}

/// Returns the alternatives of values that are valid according to one alternative of each list.
fn intersect(left: &[Alternative], right: &[Alternative]) -> Result<Vec<Alternative>, String> {
    let pairs = left.iter().flat_map(|left| right.iter().map(move |right| (left, right)));
    let alternatives: Vec<Alternative> = pairs.map(|(left, right)| left.and(right)).collect::<Result<_, _>>()?;
    if alternatives.len() > MAX_ALTERNATIVES {
        return Err(format!("has more than {MAX_ALTERNATIVES} alternatives: simplify it"));
    }
    Ok(alternatives)
}

/// Returns whether a value may be valid according to two of the schemas.
fn overlap(parts: &[Vec<Alternative>]) -> bool {
    let may_share = |left: &[Alternative], right: &[Alternative]| {
        left.iter().any(|left| right.iter().any(|right| !left.excludes(right)))
    };
    parts.iter().enumerate().any(|(index, left)| parts[index + 1..].iter().any(|right| may_share(left, right)))
}

impl Alternative {
    /// Returns whether every value is valid.
    pub fn is_unrestricted(&self) -> bool {
        self.schema.keys().all(|key| key == "nullable")
    }

    pub fn allows(&self, name: &str) -> bool {
        let is = |allowed: &str| allowed == name || allowed == "number" && name == "integer";
        if name == "null" && self.is_nullable() {
            return true;
        }
        match self.schema.get("type") {
            Some(Value::String(allowed)) => is(allowed),
            Some(Value::Array(allowed)) => allowed.iter().filter_map(Value::as_str).any(is),
            _ => {
                let own_type =
                    TYPE_KEYWORDS.iter().find(|(_, keys)| keys.iter().any(|key| self.schema.contains_key(*key)));
                own_type.is_none_or(|(name, _)| is(name))
            }
        }
    }

    fn is_nullable(&self) -> bool {
        self.schema.get("nullable") == Some(&Value::Bool(true))
    }

    /// Returns the values of `enum` or `const`, before other keywords are applied.
    pub fn values(&self) -> Option<Vec<&Value>> {
        let listed = match (self.schema.get("const"), self.schema.get("enum")) {
            (Some(value), _) => vec![value],
            (None, listed) => listed?.as_array()?.iter().collect(),
        };
        let null = (self.is_nullable() && !listed.contains(&&Value::Null)).then_some(&Value::Null);
        Some(listed.into_iter().chain(null).collect())
    }

    pub fn count(&self, name: &str) -> Option<usize> {
        self.schema.get(name)?.as_f64().map(|count| count as usize)
    }

    pub fn properties(&self) -> Map<String, Value> {
        self.schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default()
    }

    pub fn required(&self) -> Vec<&str> {
        self.schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// Returns the schema of the values that are valid according to both.
    fn and(&self, other: &Self) -> Result<Self, String> {
        let mut schema = self.schema.clone();
        if self.closes(other) || other.closes(self) {
            return Err(
                "combines `additionalProperties` with properties of another schema, which a grammar cannot express: list \
                 all properties in one schema"
                    .into(),
            );
        }
        for (key, value) in &other.schema {
            let combined = match (key.as_str(), schema.get(key)) {
                (_, None) => value.clone(),
                (_, Some(present)) if present == value => continue,
                ("required", Some(Value::Array(names))) => {
                    let more = value.as_array().into_iter().flatten();
                    names.iter().chain(more.filter(|name| !names.contains(name))).cloned().collect()
                }
                ("properties", Some(Value::Object(fields))) => {
                    let more = value.as_object().cloned().unwrap_or_default();
                    if let Some(name) = more.keys().find(|name| fields.contains_key(*name)) {
                        return Err(format!(
                            "describes the property `{name}` twice, which a grammar cannot express: describe it once"
                        ));
                    }
                    fields.clone().into_iter().chain(more).collect::<Map<_, _>>().into()
                }
                _ => {
                    return Err(format!(
                        "has `{key}` twice for one value, which a grammar cannot express: set it once"
                    ));
                }
            };
            schema.insert(key.clone(), combined);
        }
        Ok(Self { schema })
    }

    /// Returns whether `additionalProperties` restricts properties that the other schema describes.
    fn closes(&self, other: &Self) -> bool {
        let open = self.schema.get("additionalProperties").unwrap_or(&Value::Bool(true));
        *open != true && other.properties().keys().any(|name| !self.properties().contains_key(name))
    }

    /// Returns whether types or constant properties show that no value is valid according to both.
    fn excludes(&self, other: &Self) -> bool {
        if let (Some(own), Some(other)) = (self.values(), other.values()) {
            return !own.iter().any(|value| other.iter().any(|other| schema::equal(value, other)));
        }
        let types = ["string", "integer", "number", "boolean", "null", "array", "object"];
        let common: Vec<&str> = types.into_iter().filter(|name| self.may_be(name) && other.may_be(name)).collect();
        common.is_empty() || common == ["object"] && self.tags_differ(other)
    }

    /// Returns whether `type`, `enum` and `const` allow values of this type.
    fn may_be(&self, name: &str) -> bool {
        match self.values() {
            Some(values) => values.iter().any(|value| Self::is_of_type(value, name)),
            None => !self.schema.contains_key("type") || self.allows(name),
        }
    }

    fn is_of_type(value: &Value, name: &str) -> bool {
        schema::check(&Value::from_iter([("type", name)]), value).is_ok()
    }

    /// Returns whether a property that both schemas require has no common value.
    fn tags_differ(&self, other: &Self) -> bool {
        let (own, theirs) = (self.properties(), other.properties());
        let required = self.required();
        let shared = required.into_iter().filter(|name| other.required().contains(name));
        shared.filter_map(|name| Some((own.get(name)?, theirs.get(name)?))).any(|(left, right)| {
            let plain = |schema: &Value| Some(Alternative { schema: schema.as_object()?.clone() });
            let (Some(left), Some(right)) = (plain(left), plain(right)) else { return false };
            left.values().is_some() && right.values().is_some() && left.excludes(&right)
        })
    }
}
