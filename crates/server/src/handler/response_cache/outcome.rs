//! The treatment of a request by the cache: for the counters, the access log and `Cache-Status` (RFC 9211).

use dunlin_exchange::Response;
use dunlin_response_cache::status::{Forward, Handled, cache_status};

use super::shared::{ResponseCache, add};

/// The treatment of a request by the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// By a stored response.
    Hit,
    /// By a stored response that is stale, which the request or the response allows.
    Stale,
    /// By a stored response that was validated.
    Revalidated,
    /// By a stale response in place of an error with this status.
    InsteadOf(u16),
    /// By the response to another request.
    Collapsed(Forward),
    /// By forwarding it. `Ok` if the response is stored, and otherwise why not.
    Miss(Forward, Result<(), &'static str>),
    /// By forwarding it without regard to the cache.
    Bypass(Forward),
    /// Not at all (`only-if-cached`).
    Unavailable,
}

impl Outcome {
    /// Counts the request and adds `Cache-Status`. `ttl` is for a response of the store.
    pub(super) fn note_with(
        self,
        cache: &ResponseCache,
        ttl: i64,
        mut response: Response,
    ) -> Response {
        let word = self.count(cache);
        // A file has a status of its own.
        if response.cache == "-" {
            response.cache = word;
        }
        response.fields.push("Cache-Status", cache_status(self.handled(ttl)));
        response
    }

    /// Counts the request. Returns the word for the access log.
    pub(super) fn count(self, cache: &ResponseCache) -> &'static str {
        let counts = &cache.counts;
        let (counter, word) = match self {
            Self::Hit => (&counts.hits, "hit"),
            Self::Stale | Self::InsteadOf(_) => (&counts.stale, "stale"),
            Self::Revalidated => (&counts.revalidated, "revalidated"),
            Self::Collapsed(_) => (&counts.collapsed, "collapsed"),
            Self::Miss(..) | Self::Unavailable => (&counts.misses, "miss"),
            Self::Bypass(_) => (&counts.bypassed, "off"),
        };
        add(counter);
        word
    }

    /// As [`note_with`](Self::note_with), for a response that is not from the store.
    pub(super) fn note(self, cache: &ResponseCache, response: Response) -> Response {
        self.note_with(cache, 0, response)
    }

    fn handled(self, ttl: i64) -> Handled {
        let forwarded = |why, status, stored, collapsed, detail| Handled::Forwarded {
            why,
            status,
            stored,
            collapsed,
            detail,
        };
        match self {
            Self::Hit | Self::Stale => Handled::Hit { ttl },
            Self::Revalidated => forwarded(Forward::Stale, Some(304), true, false, None),
            Self::InsteadOf(status) => {
                forwarded(Forward::Stale, Some(status), false, false, Some("stale-if-error"))
            }
            Self::Collapsed(why) => forwarded(why, None, false, true, None),
            Self::Miss(why, stored) => forwarded(why, None, stored.is_ok(), false, stored.err()),
            Self::Bypass(why) => forwarded(why, None, false, false, None),
            Self::Unavailable => Handled::Unavailable,
        }
    }
}
