//! Conditional requests (RFC 9110 §13).

use super::date;
use super::etag::{EntityTag, TagList};
use super::method::Method;

/// The values of the conditional fields of a request; empty if absent.
#[derive(Debug, Clone, Copy, Default)]
pub struct Preconditions<'a> {
    /// If-Match, one value for each line.
    pub if_match: &'a [&'a [u8]],
    /// If-None-Match, one value for each line.
    pub if_none_match: &'a [&'a [u8]],
    /// If-Modified-Since, one value for each line.
    pub if_modified_since: &'a [&'a [u8]],
    /// If-Unmodified-Since, one value for each line.
    pub if_unmodified_since: &'a [&'a [u8]],
}

/// Validators of the selected representation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Validators<'a> {
    /// The entity tag.
    pub etag: Option<&'a EntityTag>,
    /// The value of Last-Modified, in seconds since 1970.
    pub last_modified: Option<u64>,
}

/// Result of a request's preconditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreconditionOutcome {
    /// Perform the method.
    Proceed,
    /// Respond with 304 (Not Modified).
    NotModified,
    /// Respond with 412 (Precondition Failed).
    PreconditionFailed,
}

/// Evaluates preconditions in the order of RFC 9110 §13.2.2. `current` is `None` if there is no current representation.
pub fn evaluate(
    method: Method,
    preconditions: &Preconditions<'_>,
    current: Option<&Validators<'_>>,
) -> PreconditionOutcome {
    if !preconditions.if_match.is_empty() {
        if !matches(preconditions.if_match, current, EntityTag::strong_eq) {
            return PreconditionOutcome::PreconditionFailed;
        }
    } else if let Some(since) = single_date(preconditions.if_unmodified_since)
        && let Some(last_modified) = current.and_then(|validators| validators.last_modified)
        && last_modified > since
    {
        return PreconditionOutcome::PreconditionFailed;
    }

    let get_or_head = matches!(method, Method::Get | Method::Head);
    if !preconditions.if_none_match.is_empty() {
        if matches(preconditions.if_none_match, current, EntityTag::weak_eq) {
            return if get_or_head {
                PreconditionOutcome::NotModified
            } else {
                PreconditionOutcome::PreconditionFailed
            };
        }
    } else if get_or_head
        && let Some(since) = single_date(preconditions.if_modified_since)
        && let Some(last_modified) = current.and_then(|validators| validators.last_modified)
        && last_modified <= since
    {
        return PreconditionOutcome::NotModified;
    }
    PreconditionOutcome::Proceed
}

/// Returns the date of a field. A field with several lines or a malformed date is ignored (§13.1.3, §13.1.4).
fn single_date(values: &[&[u8]]) -> Option<u64> {
    let [value] = values else { return None };
    date::parse(value)
}

fn matches(
    values: &[&[u8]],
    current: Option<&Validators<'_>>,
    equal: impl Fn(&EntityTag, &EntityTag) -> bool,
) -> bool {
    match (TagList::parse(values), current) {
        (_, None) => false,
        (TagList::Any, Some(_)) => true,
        (TagList::Tags(tags), Some(validators)) => {
            validators.etag.is_some_and(|etag| tags.iter().any(|tag| equal(tag, etag)))
        }
    }
}

