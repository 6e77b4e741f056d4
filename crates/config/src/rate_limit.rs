//! The key `limit`: request rates.

use std::fmt;
use std::time::Duration;

use dunlin_http::semantics::is_token;

use super::file::RateLimitTable;
use super::report::Report;
use super::spanned::Spanned;

/// Configuration of a rate limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateRules {
    /// Number of requests per `period`.
    pub requests: u32,
    /// Period in which `requests` are allowed.
    pub period: Duration,
    /// Number of requests that are allowed at once.
    pub burst: u32,
    /// Key by which requests are counted together.
    pub by: RateKey,
    /// Send `RateLimit` and `RateLimit-Policy` with every response.
    pub sends_fields: bool,
    /// Count requests beyond the limit without rejecting them.
    pub dry_run: bool,
    /// Status of requests that are rejected.
    pub status: u16,
    /// All servers that share a store count together.
    pub shared: bool,
}

/// Key by which requests are counted together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RateKey {
    /// By address; by /64 network for IPv6, as one client can own all of it.
    Address,
    /// By user; by address for requests without a user.
    User,
    /// By the value of this field; by address for requests without it.
    Header(String),
    /// All requests of the route together.
    Route,
}

impl RateRules {
    /// Returns the name of the limit in response fields.
    pub fn name(&self) -> String {
        let unit = match self.period.as_secs() {
            60 => "m",
            3600 => "h",
            86_400 => "d",
            _ => "s",
        };
        let by = match &self.by {
            RateKey::Address => "address",
            RateKey::User => "user",
            RateKey::Header(name) => name,
            RateKey::Route => "route",
        };
        format!("{}/{unit} by {by}", self.requests)
    }
}

impl fmt::Display for RateRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = if self.shared { ", shared" } else { "" };
        let dry_run = if self.dry_run { "; dry run" } else { "" };
        write!(f, "{}, burst {}{shared}{dry_run}", self.name(), self.burst)
    }
}

/// Returns the status of rejected requests, which is that of an error.
pub(super) fn status(
    key: &str,
    status: Option<&Spanned<u16>>,
    default: u16,
    report: Report<'_>,
) -> u16 {
    let Some(status) = status else { return default };
    if !(400..600).contains(&status.value) {
        let what = format!("{key}: status {} is not that of an error (400 to 599)", status.value);
        report(&status.span, what);
    }
    status.value
}

/// Checks `table` and fills in its defaults.
pub(super) fn limit(table: &RateLimitTable, report: Report<'_>) -> RateRules {
    let requests = table.requests.value;
    if let Some(burst) = table.burst.as_ref().filter(|burst| burst.value == 0) {
        report(&burst.span, "limit: burst is 0, so that no request could come".into());
    }
    let by = table.by.as_ref().map_or(Some(RateKey::Address), |by| match by.as_str() {
        "address" => Some(RateKey::Address),
        "user" => Some(RateKey::User),
        "route" => Some(RateKey::Route),
        other => {
            let name = other.strip_prefix("header:").map(str::trim);
            name.filter(|name| is_token(name.as_bytes())).map(|name| RateKey::Header(name.into()))
        }
    });
    if let (None, Some(text)) = (&by, &table.by) {
        let what = format!("limit: {:?} is not address, user, route or header:NAME", text.value);
        report(&text.span, what);
    }
    RateRules {
        requests: requests.times,
        period: requests.period,
        burst: table.burst.as_deref().copied().unwrap_or(requests.times),
        by: by.unwrap_or(RateKey::Address),
        sends_fields: table.send_headers.unwrap_or(false),
        dry_run: table.dry_run.unwrap_or(false),
        status: status("limit", table.status.as_ref(), 429, report),
        shared: table.shared.as_deref().copied().unwrap_or(false),
    }
}
