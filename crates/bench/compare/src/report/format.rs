//! Formatting of figures.

use dunlin_load::units::{scale_bytes, thousands};

use crate::statistics::Estimate;

/// Formats a value in its unit with three significant digits.
pub(crate) fn value(value: f64, unit: &str) -> String {
    match unit {
        "bytes" => bytes(value),
        "bytes/s" => format!("{}/s", bytes(value)),
        _ => number(value),
    }
}

/// Returns the unit in a heading. Empty for units that values show themselves.
pub(super) fn unit(unit: &str) -> String {
    if unit.is_empty() || unit.starts_with("bytes") { String::new() } else { format!(" ({unit})") }
}

/// Returns the unit after a value. Empty for units that values show themselves.
pub(crate) fn unit_after(unit: &str) -> String {
    match unit {
        "" | "bytes" | "bytes/s" => String::new(),
        unit if unit.starts_with('/') => unit.to_owned(),
        unit => format!(" {unit}"),
    }
}

fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size >= 1000.0 => thousands(&format!("{value:.0}")),
        _ if size >= 100.0 => format!("{value:.0}"),
        _ if size >= 10.0 => format!("{value:.1}"),
        _ if size >= 1.0 => format!("{value:.2}"),
        _ if size == 0.0 => "0".to_owned(),
        _ => format!("{value:.3}"),
    }
}

fn bytes(value: f64) -> String {
    let (value, unit) = scale_bytes(value);
    format!("{} {unit}", number(value))
}

/// Formats the interval of an estimate from the rounds that count of `run` rounds.
pub(super) fn interval(estimate: &Estimate, run: usize, unit: &str) -> String {
    let interval = format!("{} – {}", value(estimate.low, unit), value(estimate.high, unit));
    match estimate.count {
        1 if run == 1 => "one round".to_owned(),
        1 => format!("one of {run} rounds"),
        count if count < run => format!("{interval}, {count} of {run} rounds"),
        _ => interval,
    }
}
