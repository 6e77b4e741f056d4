//! Freshness and age (RFC 9111 §4.2).

use dunlin_http::FieldLines;
use dunlin_http::semantics::date;
use dunlin_http::semantics::list::members;

use crate::directives::Directives;
use crate::fields::{MAX_SECONDS, delta_seconds, values};
use crate::request::RequestDirectives;
use crate::storable;

/// The heuristic lifetime is this part of the time since the last modification (RFC 9111 §4.2.2).
const HEURISTIC_PART: u64 = 10;
/// The longest heuristic lifetime: a day.
const MAX_HEURISTIC: u64 = 24 * 60 * 60;

/// When a response was requested and received.
#[derive(Debug, Clone, Copy)]
pub struct Received {
    /// The `Date` of the response in seconds since 1970; `None` if it has none that is valid.
    pub date: Option<u64>,
    /// The time of its arrival in seconds since 1970.
    pub unix: u64,
    /// The time of its arrival in milliseconds of the monotonic clock.
    pub at: u64,
    /// Milliseconds between the request and its arrival.
    pub delay: u64,
}

/// The time for which a stored response may be used. Times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freshness {
    /// The lifetime.
    pub lifetime: u64,
    /// The lifetime is explicit, and not a heuristic one.
    pub is_explicit: bool,
    /// The age when the response was received (RFC 9111 §4.2.3).
    pub initial_age: u64,
    /// When it was received, in milliseconds of the monotonic clock.
    pub received: u64,
    /// Each use needs a validation (`no-cache`).
    pub always_validate: bool,
    /// It must not be used when it is stale (`must-revalidate` and directives that include it).
    pub must_revalidate: bool,
    /// Seconds after the lifetime in which it may be used while it is validated (RFC 5861 §3).
    pub while_revalidate: u64,
    /// Seconds after the lifetime in which it may be used if validation fails (RFC 5861 §4).
    pub if_error: u64,
}

/// The use that a request may make of a stored response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usability {
    /// As the response.
    Fresh,
    /// As the response: it is stale, which the request allows (`max-stale`).
    AllowedStale,
    /// As the response, while it is validated (`stale-while-revalidate`).
    WhileRevalidate,
    /// After a validation.
    Validate,
}

impl Freshness {
    /// Creates the freshness of a response. `is_heuristic` permits heuristic lifetimes.
    pub fn of(
        status: u16,
        fields: &FieldLines,
        directives: &Directives,
        received: Received,
        is_heuristic: bool,
    ) -> Self {
        let explicit = explicit_lifetime(fields, directives, received);
        let heuristic = || {
            let allowed =
                is_heuristic && (directives.public || storable::is_heuristically_cacheable(status));
            if allowed { heuristic_lifetime(fields, received) } else { 0 }
        };
        // `s-maxage` forbids the use of stale responses (RFC 9111 §5.2.2.10), unless the response allows it in its own words.
        let forbids = directives.must_revalidate || directives.proxy_revalidate;
        let allowed = |seconds: Option<u64>| if forbids { 0 } else { seconds.unwrap_or(0) };
        Self {
            lifetime: explicit.unwrap_or_else(heuristic),
            is_explicit: explicit.is_some(),
            initial_age: initial_age(fields, received),
            received: received.at,
            always_validate: directives.no_cache,
            must_revalidate: forbids || directives.s_maxage.is_some(),
            while_revalidate: allowed(directives.stale_while_revalidate),
            if_error: allowed(directives.stale_if_error),
        }
    }

    /// Gives a response without an explicit lifetime this one, in seconds: the configuration of the cache takes the place of a
    /// heuristic (RFC 9111 §4.2.2).
    #[must_use]
    pub fn with_default(self, lifetime: Option<u64>) -> Self {
        match lifetime.filter(|_| !self.is_explicit) {
            Some(lifetime) => {
                Self { lifetime: lifetime.min(MAX_SECONDS), is_explicit: true, ..self }
            }
            None => self,
        }
    }

    /// Returns the age at `now`, in milliseconds of the monotonic clock.
    pub fn age(&self, now: u64) -> u64 {
        self.initial_age + now.saturating_sub(self.received) / 1000
    }

    /// Returns `true` if the response is within its lifetime.
    pub fn is_fresh(&self, now: u64) -> bool {
        self.lifetime > self.age(now)
    }

    /// Seconds of the lifetime that are left; negative if the response is stale.
    pub fn time_to_live(&self, now: u64) -> i64 {
        self.lifetime as i64 - self.age(now) as i64
    }

