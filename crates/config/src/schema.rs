//! The JSON Schema of the file.

use serde_json::{Map, Value, json};

use super::config::Config;
use super::file;
use super::map_routes::can_be_of_map;
use super::script::keys::{EVERY_KIND, KEYS};

impl Config {
    /// Returns the JSON Schema of the file.
    pub fn schema() -> Value {
        let mut schema = schema();
        split_script(&mut schema["$defs"]);
        allow_maps(&mut schema["$defs"]);
        schema
    }

    /// Returns the same with one definition for scripts of all kinds.
    pub fn schema_of_all_kinds() -> Value {
        schema()
    }
}

/// Returns the schema as JSON.
pub(crate) fn schema() -> Value {
    let mut schema = schemars::schema_for!(file::File).to_value();
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("$id".into(), "urn:dunlin:configuration".into());
        schema.insert("title".into(), "Dunlin configuration".into());
    }
    schema
}

/// Permits values that name a map, such as `"{map.time}"`, for each key that can be a route's, whatever else the key has.
fn allow_maps(definitions: &mut Value) {
    let map = json!({ "type": "string", "pattern": r"^\{map\.[^}]+\}$" });
    for table in ["Site", "Route"] {
        let properties = definitions[table]["properties"].as_object_mut().into_iter().flatten();
        for (_, property) in properties.filter(|(key, _)| can_be_of_map(key)) {
            let mut own = property.take();
            let description = own.as_object_mut().and_then(|own| own.remove("description"));
            *property = json!({ "anyOf": [own, map] });
            if let Some(description) = description {
                property["description"] = description;
            }
        }
    }
}

/// Replaces the definition of the table `script` by one for each kind, so that an editor offers the keys of the kind only.
fn split_script(definitions: &mut Value) {
    let whole = definitions["ScriptTable"].take();
    let kinds: Vec<_> = EVERY_KIND
        .iter()
        .map(|kind| {
            let names = KEYS.iter().filter(|key| key.fits(*kind)).map(|key| key.name);
            let mut properties: Map<_, _> = names
                .map(|name| {
                    (
                        name.into(),
                        json!({ "$ref": format!("#/$defs/ScriptKeys/properties/{name}") }),
                    )
                })
                .collect();
            properties.insert("kind".into(), json!({ "const": kind.as_str() }));
            json!({
                "title": kind.as_str(),
                "type": "object",
                "properties": properties,
                "required": ["kind"],
                "additionalProperties": false,
            })
        })
        .collect();
    definitions["ScriptTable"] = json!({ "description": whole["description"], "oneOf": kinds });
    definitions["ScriptKeys"] = whole;
}
