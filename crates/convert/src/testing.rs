//! What the tests of all conversions check.

use crate::Conversion;

#[track_caller]
pub(crate) fn has(converted: &Conversion, expected: &[&str]) {
    for line in expected {
        assert!(converted.toml.contains(line), "no {line}\n{}", converted.toml);
    }
}

#[track_caller]
pub(crate) fn loses_nothing(converted: &Conversion) {
    let losses: Vec<String> = converted.report.losses().map(ToString::to_string).collect();
    assert!(losses.is_empty(), "{losses:#?}\n{}", converted.toml);
}
