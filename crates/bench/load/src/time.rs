//! Formatting and parsing of dates and durations.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dunlin_http::semantics::date::{civil_from_days, days_from_civil};

/// Parses a duration such as `10s`, `500ms` or `1h30m`, in seconds. A number without a unit is in seconds.
///
/// # Errors
/// It is not a duration.
pub fn seconds(text: &str) -> Result<f64, String> {
    let is_unit = |c: char| c.is_ascii_alphabetic() || c == 'µ';
    let mut rest = text;
    let (mut sum, mut parts) = (0.0, 0);
    while !rest.is_empty() || parts == 0 {
        let unit = rest.find(is_unit).unwrap_or(rest.len());
        let length = rest[unit..].find(|c| !is_unit(c)).unwrap_or(rest.len() - unit);
        let (part, more) = rest.split_at(unit + length);
        sum += part_seconds(part, unit, parts > 0)?;
        rest = more;
        parts += 1;
    }
    Ok(sum)
}

/// Parses a number and the unit that begins at `split`.
fn part_seconds(text: &str, split: usize, needs_unit: bool) -> Result<f64, String> {
    let wrong = || "is not a time such as 10s or 500ms".to_owned();
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "" if needs_unit => return Err(wrong()),
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" => 1e-6,
        "ns" => 1e-9,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    match number.trim().parse::<f64>() {
        Ok(number) if number >= 0.0 && number.is_finite() => Ok(number * scale),
        _ => Err(wrong()),
    }
}

/// Formats a time in RFC 3339, UTC, with seconds.
#[must_use]
pub fn rfc3339(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil_from_days(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        rest / 3600,
        rest / 60 % 60,
        rest % 60
    )
}

/// Formats a time in RFC 3339, UTC, with milliseconds.
#[must_use]
pub fn rfc3339_millis(time: SystemTime) -> String {
    let millis = time.duration_since(UNIX_EPOCH).unwrap_or_default().subsec_millis();
    let whole = rfc3339(time);
    format!("{}.{millis:03}Z", whole.trim_end_matches('Z'))
}

/// Parses the format of [`rfc3339`] and [`rfc3339_millis`].
#[must_use]
pub fn from_rfc3339(text: &str) -> Option<SystemTime> {
    Some(UNIX_EPOCH + Duration::from_nanos(nanos_of(text.strip_suffix('Z')?)?))
}

/// Nanoseconds since 1970 of a date and time in UTC: RFC 3339 without the zone.
pub(crate) fn nanos_of(text: &str) -> Option<u64> {
    let (date, clock) = text.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let nanos = format!("{fraction:0<9}").get(..9)?.parse::<u64>().ok()?;
    Some(instant(year, month, day, clock)? + nanos)
}

/// Nanoseconds since 1970 of a day and `hour:minute:second`.
pub(crate) fn instant(year: u64, month: u64, day: u64, clock: &str) -> Option<u64> {
    if !(1970..=2500).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let mut parts = clock.splitn(3, ':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    (hour < 24 && minute < 60 && second <= 60).then_some(seconds * 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, value) in [
            ("10s", 10.0),
            ("500ms", 0.5),
            ("2m", 120.0),
            ("1.5", 1.5),
            ("1h", 3600.0),
            ("1h30m", 5400.0),
            ("1m0.5s", 60.5),
            ("0s", 0.0),
        ] {
            assert_eq!(seconds(text), Ok(value));
        }
        for text in ["", "s", "ten", "-1s", "1e400s", "5 parsecs", "1h30", "1h-5m"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn dates_round_trip_across_leap_days() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_102_444_800, "2100-01-01T00:00:00Z"),
        ] {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(rfc3339(time), text);
            assert_eq!(from_rfc3339(text), Some(time));
            let later = time + Duration::from_millis(7);
            assert_eq!(from_rfc3339(&rfc3339_millis(later)), Some(later));
        }
    }

    #[test]
    fn invalid_dates_are_rejected() {
        for text in [
            "",
            "2024-01-01",
            "2024-13-01T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:00:NaNZ",
        ] {
            assert_eq!(from_rfc3339(text), None, "{text}");
        }
    }
}
