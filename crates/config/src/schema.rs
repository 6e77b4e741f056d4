//! The JSON Schema of the file.

use super::config::Config;
use super::file;

impl Config {
    /// The JSON Schema of the file.
    pub fn schema() -> String {
        serde_json::to_string_pretty(&schema()).unwrap_or_default()
    }
}

/// Returns the schema as JSON.
pub(crate) fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(file::File).to_value();
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("$id".into(), "urn:dunlin:configuration".into());
        schema.insert("title".into(), "Dunlin configuration".into());
    }
    schema
}
