//! Sizes and times of nginx in the units of Dunlin.

/// Returns a size in bytes: `10m`, `512k`, `1g`.
pub(crate) fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    let factor = match &text[digits.len()..] {
        "" => 1,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(factor).filter(|bytes| *bytes < 1 << 53)
}

/// Returns the largest unit in which a size is a whole number.
pub(crate) fn shown_size(bytes: u64) -> String {
    let units = [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => format!("{bytes}B"),
    }
}

/// Returns a time in milliseconds: `30`, `30s`, `1h30m`, `500ms`, `1M`.
pub(crate) fn time(text: &str) -> Option<u64> {
    let mut total = 0_u64;
    let mut rest = text;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number: u64 = rest[..end].parse().ok()?;
        let unit = &rest[end..];
        let unit = &unit[..unit.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit.len())];
        let factor = match unit {
            "ms" => 1,
            "" | "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 7 * 86_400_000,
            "M" => 30 * 86_400_000,
            "y" => 365 * 86_400_000,
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(factor)?)?;
        rest = rest[end + unit.len()..].trim_start();
    }
    // The longest time of Dunlin is a thousand million seconds.
    (total <= 1_000_000_000_000).then_some(total)
}

/// Returns the largest unit in which a time is a whole number.
pub(crate) fn shown_time(milliseconds: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    match units
        .into_iter()
        .find(|(unit, _)| milliseconds >= *unit && milliseconds.is_multiple_of(*unit))
    {
        Some((unit, name)) => format!("{}{name}", milliseconds / unit),
        None if milliseconds == 0 => "0s".to_owned(),
        None => format!("{milliseconds}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_keep_their_value() {
        assert_eq!(size("10m").map(shown_size).as_deref(), Some("10MiB"));
        assert_eq!(size("1500").map(shown_size).as_deref(), Some("1500B"));
        assert_eq!(size("1x"), None);
        for (text, shown) in
            [("30", "30s"), ("1h30m", "90m"), ("1M", "30d"), ("500ms", "500ms"), ("0", "0s")]
        {
            assert_eq!(time(text).map(shown_time).as_deref(), Some(shown), "{text}");
        }
        assert_eq!(time("x"), None);
    }
}
