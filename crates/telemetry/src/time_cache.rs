//! Time as text, formatted once a second.

use dunlin_http::semantics::date;

/// The text of the current second in both notations.
///
/// Times are always in UTC: local time is ambiguous for one hour each autumn.
#[derive(Clone, Debug)]
pub struct TimeCache {
    second: u64,
    clf: [u8; CLF_LENGTH],
    iso: [u8; ISO_LENGTH],
}

impl TimeCache {
    /// Creates a cache that contains the first second of 1970.
    pub fn new() -> Self {
        Self { second: 0, clf: *b"01/Jan/1970:00:00:00 +0000", iso: *b"1970-01-01T00:00:00" }
    }

    /// Returns the time in the common log format, without brackets: `10/Oct/2000:13:55:36 +0000`.
    pub(super) fn clf(&mut self, second: u64) -> &[u8; CLF_LENGTH] {
        self.turn_to(second);
        &self.clf
    }

    /// Returns the time of RFC 3339 up to the second, without a zone: `2000-10-10T13:55:36`.
    pub(super) fn iso(&mut self, second: u64) -> &[u8; ISO_LENGTH] {
        self.turn_to(second);
        &self.iso
    }

    #[inline]
    fn turn_to(&mut self, second: u64) {
        if second != self.second {
            self.render(second);
        }
    }

    #[cold]
    fn render(&mut self, second: u64) {
        self.second = second;
        let second = second.min(LAST_SECOND_OF_9999);
        let (year, month, day) = date::civil_from_days(second / 86_400);
        let of_day = second % 86_400;
        let clock = [of_day / 3600, of_day / 60 % 60, of_day % 60];

        put(&mut self.clf[..2], day);
        // `civil_from_days` returns a `month` from 1 to 12.
        let name = (month as usize - 1) * 3;
        self.clf[3..6].copy_from_slice(&MONTHS[name..name + 3]);
        put(&mut self.clf[7..11], year);
        put(&mut self.iso[..4], year);
        put(&mut self.iso[5..7], month);
        put(&mut self.iso[8..10], day);
        for (i, value) in clock.into_iter().enumerate() {
            put(&mut self.clf[12 + 3 * i..14 + 3 * i], value);
            put(&mut self.iso[11 + 3 * i..13 + 3 * i], value);
        }
    }
}

impl Default for TimeCache {
    fn default() -> Self {
        Self::new()
    }
}

/// Fills `field` with `value` in decimal, with leading zeros.
fn put(field: &mut [u8], mut value: u64) {
    for digit in field.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

const CLF_LENGTH: usize = 26;
const ISO_LENGTH: usize = 19;
const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
const LAST_SECOND_OF_9999: u64 = 253_402_300_799;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renders_known_seconds_in_any_order() {
        let mut cache = TimeCache::new();
        let table: [(u64, &str, &str); 7] = [
            (0, "01/Jan/1970:00:00:00 +0000", "1970-01-01T00:00:00"),
            (971_186_136, "10/Oct/2000:13:55:36 +0000", "2000-10-10T13:55:36"),
            (951_782_400, "29/Feb/2000:00:00:00 +0000", "2000-02-29T00:00:00"),
            (4_107_542_400, "01/Mar/2100:00:00:00 +0000", "2100-03-01T00:00:00"),
            (1_735_689_599, "31/Dec/2024:23:59:59 +0000", "2024-12-31T23:59:59"),
            (u64::MAX, "31/Dec/9999:23:59:59 +0000", "9999-12-31T23:59:59"),
            (0, "01/Jan/1970:00:00:00 +0000", "1970-01-01T00:00:00"),
        ];
        for (second, clf, iso) in table {
            assert_eq!(cache.clf(second), clf.as_bytes());
            assert_eq!(cache.iso(second), iso.as_bytes());
        }
    }
}
