//! Byte ranges (RFC 9110 §14).

use smallvec::SmallVec;

/// A range of bytes of a representation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// Offset of the first byte.
    pub start: u64,
    /// Offset after the last byte.
    pub end: u64,
}

/// The meaning of a Range field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RangeOutcome {
    /// The complete representation: the field is absent, malformed, in another unit, or has too many ranges, so that the
    /// server ignores it (RFC 9110 §14.2).
    Whole,
    /// These ranges, in the order of the request. No two overlap or are adjacent.
    Ranges(SmallVec<[ByteRange; 1]>),
    /// No range is satisfiable: 416.
    Unsatisfiable,
}

/// Parses a Range field for a representation of `length` bytes. At max `max` ranges are permitted after overlapping and
/// adjacent ones have been joined.
pub fn parse(values: &[&[u8]], length: u64, max: usize) -> RangeOutcome {
    let [value] = values else { return RangeOutcome::Whole };
    let Some((unit, set)) = value.split_first_chunk::<6>() else { return RangeOutcome::Whole };
    if !unit.eq_ignore_ascii_case(b"bytes=") {
        return RangeOutcome::Whole;
    }
    let mut ranges: SmallVec<[ByteRange; 1]> = SmallVec::new();
    let mut count = 0;
    let mut has_suffix_of_empty = false;
    for spec in set.split(|&b| b == b',').map(<[u8]>::trim_ascii).filter(|spec| !spec.is_empty()) {
        count += 1;
        // Too many ranges, whether or not they can be joined.
        if count > max.saturating_mul(4) {
            return RangeOutcome::Whole;
        }
        match parse_spec(spec, length) {
            None => return RangeOutcome::Whole,
            Some(None) => {}
            Some(Some(range)) if range.start == range.end => has_suffix_of_empty = true,
            Some(Some(range)) => join(&mut ranges, range),
        }
    }
    match (count, ranges.len()) {
        (0, _) => RangeOutcome::Whole,
        // A suffix of an empty representation is satisfiable (§14.1.2), but a 206 cannot state it.
        (_, 0) if has_suffix_of_empty => RangeOutcome::Whole,
        (_, 0) => RangeOutcome::Unsatisfiable,
        (_, count) if count > max => RangeOutcome::Whole,
        _ => RangeOutcome::Ranges(ranges),
    }
}

/// Parses one range: `None` if malformed, `Some(None)` if unsatisfiable. Only a suffix of an empty representation gives an
/// empty range.
fn parse_spec(spec: &[u8], length: u64) -> Option<Option<ByteRange>> {
    let dash = memchr::memchr(b'-', spec)?;
    let (first, last) = (&spec[..dash], &spec[dash + 1..]);
    if first.is_empty() {
        let suffix = number(last)?;
        let range = ByteRange { start: length - suffix.min(length), end: length };
        return Some((suffix > 0).then_some(range));
    }
    let start = number(first)?;
    let end = if last.is_empty() {
        length
    } else {
        let last = number(last)?;
        if last < start {
            return None;
        }
        last.saturating_add(1).min(length)
    };
    Some((start < end).then_some(ByteRange { start, end }))
}

/// Parses `1*DIGIT`. Larger numbers become the largest one of 64 bits.
fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, &digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        Some(sum.saturating_mul(10).saturating_add(digit))
    })
}

/// Adds a range, joined with those that it overlaps or is adjacent to, in the place of the first of them.
fn join(ranges: &mut SmallVec<[ByteRange; 1]>, mut range: ByteRange) {
    let mut place = ranges.len();
    let mut at = 0;
    while at < ranges.len() {
        let other = ranges[at];
        if range.start <= other.end && other.start <= range.end {
            range =
                ByteRange { start: range.start.min(other.start), end: range.end.max(other.end) };
            ranges.remove(at);
            place = place.min(at);
        } else {
            at += 1;
        }
    }
    ranges.insert(place.min(ranges.len()), range);
}

