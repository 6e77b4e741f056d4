//! Output formats of an outcome.

mod csv;
mod failures;
mod histogram;
mod layout;
mod live;
mod number;
mod plan;
mod search;
mod text;

pub use csv::{csv, csv_series};
pub(crate) use failures::failures;
pub use layout::{Color, Paint, WIDTH, fill, fit};
pub use live::Live;
pub use plan::plan;
pub use text::{TextOptions, text};

use crate::outcome::Outcome;

/// Formats the complete outcome as JSON.
#[must_use]
pub fn json(outcome: &Outcome) -> String {
    // Cannot fail: all keys are strings or numbers, and all values have a JSON form.
    let text = serde_json::to_string_pretty(outcome);
    text.unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}")) + "\n"
}

/// Returns the JSON Schema of [`json`].
#[must_use]
pub fn schema() -> String {
    let schema = schemars::schema_for!(Outcome);
    serde_json::to_string_pretty(&schema).unwrap_or_default() + "\n"
}
