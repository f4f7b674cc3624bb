//! Resolves references and combinations of schemas, so that what remains is a list of plain
//! schemas.

use serde_json::{Map, Value};

use crate::chat::schema;

/// How many references and combinations are resolved within each other.
const MAX_DEPTH: usize = 16;

/// The most alternatives of one schema.
const MAX_FORMS: usize = 256;

/// Keywords that are checked in calls and have no translation.
const UNTRANSLATED: [&str; 5] = ["multipleOf", "patternProperties", "prefixItems", "uniqueItems", "not"];

/// Keywords that bring other schemas in.
const COMBINING: [&str; 4] = ["$ref", "allOf", "anyOf", "oneOf"];

/// Keywords of one type, by which a schema without `type` is taken for one of that type.
const TYPICAL: [(&str, &[&str]); 4] = [
    ("object", &["properties", "required", "additionalProperties", "minProperties", "maxProperties"]),
    ("array", &["items", "minItems", "maxItems"]),
    ("string", &["minLength", "maxLength", "pattern"]),
    ("number", &["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]),
];

/// A schema without references and combinations.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Form {
    pub schema: Map<String, Value>,
}

/// The forms of which a value by `schema`, a part of `root`, has one.
pub(super) fn forms(root: &Value, schema: &Value) -> Result<Vec<Form>, String> {
    resolved(root, schema, MAX_DEPTH)
}

fn resolved(root: &Value, schema: &Value, depth: usize) -> Result<Vec<Form>, String> {
    let depth = depth.checked_sub(1).ok_or("has references that never end")?;
    let object = match schema {
        Value::Object(object) => object,
        Value::Bool(false) => return Ok(vec![]),
        _ => return Ok(vec![Form::default()]),
    };
    let unsupported = |name: &&str| object.get(*name).is_some_and(|argument| argument != false);
    if let Some(name) = UNTRANSLATED.iter().find(|name| unsupported(name)) {
        return Err(format!("has `{name}`, which no grammar can hold to"));
    }
    let own = object.iter().filter(|(key, _)| !COMBINING.contains(&key.as_str()) && is_checked(key));
    let mut forms = vec![Form { schema: own.map(|(key, value)| (key.clone(), value.clone())).collect() }];
    if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
        let target = schema::resolve(root, reference).unwrap_or(&Value::Null);
        forms = both(&forms, &resolved(root, target, depth)?)?;
    }
    for part in object.get("allOf").and_then(Value::as_array).into_iter().flatten() {
        forms = both(&forms, &resolved(root, part, depth)?)?;
    }
    for union in ["anyOf", "oneOf"] {
        let Some(parts) = object.get(union).and_then(Value::as_array) else { continue };
        let parts: Vec<Vec<Form>> = parts.iter().map(|part| resolved(root, part, depth)).collect::<Result<_, _>>()?;
        if union == "oneOf" && overlap(&parts) {
            return Err("has `oneOf` with alternatives that may hold at once, which no grammar can hold to".into());
        }
        forms = both(&forms, &parts.concat())?;
    }
    Ok(forms)
}

/// Whether a keyword says something about values; definitions and descriptions do not.
fn is_checked(key: &str) -> bool {
    let typical = TYPICAL.iter().any(|(_, keys)| keys.contains(&key));
    typical || ["type", "enum", "const", "nullable"].contains(&key)
}

/// The forms of values that have one of each list.
fn both(some: &[Form], others: &[Form]) -> Result<Vec<Form>, String> {
    let pairs = some.iter().flat_map(|one| others.iter().map(move |other| (one, other)));
    let forms: Vec<Form> = pairs.map(|(one, other)| one.and(other)).collect::<Result<_, _>>()?;
    if forms.len() > MAX_FORMS {
        return Err(format!("has more than {MAX_FORMS} alternatives"));
    }
    Ok(forms)
}