/// Returns the Content-Range of one part.
pub fn content_range(range: &ByteRange, length: u64) -> String {
    format!("bytes {}-{}/{length}", range.start, range.end.saturating_sub(1))
}

/// Returns the Content-Range of a 416.
pub fn content_range_unsatisfied(length: u64) -> String {
    format!("bytes */{length}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranges(pairs: &[(u64, u64)]) -> RangeOutcome {
        RangeOutcome::Ranges(pairs.iter().map(|&(start, end)| ByteRange { start, end }).collect())
    }

    #[test]
    fn ranges_are_parsed_as_in_the_examples_of_the_rfc() {
        use RangeOutcome::{Unsatisfiable, Whole};
        for (value, length, expected) in [
            ("bytes=0-499", 10_000, ranges(&[(0, 500)])),
            ("Bytes=0-499", 10_000, ranges(&[(0, 500)])),
            ("bytes=-500", 10_000, ranges(&[(9500, 10_000)])),
            ("bytes=9500-", 10_000, ranges(&[(9500, 10_000)])),
            ("bytes=0-0,-1", 10_000, ranges(&[(0, 1), (9999, 10_000)])),
            ("bytes=500-600,601-999", 10_000, ranges(&[(500, 1000)])),
            ("bytes=500-700, 601-999 ,", 10_000, ranges(&[(500, 1000)])),
            ("bytes=700-799,0-99", 10_000, ranges(&[(700, 800), (0, 100)])),
            ("bytes=0-9,20-29,5-24", 10_000, ranges(&[(0, 30)])),
            ("bytes=0-99999999999999999999999", 10, ranges(&[(0, 10)])),
            ("bytes=-99999999999999999999999", 10, ranges(&[(0, 10)])),
            ("bytes=10-", 10, Unsatisfiable),
            ("bytes=-0", 10, Unsatisfiable),
            ("bytes=0-", 0, Unsatisfiable),
            ("bytes=-0", 0, Unsatisfiable),
            ("bytes=-5", 0, Whole),
            ("bytes=0-,-5", 0, Whole),
            ("bytes=-0,5-", 0, Unsatisfiable),
            ("bytes=20-30,0-1", 10, ranges(&[(0, 2)])),
            ("bytes=5-4", 10, Whole),
            ("bytes=a-4", 10, Whole),
            ("bytes=+1-4", 10, Whole),
            ("bytes=1 - 4", 10, Whole),
            ("bytes=-", 10, Whole),
            ("bytes=", 10, Whole),
            ("bytes 0-4", 10, Whole),
            ("lines=0-4", 10, Whole),
            ("bytes=0-0,2-2,4-4", 10, Whole),
        ] {
            assert_eq!(parse(&[value.as_bytes()], length, 2), expected, "{value} of {length}");
        }
        assert_eq!(parse(&[b"bytes=0-1", b"bytes=2-3"], 10, 2), Whole);
        assert_eq!(parse(&[], 10, 2), Whole);
    }

    proptest! {
        #[test]
        fn ranges_lie_within_the_representation_and_do_not_overlap(
            specs in proptest::collection::vec((0_u64..40, 0_u64..40, 0..3), 1..8),
            length in 0_u64..30,
        ) {
            let specs: Vec<_> = specs.iter().map(|&(a, b, kind)| match kind {
                0 => format!("{}-{}", a.min(b), a.max(b)),
                1 => format!("{a}-"),
                _ => format!("-{a}"),
            }).collect();
            let value = format!("bytes={}", specs.join(","));
            if let RangeOutcome::Ranges(ranges) = parse(&[value.as_bytes()], length, 8) {
                for (at, range) in ranges.iter().enumerate() {
                    prop_assert!(range.start < range.end && range.end <= length);
                    for other in &ranges[at + 1..] {
                        prop_assert!(range.end < other.start || other.end < range.start);
                    }
                }
            }
        }
    }
}
