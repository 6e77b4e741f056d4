//! From JSON to values, guided by their types, without a tree of JSON in between.

mod place;
mod visitors;

use std::fmt;

use serde::Deserializer as _;
use wasmtime::component::Val;

use self::place::Progress;
use self::visitors::Fields;
use crate::types::Record;

/// Parameters that do not fit the types of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The place of the error, as JSON Pointer (RFC 6901). Empty for the whole text.
    pub pointer: String,
    /// Why: what is expected and what was found, or where the text is not valid JSON. At most a few hundred bytes.
    pub reason: String,
}

impl Invalid {
    /// Returns the content of a response with status 400, of type `application/problem+json` (RFC 9457), with the member
    /// `pointer`.
    pub fn problem(&self) -> Vec<u8> {
        let problem = serde_json::json!({
            "title": "Invalid parameters",
            "status": 400,
            "detail": self.reason,
            "pointer": self.pointer,
        });
        problem.to_string().into_bytes()
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pointer.as_str() {
            "" => f.write_str(&self.reason),
            pointer => write!(f, "{pointer}: {}", self.reason),
        }
    }
}

impl std::error::Error for Invalid {}

/// Returns the values of `fields` from a JSON object, in the order of their declaration. An empty text is an empty object.
pub(crate) fn parameters(fields: &Record, json: &[u8]) -> Result<Vec<Val>, Invalid> {
    let json = if json.trim_ascii().is_empty() { b"{}" } else { json };
    let progress = Progress::new(json.len());
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    deserializer
        .deserialize_any(Fields { record: fields, progress: &progress })
        .and_then(|values| deserializer.end().map(|()| values))
        .map_err(|error| progress.invalid(&error))
}
