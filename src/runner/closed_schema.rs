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
use serde_json::{Map, Value};

type Object = Map<String, Value>;

/// The most forms that one object may come to have.
const MAX_FORMS: usize = 256;

/// How deep the parts of one object may nest.
const MAX_DEPTH: usize = 16;

/// The schema of a type. Its objects are open where one is put together in a way that is not known here.
pub(super) fn closed_schema_of<T: JsonSchema>() -> Value {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    let root = schema.as_value().clone();
    let (mut closed, mut understood) = (schema.clone(), true);
    let mut close = |schema: &mut Schema| {
        if let Some(object) = schema.as_object().filter(|object| is_composed(object)) {
            match forms(object, &root, MAX_DEPTH) {
                Some(forms) => *schema = any_of(forms, object.get("$defs").cloned()),
                None => understood = false,
            }
        }
        close_object(schema);
    };
    Walk(&mut close).transform(&mut closed);
    if understood { closed.into() } else { schema.into() }
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
    if schema.get("properties").is_some() && schema.get("additionalProperties").is_none() {
        schema.insert("additionalProperties".into(), false.into());
    }
}

const PARTS: [&str; 4] = ["$ref", "allOf", "anyOf", "oneOf"];

/// What says nothing about a value.
const NOTES: [&str; 4] = ["$schema", "$defs", "title", "description"];

/// Whether an object's fields are in several schemas.
fn is_composed(object: &Object) -> bool {
    let parts = PARTS.iter().filter(|part| object.contains_key(**part)).count();
    object.contains_key("allOf") || parts > 1 || parts > 0 && object.contains_key("properties")
}

/// All that an object may be, each as one schema; `None` where its parts cannot be put together.
fn forms(object: &Object, root: &Value, depth: usize) -> Option<Vec<Object>> {
    let depth = depth.checked_sub(1)?;
    let own = object.iter().filter(|(key, _)| ![PARTS, NOTES].concat().contains(&key.as_str()));
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
            ("additionalProperties", None, Value::Bool(false)) | ("type" | "properties" | "required", None, _) => {
                both.insert(key.clone(), value.clone());
            }
            ("type" | "additionalProperties", Some(present), value) if present == value => {}
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

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

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
