//! An outcome as people and programs read it.

mod csv;
mod live;
mod plan;
mod text;

pub use csv::{csv, csv_series};
pub use live::Live;
pub use plan::plan;
pub(crate) use text::failures;
pub use text::text;

use crate::outcome::Outcome;

/// All of it, as JSON.
#[must_use]
pub fn json(outcome: &Outcome) -> String {
    // Maps have keys that are strings or numbers and no value is foreign to JSON.
    let text = serde_json::to_string_pretty(outcome);
    text.unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}")) + "\n"
}

/// The JSON Schema of [`json`].
#[must_use]
pub fn schema() -> String {
    let schema = schemars::schema_for!(Outcome);
    serde_json::to_string_pretty(&schema).unwrap_or_default() + "\n"
}
