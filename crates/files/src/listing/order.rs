//! The order of a listing: by name, size or time, with numbers in names by value.

use std::cmp::Ordering;

/// The sort key of a listing. Directories always come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    Name,
    Size,
    Modified,
}

/// The sort direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Ascending,
    Descending,
}

impl Sort {
    /// Returns the value of `sort` in a query.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Size => "size",
            Self::Modified => "modified",
        }
    }
}

impl Order {
    /// Returns the value of `order` in a query.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Ascending => "asc",
            Self::Descending => "desc",
        }
    }
}

/// Compares names without regard to case, and runs of digits by their value: `report-2` comes before `report-10`. Names
/// that differ only in case or leading zeros are compared by their bytes.
pub(super) fn natural(one: &[u8], other: &[u8]) -> Ordering {
    let start = common_prefix(one, other);
    let (mut left, mut right) = (&one[start..], &other[start..]);
    loop {
        let compared = match (left.first(), right.first()) {
            (None, None) => return one.cmp(other),
            (Some(a), Some(b)) if a.is_ascii_digit() && b.is_ascii_digit() => {
                let (a, b) = (take_number(&mut left), take_number(&mut right));
                // Without leading zeros, the longer number is the larger one.
                a.len().cmp(&b.len()).then_with(|| a.cmp(b))
            }
            (a, b) => {
                let compared = a.map(u8::to_ascii_lowercase).cmp(&b.map(u8::to_ascii_lowercase));
                left = left.get(1..).unwrap_or_default();
                right = right.get(1..).unwrap_or_default();
                compared
            }
        };
        if compared != Ordering::Equal {
            return compared;
        }
    }
}

/// Returns the length of the common prefix of both names, without the digits at its end: a number may continue behind it.
fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    let common = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let digits = one[..common].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    common - digits
}

/// Removes the digits that `text` begins with, and returns them without leading zeros.
fn take_number<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at(digits);
    *text = rest;
    let zeros = number.iter().take_while(|&&byte| byte == b'0').count();
    &number[zeros..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_are_compared_by_value() {
        let names: [&[u8]; 14] = [
            b"",
            b"1",
            b"01a",
            b"1b",
            b"2",
            b"10",
            b"99999999999999999999998",
            b"99999999999999999999999",
            b"Report-2",
            b"report-2",
            b"report-10",
            b"report-10.txt",
            b"report-101",
            b"report-1001",
        ];
        for (at, one) in names.iter().enumerate() {
            for (place, other) in names.iter().enumerate() {
                assert_eq!(natural(one, other), at.cmp(&place), "{one:?} and {other:?}");
            }
        }
    }
}
