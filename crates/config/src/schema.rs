//! The JSON Schema of the file.

use serde_json::{Map, Value, json};

use super::config::Config;
use super::file;
use super::script::keys::{EVERY_KIND, KEYS};

impl Config {
    /// Returns the JSON Schema of the file.
    pub fn schema() -> Value {
        let mut schema = schema();
        split_script(&mut schema["$defs"]);
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
