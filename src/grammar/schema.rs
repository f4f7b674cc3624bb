//! Schemas of types in which objects have no fields but the type's: serde reads no others, and a model may go on with them for
//! ever.
//!
//! Where a type puts objects together (`serde(flatten)`, a tag beside a variant's fields), its schema has each one's fields
//! in a place of their own, and to close one of them would forbid the others'. Such an object is put together here.

use schemars::{
    JsonSchema, Schema,
    generate::SchemaSettings,
    transform::{Transform, transform_subschemas},
};
use serde_json::{Map, Value, json};

type Object = Map<String, Value>;

/// The most forms that one object may come to have.
const MAX_FORMS: usize = 256;

/// How deep the parts of one object may nest.
const MAX_DEPTH: usize = 16;

/// Returns the schema of a type, with the rules that serde adds to it. An object whose parts cannot
/// be put together stays in parts, and the grammar refuses it by name.
pub(crate) fn closed_schema_of<T: JsonSchema>() -> Value {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    let root = schema.as_value().clone();
    let mut close = |schema: &mut Schema| {
        let composed = schema.as_object().filter(|object| is_composed(object));
        let whole = composed.and_then(|object| Some((forms(object, &root, MAX_DEPTH)?, object.get("$defs").cloned())));
        if let Some((forms, definitions)) = whole {
            *schema = any_of(forms, definitions);
        }
        close_object(schema);
        fit_serde(schema);
    };
    Walk(&mut close).transform(&mut schema);
    schema.into()
}

/// Calls a function for a schema and then for all within what it has become.
struct Walk<'a>(&'a mut dyn FnMut(&mut Schema));

impl Transform for Walk<'_> {
    fn transform(&mut self, schema: &mut Schema) {
        (self.0)(schema);
        transform_subschemas(self, schema);
    }
}

fn close_object(schema: &mut Schema) {
    // serde(deny_unknown_fields) beside serde(flatten).
    schema.remove("unevaluatedProperties");
    let is_object = schema.get("type").is_some_and(|name| name == "object") || schema.get("properties").is_some();
    if is_object && schema.get("additionalProperties").is_none() && schema.get("patternProperties").is_none() {
        schema.insert("additionalProperties".into(), false.into());
    }
}

/// The field that holds nanoseconds beside whole seconds, in the schemas of `Duration` and
/// `SystemTime`.
const TIMES: [(&str, &str); 2] = [("secs", "nanos"), ("secs_since_epoch", "nanos_since_epoch")];

/// The last second of the year 9999: not every system has a later `SystemTime`.
const LAST_SECOND: u64 = 253_402_300_799;

/// Writes into a schema what serde does beyond it.
fn fit_serde(schema: &mut Schema) {
    // A set merges its duplicates.
    if schema.get("uniqueItems").is_some_and(Value::is_boolean) {
        schema.remove("uniqueItems");
    }
    // Each variant of an enum can be read, also where a text is valid by two of them.
    if let (Some(variants), None) = (schema.get("oneOf").cloned(), schema.get("anyOf")) {
        schema.remove("oneOf");
        schema.insert("anyOf".into(), variants);
    }
    let unsigned = |bits: u8| json!({ "type": "integer", "format": format!("uint{bits}"), "minimum": 0 });
    for (seconds, nanos) in TIMES {
        let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) else { continue };
        if fields.len() == 2 && fields.get(seconds) == Some(&unsigned(64)) && fields.get(nanos) == Some(&unsigned(32)) {
            fields[nanos]["maximum"] = 999_999_999.into();
            if seconds == "secs_since_epoch" {
                fields[seconds]["maximum"] = LAST_SECOND.into();
            }
        }
    }
}

const PARTS: [&str; 4] = ["$ref", "allOf", "anyOf", "oneOf"];

/// What says nothing about a value.
const NOTES: [&str; 5] = ["$schema", "$defs", "title", "description", "unevaluatedProperties"];

/// Whether an object's fields are in several schemas.
fn is_composed(object: &Object) -> bool {
    let parts = PARTS.iter().filter(|part| object.contains_key(**part)).count();
    object.contains_key("allOf") || parts > 1 || parts > 0 && object.contains_key("properties")
}

/// All that an object may be, each as one schema; `None` where its parts cannot be put together.
fn forms(object: &Object, root: &Value, depth: usize) -> Option<Vec<Object>> {
    let depth = depth.checked_sub(1)?;
    let own = object.iter().filter(|(key, _)| !PARTS.iter().chain(&NOTES).any(|other| other == key));
    let mut forms_so_far = vec![own.map(|(key, value)| (key.clone(), value.clone())).collect::<Object>()];
    let forms_of = |schema: &Value| forms(schema.as_object()?, root, depth);
    for (key, part) in object.iter().filter(|(key, _)| PARTS.contains(&key.as_str())) {
        let choices: Vec<Vec<Object>> = match key.as_str() {
            "$ref" => vec![forms_of(root.pointer(part.as_str()?.strip_prefix('#')?)?)?],
            "allOf" => part.as_array()?.iter().map(forms_of).collect::<Option<_>>()?,
            _ => vec![part.as_array()?.iter().map(forms_of).collect::<Option<Vec<_>>>()?.concat()],
        };
        for choices in choices {
            let pairs = forms_so_far.iter().flat_map(|form| choices.iter().map(move |choice| (form, choice)));
            forms_so_far = pairs.map(|(form, choice)| together(form, choice)).collect::<Option<_>>()?;
            if forms_so_far.len() > MAX_FORMS {
                return None;
            }
        }
    }
    Some(forms_so_far)
}

/// An object with the fields of both.
fn together(one: &Object, other: &Object) -> Option<Object> {
    let mut both = one.clone();
    for (key, value) in other {
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
            // A flattened map takes the entries that no other part has.
            ("additionalProperties", Some(present @ Value::Bool(false)), value) => *present = value.clone(),
            ("additionalProperties", Some(_), Value::Bool(false)) => {}
            _ => return None,
        }
    }
    (both.get("type")?.as_str()? == "object").then_some(both)
}

/// One of these objects, with the definitions that stood where it stands.
fn any_of(forms: Vec<Object>, definitions: Option<Value>) -> Schema {
    let mut schema = match <[Object; 1]>::try_from(forms) {
        Ok([form]) => Schema::from(form),
        Err(forms) => schemars::json_schema!({ "anyOf": forms }),
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

    /// The forms in which serde reads these types.
    #[test]
    fn parts_of_an_object_come_together() {
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
    fn what_leaves_room_by_itself_keeps_it() {
        let schema = plain(closed_schema_of::<Named>());
        assert_eq!(schema["additionalProperties"], json!({ "type": "boolean" }));
    }

    /// Without what tells people and generators of code about it.
    fn plain(mut schema: Value) -> Value {
        schema.as_object_mut().unwrap().retain(|key, _| !["$schema", "title"].contains(&key.as_str()));
        schema
    }
}
