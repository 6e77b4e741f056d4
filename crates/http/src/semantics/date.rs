//! Dates in fields (RFC 9110 §5.6.7).

use std::time::{SystemTime, UNIX_EPOCH};

/// The last second that the format can represent: the end of the year 9999.
const LAST: u64 = 253_402_300_799;

/// The names of the months.
pub const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Formats seconds since 1970 as IMF-fixdate. Times after the year 9999 become its last second.
pub fn format(unix_seconds: u64) -> [u8; 29] {
    const DAYS: &[u8; 21] = b"ThuFriSatSunMonTueWed";
    let seconds = unix_seconds.min(LAST);
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil_from_days(days);
    let mut text = *b"ddd, 00 mmm 0000 00:00:00 GMT";
    let name = |table: &'static [u8], at: u64| &table[at as usize * 3..at as usize * 3 + 3];
    text[..3].copy_from_slice(name(DAYS, days % 7));
    text[8..11].copy_from_slice(MONTHS[month as usize - 1].as_bytes());
    let pairs = [(5, day), (12, year / 100), (14, year % 100)];
    let times = [(17, of_day / 3600), (20, of_day / 60 % 60), (23, of_day % 60)];
    for (at, value) in pairs.into_iter().chain(times) {
        text[at] += (value / 10) as u8;
        text[at + 1] += (value % 10) as u8;
    }
    text
}

/// Parses a date in any of the three formats to seconds since 1970; `None` if malformed.
pub fn parse(text: &[u8]) -> Option<u64> {
    let time: SystemTime = httpdate::parse_http_date(std::str::from_utf8(text).ok()?).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

/// Converts days since 1970-01-01 to year, month (1 to 12) and day (1 to 31).
///
/// Computes with years that begin in March, so that the leap day is the last one of its year.
#[must_use]
pub fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // since 0000-03-01
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

/// Converts year (from 1970 on), month (1 to 12) and day (1 to 31) to days since 1970-01-01: the inverse of
/// [`civil_from_days`].
#[must_use]
pub fn days_from_civil(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let (era, of_era) = (year / 400, year % 400);
    let from_march = (month + 9) % 12;
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    let days = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    (era * 146_097 + days).saturating_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_formats_are_read_and_one_is_written() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(parse(text.as_bytes()), Some(784_111_777), "{text}");
        }
        assert_eq!(&format(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        for second in (0..LAST).step_by(100_003 * 601) {
            let expected = UNIX_EPOCH + std::time::Duration::from_secs(second);
            let expected = httpdate::HttpDate::from(expected).to_string();
            assert_eq!(&format(second)[..], expected.as_bytes());
        }
        assert_eq!(&format(u64::MAX)[..], b"Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(parse(b"yesterday"), None);
    }

    #[test]
    fn each_day_follows_the_one_before() {
        let mut before = civil_from_days(0);
        for days in 1..200_000 {
            let today = civil_from_days(days);
            let (year, month, day) = before;
            let next = [(year, month, day + 1), (year, month + 1, 1), (year + 1, 1, 1)];
            assert!(next.contains(&today), "{before:?} then {today:?}");
            assert!(today.1 <= 12 && today.2 <= 31);
            assert_eq!(days_from_civil(today.0, today.1, today.2), days);
            before = today;
        }
    }
}