/// Whether two of the alternatives may hold for the same value.
fn overlap(parts: &[Vec<Form>]) -> bool {
    let pairs = parts.iter().enumerate().flat_map(|(at, one)| parts[at + 1..].iter().map(move |other| (one, other)));
    pairs.into_iter().any(|(one, other)| one.iter().any(|one| other.iter().any(|other| !one.excludes(other))))
}

impl Form {
    /// Whether the schema says nothing.
    pub fn is_free(&self) -> bool {
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
                let typical = TYPICAL.iter().find(|(_, keys)| keys.iter().any(|key| self.schema.contains_key(*key)));
                typical.is_none_or(|(of, _)| is(of))
            }
        }
    }

    fn is_nullable(&self) -> bool {
        self.schema.get("nullable") == Some(&Value::Bool(true))
    }

    /// The values that `enum` or `const` lists, before other keywords rule some of them out.
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

    /// The schema of values that fit both.
    fn and(&self, other: &Self) -> Result<Self, String> {
        let mut schema = self.schema.clone();
        if self.closes(other) || other.closes(self) {
            return Err(
                "combines `additionalProperties` with properties of another schema, which no grammar can hold to"
                    .into(),
            );
        }
        for (key, value) in &other.schema {
            let together = match (key.as_str(), schema.get(key)) {
                (_, None) => value.clone(),
                (_, Some(present)) if present == value => continue,
                ("required", Some(Value::Array(names))) => {
                    let more = value.as_array().into_iter().flatten();
                    names.iter().chain(more.filter(|name| !names.contains(name))).cloned().collect()
                }
                ("properties", Some(Value::Object(fields))) => {
                    let more = value.as_object().cloned().unwrap_or_default();
                    if let Some(name) = more.keys().find(|name| fields.contains_key(*name)) {
                        return Err(format!("describes the property `{name}` twice, which no grammar can hold to"));
                    }
                    fields.clone().into_iter().chain(more).collect::<Map<_, _>>().into()
                }
                _ => return Err(format!("has `{key}` twice for one value, which no grammar can hold to")),
            };
            schema.insert(key.clone(), together);
        }
        Ok(Self { schema })
    }

    /// Whether this schema rules on properties that the other one describes.
    fn closes(&self, other: &Self) -> bool {
        let open = self.schema.get("additionalProperties").unwrap_or(&Value::Bool(true));
        *open != true && other.properties().keys().any(|name| !self.properties().contains_key(name))
    }

    /// Whether no value fits both, as far as types and constant fields of objects tell.
    fn excludes(&self, other: &Self) -> bool {
        if let (Some(one), Some(other)) = (self.values(), other.values()) {
            return !one.iter().any(|value| other.iter().any(|other| schema::equal(value, other)));
        }
        let types = ["string", "integer", "number", "boolean", "null", "array", "object"];
        let common: Vec<&str> = types.into_iter().filter(|name| self.stated(name) && other.stated(name)).collect();
        common.is_empty() || common == ["object"] && self.tags_differ(other)
    }

    /// Whether `type` allows this type; keywords alone do not rule out the others.
    fn stated(&self, name: &str) -> bool {
        match self.values() {
            Some(values) => values.iter().any(|value| Self::is_of_type(value, name)),
            None => !self.schema.contains_key("type") || self.allows(name),
        }
    }

    fn is_of_type(value: &Value, name: &str) -> bool {
        schema::check(&Value::from_iter([("type", name)]), value).is_ok()
    }

    /// Whether a property that both require has other values in one than in the other.
    fn tags_differ(&self, other: &Self) -> bool {
        let (fields, others) = (self.properties(), other.properties());
        let required = self.required();
        let shared = required.into_iter().filter(|name| other.required().contains(name));
        shared.filter_map(|name| Some((fields.get(name)?, others.get(name)?))).any(|(one, other)| {
            let form = |schema: &Value| Some(Form { schema: schema.as_object()?.clone() });
            let (Some(one), Some(other)) = (form(one), form(other)) else { return false };
            one.values().is_some() && other.values().is_some() && one.excludes(&other)
        })
    }
}