/// Returns `true` if If-Range permits a partial response (RFC 9110 §13.1.5). `values` has one value for each line; several
/// lines match nothing. `now` is in seconds since 1970.
pub fn if_range_allows(values: &[&[u8]], validators: &Validators<'_>, now: u64) -> bool {
    let value = match values {
        [] => return true,
        [value] => *value,
        _ => return false,
    };
    if value.first() == Some(&b'"') || value.starts_with(b"W/") {
        return EntityTag::parse(value)
            .zip(validators.etag)
            .is_some_and(|(tag, current)| tag.strong_eq(current));
    }
    // A date is a strong validator only if the representation cannot have changed again within its second (§8.8.2.2).
    match (date::parse(value), validators.last_modified) {
        (Some(date), Some(last_modified)) => date == last_modified && last_modified + 1 < now,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 784_111_777 + 3600;
    const SAME: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";
    const EARLIER: &[u8] = b"Sun, 06 Nov 1994 08:49:36 GMT";
    const FUTURE: &[u8] = b"Sat, 06 Nov 2094 08:49:36 GMT";

    fn outcome(method: Method, preconditions: &Preconditions<'_>) -> PreconditionOutcome {
        let etag = EntityTag::strong("a");
        let current = Validators { etag: Some(&etag), last_modified: Some(784_111_777) };
        evaluate(method, preconditions, Some(&current))
    }

    #[test]
    fn entity_tags_take_precedence_over_dates() {
        use PreconditionOutcome::{NotModified, PreconditionFailed, Proceed};
        let none = Preconditions::default();
        let a: &[&[u8]] = &[b"\"x\", \"a\""];
        let weak: &[&[u8]] = &[b"W/\"a\""];
        let other: &[&[u8]] = &[b"\"b\""];
        let any: &[&[u8]] = &[b"*"];
        let bad: &[&[u8]] = &[b"a"];
        for (method, preconditions, expected) in [
            (Method::Get, Preconditions { if_match: a, ..none }, Proceed),
            (Method::Get, Preconditions { if_match: weak, ..none }, PreconditionFailed),
            (Method::Get, Preconditions { if_match: other, ..none }, PreconditionFailed),
            (Method::Get, Preconditions { if_match: any, ..none }, Proceed),
            (Method::Get, Preconditions { if_match: bad, ..none }, PreconditionFailed),
            (Method::Get, Preconditions { if_none_match: a, ..none }, NotModified),
            (Method::Head, Preconditions { if_none_match: weak, ..none }, NotModified),
            (Method::Get, Preconditions { if_none_match: any, ..none }, NotModified),
            (Method::Get, Preconditions { if_none_match: other, ..none }, Proceed),
            (Method::Get, Preconditions { if_none_match: bad, ..none }, Proceed),
            (Method::Put, Preconditions { if_none_match: any, ..none }, PreconditionFailed),
            // The tag does not match; the date, which does, is ignored.
            (
                Method::Get,
                Preconditions { if_none_match: other, if_modified_since: &[SAME], ..none },
                Proceed,
            ),
            (
                Method::Get,
                Preconditions { if_match: a, if_unmodified_since: &[EARLIER], ..none },
                Proceed,
            ),
            (Method::Get, Preconditions { if_match: a, if_none_match: a, ..none }, NotModified),
            (
                Method::Get,
                Preconditions { if_match: other, if_none_match: a, ..none },
                PreconditionFailed,
            ),
        ] {
            assert_eq!(outcome(method, &preconditions), expected, "{preconditions:?}");
        }
    }

    #[test]
    fn dates_apply_without_entity_tags() {
        use PreconditionOutcome::{NotModified, PreconditionFailed, Proceed};
        for (method, dates, expected) in [
            (Method::Get, &[SAME][..], NotModified),
            (Method::Post, &[SAME], Proceed),
            (Method::Get, &[EARLIER], Proceed),
            (Method::Get, &[FUTURE], NotModified),
            (Method::Get, &[b"soon"], Proceed),
            // More than one member: the field is ignored (§13.1.3).
            (Method::Get, &[SAME, SAME], Proceed),
            (Method::Get, &[SAME, EARLIER], Proceed),
        ] {
            let since = Preconditions { if_modified_since: dates, ..Default::default() };
            assert_eq!(outcome(method, &since), expected, "{since:?}");
        }
        for (dates, expected) in [
            (&[SAME][..], Proceed),
            (&[FUTURE], Proceed),
            (&[EARLIER], PreconditionFailed),
            (&[b"soon"], Proceed),
            (&[EARLIER, EARLIER], Proceed),
        ] {
            let until = Preconditions { if_unmodified_since: dates, ..Default::default() };
            assert_eq!(outcome(Method::Get, &until), expected, "{until:?}");
        }
    }

    #[test]
    fn nothing_matches_a_missing_representation() {
        let any: &[&[u8]] = &[b"*"];
        let if_match = Preconditions { if_match: any, ..Default::default() };
        let if_none_match = Preconditions { if_none_match: any, ..Default::default() };
        assert_eq!(evaluate(Method::Put, &if_match, None), PreconditionOutcome::PreconditionFailed);
        assert_eq!(evaluate(Method::Put, &if_none_match, None), PreconditionOutcome::Proceed);
    }

    #[test]
    fn if_range_requires_strong_validators() {
        let (strong, weak) = (EntityTag::strong("a"), EntityTag::weak("a"));
        let with = |etag| Validators { etag: Some(etag), last_modified: Some(784_111_777) };
        for (values, etag, now, expected) in [
            (&[][..], &strong, NOW, true),
            (&[b"\"a\"".as_slice()], &strong, NOW, true),
            (&[b"\"a\""], &weak, NOW, false),
            (&[b"W/\"a\""], &strong, NOW, false),
            (&[SAME], &strong, NOW, true),
            (&[SAME], &strong, 784_111_777, false),
            (&[EARLIER], &strong, NOW, false),
            (&[b"nonsense"], &strong, NOW, false),
            (&[b"\"a\"", b"\"a\""], &strong, NOW, false),
            (&[SAME, SAME], &strong, NOW, false),
        ] {
            assert_eq!(if_range_allows(values, &with(etag), now), expected, "{values:?}");
        }
    }
}