    /// Returns how the response may be used for a request (RFC 9111 §4, §4.2.4, §5.2.1).
    pub fn usability(&self, request: &RequestDirectives, now: u64) -> Usability {
        if self.always_validate || request.no_cache {
            return Usability::Validate;
        }
        let age = self.age(now);
        if request.max_age.is_some_and(|max| age > max || max == 0) {
            return Usability::Validate;
        }
        if self.lifetime > age {
            let wanted = request.min_fresh.unwrap_or(0);
            let is_enough = self.lifetime - age >= wanted;
            return if is_enough { Usability::Fresh } else { Usability::Validate };
        }
        let staleness = age - self.lifetime;
        if request.min_fresh.is_some() {
            return Usability::Validate;
        }
        if !self.must_revalidate && request.max_stale.is_some_and(|max| staleness <= max) {
            return Usability::AllowedStale;
        }
        if staleness < self.while_revalidate {
            return Usability::WhileRevalidate;
        }
        Usability::Validate
    }

    /// Returns `true` if the response may be used when its validation has failed.
    pub fn is_usable_after_error(&self, now: u64) -> bool {
        let staleness = self.age(now).saturating_sub(self.lifetime);
        !self.always_validate && staleness < self.if_error
    }

    /// Returns `true` if the response can ever be used without a validation.
    pub fn is_ever_usable(&self) -> bool {
        let usable = self.lifetime + self.while_revalidate.max(self.if_error);
        !self.always_validate && usable > self.initial_age
    }
}

/// Returns the explicit lifetime (RFC 9111 §4.2.1).
fn explicit_lifetime(
    fields: &FieldLines,
    directives: &Directives,
    received: Received,
) -> Option<u64> {
    if let Some(seconds) = directives.s_maxage.or(directives.max_age) {
        return Some(seconds);
    }
    if directives.is_targeted {
        return None;
    }
    let expires = values(fields, "Expires");
    let first = expires.first()?;
    // An invalid date is in the past (RFC 9111 §5.3).
    let expires = date::parse(first).unwrap_or(0);
    Some(expires.saturating_sub(received.date.unwrap_or(received.unix)).min(MAX_SECONDS))
}

fn heuristic_lifetime(fields: &FieldLines, received: Received) -> u64 {
    let lines = values(fields, "Last-Modified");
    let Some(modified) = lines.first().and_then(|line| date::parse(line)) else { return 0 };
    let since = received.date.unwrap_or(received.unix).saturating_sub(modified);
    (since / HEURISTIC_PART).min(MAX_HEURISTIC)
}

