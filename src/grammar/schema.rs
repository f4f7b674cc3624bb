//! Returns the schemas of Rust types with closed objects: objects without additional properties,
//! which serde does not read, and which a model may continue for ever.
//!
//! If a type composes an object (`serde(flatten)`, or a tag next to a variant's fields), its schema
//! lists the fields in several subschemas, and closing one of them would forbid the fields of the
//! rest. Such subschemas are merged first.

use schemars::{
    JsonSchema, Schema,
    generate::SchemaSettings,
    transform::{Transform, transform_subschemas},
};
use serde_json::{Value, json};

use super::JsonObject;

/// The largest number of alternatives of one object.
const MAX_ALTERNATIVES: usize = 256;

/// The deepest nesting of subschemas of one object.
const MAX_DEPTH: usize = 16;

/// Returns the schema of a type with the rules that serde adds to it. Subschemas that cannot be
/// merged stay separate, and compiling the grammar fails with their name.
pub(crate) fn closed_schema_of<T: JsonSchema>() -> Value {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    let root = schema.as_value().clone();
    let mut close = |schema: &mut Schema| {
        let composed = schema.as_object().filter(|object| is_composed(object));
        let merged =
            composed.and_then(|object| Some((alternatives(object, &root, MAX_DEPTH)?, object.get("$defs").cloned())));
        if let Some((alternatives, definitions)) = merged {
            *schema = any_of(alternatives, definitions);
        }
        close_object(schema);
        fit_serde(schema);
    };
    EachSchema(&mut close).transform(&mut schema);
    schema.into()
}

/// Calls a function for a schema, and then for the subschemas of the result.
struct EachSchema<'a>(&'a mut dyn FnMut(&mut Schema));

impl Transform for EachSchema<'_> {
    fn transform(&mut self, schema: &mut Schema) {
        (self.0)(schema);
        transform_subschemas(self, schema);
    }
}

fn close_object(schema: &mut Schema) {
    // schemars writes it for `serde(deny_unknown_fields)` with `serde(flatten)`.
    schema.remove("unevaluatedProperties");
    let is_object = schema.get("type").is_some_and(|name| name == "object") || schema.get("properties").is_some();
    if is_object && schema.get("additionalProperties").is_none() && schema.get("patternProperties").is_none() {
        schema.insert("additionalProperties".into(), false.into());
    }
}

/// The fields of seconds and nanoseconds in the schemas of `Duration` and `SystemTime`.
const TIME_FIELDS: [(&str, &str); 2] = [("secs", "nanos"), ("secs_since_epoch", "nanos_since_epoch")];

/// The last second of the year 9999; some systems have no later `SystemTime`.
const LAST_SECOND: u64 = 253_402_300_799;

/// Adapts a schema to the behavior of serde.
fn fit_serde(schema: &mut Schema) {
    // serde merges the duplicates of a set.
    if schema.get("uniqueItems").is_some_and(Value::is_boolean) {
        schema.remove("uniqueItems");
    }
    // serde reads a text even if it is valid for two variants of an enum.
    if let (Some(variants), None) = (schema.get("oneOf").cloned(), schema.get("anyOf")) {
        schema.remove("oneOf");
        schema.insert("anyOf".into(), variants);
    }
    let unsigned = |bits: u8| json!({ "type": "integer", "format": format!("uint{bits}"), "minimum": 0 });
    for (seconds, nanos) in TIME_FIELDS {
        let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) else { continue };
        if fields.len() == 2 && fields.get(seconds) == Some(&unsigned(64)) && fields.get(nanos) == Some(&unsigned(32)) {
            fields[nanos]["maximum"] = 999_999_999.into();
            if seconds == "secs_since_epoch" {
                fields[seconds]["maximum"] = LAST_SECOND.into();
            }
        }
    }
}

/// Keywords with subschemas for the same value.
const COMBINATORS: [&str; 4] = ["$ref", "allOf", "anyOf", "oneOf"];

/// Keywords that do not restrict a composed object.
const ANNOTATIONS: [&str; 5] = ["$schema", "$defs", "title", "description", "unevaluatedProperties"];

/// Returns whether an object's fields are in several subschemas.
fn is_composed(object: &JsonObject) -> bool {
    let parts = COMBINATORS.iter().filter(|part| object.contains_key(**part)).count();
    object.contains_key("allOf") || parts > 1 || parts > 0 && object.contains_key("properties")
}

