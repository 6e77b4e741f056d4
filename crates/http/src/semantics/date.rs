//! Dates in fields (RFC 9110 §5.6.7).

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The last second that the format can hold: the end of the year 9999.
const LAST: u64 = 253_402_300_799;

/// The IMF-fixdate of a moment in seconds since 1970. What lies after the year 9999 becomes its
/// last second.
pub fn format(unix_seconds: u64) -> [u8; 29] {
    let time = UNIX_EPOCH + Duration::from_secs(unix_seconds.min(LAST));
    let mut text = [b' '; 29];
    // 29 bytes always hold it: the format has a fixed width.
    let _ = write!(text.as_mut_slice(), "{}", httpdate::HttpDate::from(time));
    text
}

/// Seconds since 1970 of a date in any of the three formats; `None` when it is malformed.
pub fn parse(text: &[u8]) -> Option<u64> {
    let time: SystemTime = httpdate::parse_http_date(std::str::from_utf8(text).ok()?).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
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
        assert_eq!(&format(u64::MAX)[..], b"Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(parse(b"yesterday"), None);
    }
}
