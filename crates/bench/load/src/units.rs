//! Parts of the text of numbers and sizes, for every report.

const BYTES: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];

/// Separates the thousands of a whole number in decimal digits, which may have a sign.
#[must_use]
pub fn thousands(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with separated thousands.
#[must_use]
pub fn count(value: u64) -> String {
    thousands(&value.to_string())
}

/// Formats a rate without its unit: a whole number from 1,000 on, and one decimal below.
#[must_use]
pub fn rate(value: f64) -> String {
    if value >= 1000.0 { count(value.round() as u64) } else { format!("{value:.1}") }
}

/// Scales a number of bytes to the decimal unit that suits it: 1 MB is a million bytes.
#[must_use]
pub fn scale_bytes(bytes: f64) -> (f64, &'static str) {
    let (mut value, mut unit) = (bytes, 0);
    while value >= 1000.0 && unit + 1 < BYTES.len() {
        value /= 1000.0;
        unit += 1;
    }
    (value, BYTES[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_separated_in_groups_of_three() {
        for (digits, text) in
            [("12", "12"), ("123456", "123,456"), ("1234567", "1,234,567"), ("-123456", "-123,456")]
        {
            assert_eq!(thousands(digits), text);
        }
    }

    #[test]
    fn bytes_are_scaled_by_powers_of_a_thousand() {
        assert_eq!(scale_bytes(999.0), (999.0, "B"));
        assert_eq!(scale_bytes(1_500_000.0), (1.5, "MB"));
        assert_eq!(scale_bytes(2e15), (2000.0, "TB"));
    }
}
