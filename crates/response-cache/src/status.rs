//! The field `Cache-Status` (RFC 9211).

use std::fmt::Write as _;

use crate::freshness::Freshness;

/// The treatment of a request by the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handled {
    /// By a stored response with this many seconds to live.
    Hit {
        /// Negative if it was stale.
        ttl: i64,
    },
    /// By forwarding it.
    Forwarded {
        /// Why.
        why: Forward,
        /// The status of the upstream's response; `None` if it is the status of the response.
        status: Option<u16>,
        /// The response is stored.
        stored: bool,
        /// It has waited for the response to another request.
        collapsed: bool,
        /// Why it is not stored.
        detail: Option<&'static str>,
    },
    /// It demands a stored response, and there is none (`only-if-cached`).
    Unavailable,
}

/// Why a request was forwarded (RFC 9211 §2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forward {
    /// The cache does not handle such requests.
    Bypass,
    /// The method is not safe.
    Method,
    /// There is no response for the URL.
    UriMiss,
    /// There is one for other values of the selecting fields.
    VaryMiss,
    /// The stored response is stale.
    Stale,
    /// The request demands it.
    Request,
}

impl Forward {
    /// Returns why a request is forwarded although a response with this freshness is stored: it is stale at `now`, in
    /// milliseconds of the monotonic clock, or the request demands it.
    pub fn of(freshness: &Freshness, now: u64) -> Self {
        let demands = freshness.is_fresh(now) && !freshness.always_validate;
        if demands { Self::Request } else { Self::Stale }
    }

    /// Returns the token of the RFC.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Stale => "stale",
            Self::Request => "request",
        }
    }

    /// Returns the word for the access log.
    pub fn log_word(self) -> &'static str {
        match self {
            Self::Bypass | Self::Method => "off",
            Self::UriMiss | Self::VaryMiss | Self::Stale | Self::Request => "miss",
        }
    }
}

/// Returns the member of this cache.
pub fn cache_status(handled: Handled) -> String {
    let mut text = String::with_capacity(48);
    text.push_str("dunlin");
    // Writing to a string does not fail.
    let _ = match handled {
        Handled::Hit { ttl } => write!(text, "; hit; ttl={ttl}"),
        Handled::Unavailable => write!(text, "; detail=only-if-cached"),
        Handled::Forwarded { why, status, stored, collapsed, detail } => {
            let _ = write!(text, "; fwd={}", why.as_str());
            if let Some(status) = status {
                let _ = write!(text, "; fwd-status={status}");
            }
            text.push_str(if stored { "; stored" } else { "" });
            text.push_str(if collapsed { "; collapsed" } else { "" });
            match detail {
                Some(detail) => write!(text, "; detail={detail}"),
                None => Ok(()),
            }
        }
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_as_in_the_rfc() {
        let forwarded = |why, status, stored, collapsed, detail| {
            cache_status(Handled::Forwarded { why, status, stored, collapsed, detail })
        };
        assert_eq!(cache_status(Handled::Hit { ttl: -3 }), "dunlin; hit; ttl=-3");
        assert_eq!(
            forwarded(Forward::Stale, Some(304), true, false, None),
            "dunlin; fwd=stale; fwd-status=304; stored"
        );
        assert_eq!(
            forwarded(Forward::UriMiss, None, false, true, Some("no-store")),
            "dunlin; fwd=uri-miss; collapsed; detail=no-store"
        );
        assert_eq!(cache_status(Handled::Unavailable), "dunlin; detail=only-if-cached");
    }
}