/// Returns the alternatives of an object, each merged into one schema; `None` if they cannot be
/// merged.
fn alternatives(object: &JsonObject, root: &Value, depth: usize) -> Option<Vec<JsonObject>> {
    let depth = depth.checked_sub(1)?;
    let own = object.iter().filter(|(key, _)| !COMBINATORS.iter().chain(&ANNOTATIONS).any(|name| name == key));
    let mut merged = vec![own.map(|(key, value)| (key.clone(), value.clone())).collect::<JsonObject>()];
    let alternatives_of = |schema: &Value| alternatives(schema.as_object()?, root, depth);
    for (key, part) in object.iter().filter(|(key, _)| COMBINATORS.contains(&key.as_str())) {
        let choices: Vec<Vec<JsonObject>> = match key.as_str() {
            "$ref" => vec![alternatives_of(root.pointer(part.as_str()?.strip_prefix('#')?)?)?],
            "allOf" => part.as_array()?.iter().map(alternatives_of).collect::<Option<_>>()?,
            _ => vec![part.as_array()?.iter().map(alternatives_of).collect::<Option<Vec<_>>>()?.concat()],
        };
        for choices in choices {
            let pairs = merged.iter().flat_map(|object| choices.iter().map(move |choice| (object, choice)));
            merged = pairs.map(|(object, choice)| merge(object, choice)).collect::<Option<_>>()?;
            if merged.len() > MAX_ALTERNATIVES {
                return None;
            }
        }
    }
    Some(merged)
}

/// Returns an object with the fields of both; `None` if a field or keyword conflicts.
fn merge(left: &JsonObject, right: &JsonObject) -> Option<JsonObject> {
    let mut both = left.clone();
    for (key, value) in right {
        match (key.as_str(), both.get_mut(key), value) {
            ("properties", Some(Value::Object(fields)), Value::Object(more)) => {
                if more.keys().any(|name| fields.contains_key(name)) {
                    return None;
                }
                fields.extend(more.clone());
            }
            ("required", Some(Value::Array(names)), Value::Array(more)) => names.extend(more.iter().cloned()),
            ("type" | "properties" | "required" | "additionalProperties", None, _) => {
                both.insert(key.clone(), value.clone());
            }
            ("type" | "additionalProperties", Some(present), value) if present == value => {}
            // A flattened map takes the entries of no other field.
            ("additionalProperties", Some(present @ Value::Bool(false)), value) => *present = value.clone(),
            ("additionalProperties", Some(_), Value::Bool(false)) => {}
            _ => return None,
        }
    }
    (both.get("type")?.as_str()? == "object").then_some(both)
}

/// Returns the schema of the alternatives, with the definitions of the original schema.
fn any_of(alternatives: Vec<JsonObject>, definitions: Option<Value>) -> Schema {
    let mut schema = match <[JsonObject; 1]>::try_from(alternatives) {
        Ok([object]) => Schema::from(object),
        Err(alternatives) => schemars::json_schema!({ "anyOf": alternatives }),
    };
    if let Some(definitions) = definitions {
        schema.insert("$defs".into(), definitions);
    }
    schema
}

#[cfg(test)]
mod tests {
    #![allow(dead_code, reason = "schemars reads the fields")]

    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize, JsonSchema)]
    struct Day {
        sunny: bool,
        #[serde(flatten)]
        event: Event,
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(tag = "kind")]
    enum Event {
        Meeting(Meeting),
        Rest,
    }

    #[derive(Deserialize, JsonSchema)]
    struct Meeting {
        late: Option<bool>,
        then: Option<Box<Meeting>>,
    }

    #[derive(Deserialize, JsonSchema)]
    struct Perhaps {
        sunny: bool,
        #[serde(flatten)]
        event: Option<Event>,
    }

    #[derive(Deserialize, JsonSchema)]
    struct Named {
        sunny: bool,
        #[serde(flatten)]
        rest: std::collections::BTreeMap<String, bool>,
    }

    /// The expected schemas follow serde's documentation of the attributes.
    #[test]
    fn flattened_fields_and_tags_are_merged_into_one_object() {
        let then = json!({ "anyOf": [{ "$ref": "#/$defs/Meeting" }, { "type": "null" }] });
        let late = json!({ "type": ["boolean", "null"] });
        let sunny = json!({ "type": "boolean" });
        let tag = |name: &str| json!({ "type": "string", "const": name });
        let object = |properties: Value, required: &[&str]| json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
        let meeting =
            json!({ "type": "object", "properties": { "late": late, "then": then }, "additionalProperties": false });
        let meets = json!({ "sunny": sunny, "kind": tag("Meeting"), "late": late, "then": then });
        let forms = [
            object(meets, &["sunny", "kind"]),
            object(json!({ "sunny": sunny, "kind": tag("Rest") }), &["sunny", "kind"]),
        ];
        assert_eq!(plain(closed_schema_of::<Day>()), json!({ "anyOf": forms, "$defs": { "Meeting": meeting } }));
        let alone = [object(json!({ "sunny": sunny }), &["sunny"])];
        let forms = [forms.as_slice(), &alone].concat();
        assert_eq!(plain(closed_schema_of::<Perhaps>()), json!({ "anyOf": forms, "$defs": { "Meeting": meeting } }));
    }

    #[test]
    fn flattened_maps_keep_additional_properties() {
        let schema = plain(closed_schema_of::<Named>());
        assert_eq!(schema["additionalProperties"], json!({ "type": "boolean" }));
    }

    /// Returns a schema without annotations.
    fn plain(mut schema: Value) -> Value {
        schema.as_object_mut().unwrap().retain(|key, _| !["$schema", "title"].contains(&key.as_str()));
        schema
    }
}
