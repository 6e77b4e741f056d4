//! The order of a listing: by name, size or time, with numbers in names by value.

use std::cmp::Ordering;

use super::Entry;

/// The sort key of a listing. Directories always come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    Name,
    Size,
    Modified,
}

/// The sort direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Ascending,
    Descending,
}

impl Sort {
    /// Parses `sort=name|size|modified&order=asc|desc`. Other values are ignored.
    pub(crate) fn from_query(query: Option<&[u8]>) -> (Self, Order) {
        let (mut sort, mut order) = (Self::Name, Order::Ascending);
        for pair in query.unwrap_or_default().split(|&b| b == b'&') {
            match pair {
                b"sort=size" => sort = Self::Size,
                b"sort=modified" => sort = Self::Modified,
                b"order=desc" => order = Order::Descending,
                _ => {}
            }
        }
        (sort, order)
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Size => "size",
            Self::Modified => "modified",
        }
    }
}

/// Sorts `entries`. Entries of the same size or time are in the order of their names.
pub(super) fn sort(entries: &mut [Entry], sort: Sort, order: Order) {
    entries.sort_by(|one, other| natural(&one.name, &other.name));
    match sort {
        Sort::Name => {}
        Sort::Size => entries.sort_by_key(|entry| entry.size),
        Sort::Modified => entries.sort_by_key(|entry| entry.modified),
    }
    if order == Order::Descending {
        entries.reverse();
    }
    entries.sort_by_key(|entry| !entry.directory);
}

/// Compares names without regard to case, and runs of digits by their value: `report-2` comes before `report-10`. Names
/// that differ only in case or leading zeros are compared by their bytes.
fn natural(one: &[u8], other: &[u8]) -> Ordering {
    let (mut left, mut right) = (one, other);
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
        let names: [&[u8]; 12] = [
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
        ];
        for (at, one) in names.iter().enumerate() {
            for (place, other) in names.iter().enumerate() {
                assert_eq!(natural(one, other), at.cmp(&place), "{one:?} and {other:?}");
            }
        }
    }
}