/// Returns the age on arrival (RFC 9111 §4.2.3). Of several values of `Age` the first one applies, and an invalid one does
/// not (§5.1).
fn initial_age(fields: &FieldLines, received: Received) -> u64 {
    let apparent = received.date.map_or(0, |date| received.unix.saturating_sub(date));
    let lines = values(fields, "Age");
    let age = members(&lines).next().and_then(delta_seconds).unwrap_or(0);
    apparent.max(age + received.delay / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fields;

    const NOW: u64 = 784_111_777;
    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const LATER: &str = "Sun, 06 Nov 1994 08:50:37 GMT";
    const YESTERDAY: &str = "Sat, 05 Nov 1994 08:49:37 GMT";

    fn received() -> Received {
        Received { date: Some(NOW), unix: NOW, at: 5_000, delay: 0 }
    }

    fn of(status: u16, pairs: &[(&str, &str)], received: Received) -> Freshness {
        let fields = fields(pairs);
        Freshness::of(status, &fields, &Directives::of(&fields), received, true)
    }

    #[test]
    fn lifetimes_are_explicit_or_heuristic() {
        let modified = ("Last-Modified", YESTERDAY);
        for (status, pairs, expected) in [
            (200, &[("Cache-Control", "max-age=60")][..], (60, true)),
            (200, &[("Cache-Control", "max-age=60, s-maxage=5")], (5, true)),
            (200, &[("Cache-Control", "max-age=0, s-maxage=5"), ("Expires", DATE)], (5, true)),
            (200, &[("Cache-Control", "max-age=60"), ("Expires", DATE)], (60, true)),
            (200, &[("Cache-Control", "max-age=0"), ("Expires", LATER)], (0, true)),
            (200, &[("Expires", LATER)], (60, true)),
            (200, &[("Expires", DATE)], (0, true)),
            (200, &[("Expires", "0")], (0, true)),
            (200, &[("CDN-Cache-Control", "max-age=7"), ("Expires", LATER)], (7, true)),
            (200, &[("CDN-Cache-Control", "public"), ("Expires", LATER)], (0, false)),
            (200, &[modified], (8_640, false)),
            (200, &[("Last-Modified", "Tue, 06 Nov 1984 08:49:37 GMT")], (86_400, false)),
            (200, &[("Last-Modified", LATER)], (0, false)),
            (201, &[modified], (0, false)),
            (599, &[modified], (0, false)),
            (599, &[modified, ("Cache-Control", "public")], (8_640, false)),
            (200, &[], (0, false)),
        ] {
            let freshness = of(status, pairs, received());
            assert_eq!((freshness.lifetime, freshness.is_explicit), expected, "{status} {pairs:?}");
        }
        let fields = fields(&[modified]);
        let directives = Directives::of(&fields);
        let none = Freshness::of(200, &fields, &directives, received(), false);
        assert_eq!(none.lifetime, 0, "without heuristic lifetimes");
    }

    #[test]
    fn ages_follow_the_rfc() {
        for (pairs, date, delay, expected) in [
            (&[][..], Some(NOW), 0, 0),
            (&[], None, 0, 0),
            (&[], Some(NOW - 10), 0, 10),
            (&[], Some(NOW + 10), 0, 0),
            (&[("Age", "7")], Some(NOW), 0, 7),
            (&[("Age", "7")], Some(NOW - 10), 0, 10),
            (&[("Age", "7")], Some(NOW), 2_500, 9),
            (&[("Age", "7, 0")], Some(NOW), 0, 7),
            (&[("Age", "0"), ("Age", "7")], Some(NOW), 0, 0),
            (&[("Age", "abc")], Some(NOW), 0, 0),
            (&[("Age", "-7")], Some(NOW), 0, 0),
            (&[("Age", "99999999999")], Some(NOW), 0, 1 << 31),
        ] {
            let freshness = of(200, pairs, Received { date, delay, ..received() });
            assert_eq!(freshness.age(5_000), expected, "{pairs:?} {date:?} {delay}");
            assert_eq!(freshness.age(7_999), expected + 2, "{pairs:?} {date:?} {delay}");
        }
    }

    #[test]
    fn requests_and_directives_decide_about_the_use() {
        use Usability::{AllowedStale, Fresh, Validate, WhileRevalidate};
        let none = RequestDirectives::default();
        // Received at second 5, each with a lifetime of 10 seconds.
        for (directives, request, second, expected) in [
            ("", none, 14, Fresh),
            ("", none, 15, Validate),
            ("no-cache", none, 5, Validate),
            ("", RequestDirectives { no_cache: true, ..none }, 5, Validate),
            ("", RequestDirectives { max_age: Some(3), ..none }, 8, Fresh),
            ("", RequestDirectives { max_age: Some(3), ..none }, 9, Validate),
            ("", RequestDirectives { max_age: Some(0), ..none }, 5, Validate),
            ("", RequestDirectives { min_fresh: Some(5), ..none }, 10, Fresh),
            ("", RequestDirectives { min_fresh: Some(5), ..none }, 11, Validate),
            ("", RequestDirectives { max_stale: Some(5), ..none }, 20, AllowedStale),
            ("", RequestDirectives { max_stale: Some(5), ..none }, 21, Validate),
            ("must-revalidate", RequestDirectives { max_stale: Some(5), ..none }, 20, Validate),
            ("proxy-revalidate", RequestDirectives { max_stale: Some(5), ..none }, 20, Validate),
            ("s-maxage=10", RequestDirectives { max_stale: Some(5), ..none }, 20, Validate),
            ("stale-while-revalidate=5", none, 19, WhileRevalidate),
            ("stale-while-revalidate=5", none, 20, Validate),
            ("s-maxage=10, stale-while-revalidate=5", none, 19, WhileRevalidate),
            ("must-revalidate, stale-while-revalidate=5", none, 19, Validate),
            ("no-cache, stale-while-revalidate=5", none, 19, Validate),
        ] {
            let value = format!("max-age=10, {directives}");
            let freshness = of(200, &[("Cache-Control", &value)], received());
            let found = freshness.usability(&request, second * 1000);
            assert_eq!(found, expected, "{directives} {request:?} {second}");
        }
    }

    #[test]
    fn a_configured_lifetime_takes_the_place_of_a_heuristic_one() {
        let with = |status, pairs: &[(&str, &str)]| {
            let freshness = of(status, pairs, received()).with_default(Some(60));
            (freshness.lifetime, freshness.is_explicit)
        };
        assert_eq!(with(200, &[]), (60, true));
        assert_eq!(with(500, &[]), (60, true));
        assert_eq!(with(200, &[("Last-Modified", YESTERDAY)]), (60, true));
        assert_eq!(with(200, &[("Cache-Control", "max-age=5")]), (5, true));
        assert_eq!(with(200, &[("Expires", "0")]), (0, true));
        assert_eq!(of(200, &[], received()).with_default(None).lifetime, 0);
    }

    #[test]
    fn errors_allow_stale_responses_for_a_while() {
        for (directives, second, expected) in [
            ("", 16, false),
            ("stale-if-error=5", 19, true),
            ("stale-if-error=5", 20, false),
            ("stale-if-error=5, must-revalidate", 16, false),
            ("stale-if-error=5, no-cache", 16, false),
            ("stale-if-error=5, s-maxage=10", 16, true),
        ] {
            let value = format!("max-age=10, {directives}");
            let freshness = of(200, &[("Cache-Control", &value)], received());
            assert_eq!(freshness.is_usable_after_error(second * 1000), expected, "{directives}");
        }
    }
}
