//! Numbers for readers.

use crate::units::scale_bytes;
pub(super) use crate::units::{count, rate as number};

/// The sign for a figure that was not measured.
pub(super) const NONE: &str = "–";

/// Formats milliseconds without their unit.
pub(super) fn milliseconds(value: f64) -> String {
    match value {
        v if v >= 1000.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.3}"),
    }
}

/// Formats bytes in decimal units: 1 MB is a million bytes.
pub(super) fn bytes(value: f64) -> String {
    match scale_bytes(value) {
        (value, "B") => format!("{value:.0} B"),
        (value, unit) => format!("{value:.1} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_for_readers() {
        assert_eq!(
            (count(1_234_567), count(12), count(123_456)),
            ("1,234,567".into(), "12".into(), "123,456".into())
        );
        assert_eq!((bytes(999.0), bytes(1_500_000.0)), ("999 B".into(), "1.5 MB".into()));
        assert_eq!(
            (milliseconds(0.1234), milliseconds(12.34), milliseconds(1234.5)),
            ("0.123".into(), "12.3".into(), "1234".into())
        );
    }
}
