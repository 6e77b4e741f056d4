//! The JSON Schema of the file.

use serde_json::Value;

use super::config::Config;
use super::file;

impl Config {
    /// Returns the JSON Schema of the file.
    pub fn schema() -> Value {
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
