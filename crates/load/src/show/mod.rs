//! Output formats of an outcome.

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

/// Formats the complete outcome as JSON.
#[must_use]
pub fn json(outcome: &Outcome) -> String {
    // Cannot fail: all keys are strings or numbers, and all values have a JSON form.
    let text = serde_json::to_string_pretty(outcome);
    text.unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}")) + "\n"
}

/// The JSON Schema of [`json`].
#[must_use]
pub fn schema() -> String {
    let schema = schemars::schema_for!(Outcome);
    serde_json::to_string_pretty(&schema).unwrap_or_default() + "\n"
}
