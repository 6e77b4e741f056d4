//! The key `throttle`: concurrent requests and bandwidth of responses.

use std::fmt;
use std::time::Duration;

use super::file::{ClientBy, ThrottleTable};
use super::rate_limit::status;
use super::report::Report;
use super::spanned::Spanned;
use super::units::Rate;

/// A throttle as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThrottleRules {
    /// Limit of concurrent requests.
    pub concurrency: Option<ConcurrencyRules>,
    /// Limit of bandwidth.
    pub bandwidth: Option<BandwidthRules>,
    /// The requests that count as those of one client.
    pub client_by: ClientBy,
    /// Status of requests that are rejected.
    pub status: u16,
}

/// Configuration of a concurrency limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConcurrencyRules {
    /// Maximum of concurrent requests before others wait.
    pub max_concurrent: usize,
    /// Maximum of waiting requests.
    pub queue: usize,
    /// Maximum of concurrent requests including those that have waited for `burst_after`.
    pub burst_concurrent: usize,
    /// Time after which a request may run without a free permit.
    pub burst_after: Option<Duration>,
    /// Time after which a waiting request is rejected.
    pub queue_timeout: Duration,
    /// Maximum of concurrent requests per client.
    pub max_per_client: Option<usize>,
    /// Count requests beyond the limit without delaying or rejecting them.
    pub dry_run: bool,
}

/// Configuration of a bandwidth limit. Rates are in bytes per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BandwidthRules {
    /// Maximum rate of all responses together.
    pub ceiling: Option<u64>,
    /// Maximum rate of each connection.
    pub per_connection: Option<u64>,
    /// Minimum share of the ceiling: requests whose share would be lower are rejected.
    pub minimum: Option<u64>,
    /// Count responses without delaying or rejecting them.
    pub dry_run: bool,
}

impl fmt::Display for ThrottleRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let concurrency = self.concurrency.iter().map(ToString::to_string);
        let bandwidth = self.bandwidth.iter().map(ToString::to_string);
        let parts: Vec<String> = concurrency.chain(bandwidth).collect();
        f.write_str(&parts.join("; "))
    }
}

impl fmt::Display for ConcurrencyRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} concurrent", self.max_concurrent)?;
        if let Some(max) = self.max_per_client {
            write!(f, ", {max} per client")?;
        }
        write!(f, ", queue of {} for up to {:?}", self.queue, self.queue_timeout)?;
        if let Some(after) = self.burst_after {
            write!(f, ", up to {} concurrent after {after:?}", self.burst_concurrent)?;
        }
        f.write_str(if self.dry_run { "; dry run" } else { "" })
    }
}

impl fmt::Display for BandwidthRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |rate: Option<u64>, what| rate.map(|rate| format!("{rate} bytes/s {what}"));
        let parts = [
            part(self.ceiling, "in total"),
            part(self.per_connection, "per connection"),
            part(self.minimum, "minimum share"),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(", "))?;
        f.write_str(if self.dry_run { "; dry run" } else { "" })
    }
}

/// Checks `table` and fills in its defaults.
pub(super) fn throttle(table: &Spanned<ThrottleTable>, report: Report<'_>) -> ThrottleRules {
    let bandwidth = bandwidth(table, report);
    let concurrency = concurrency(table, report);
    if bandwidth.is_none() && concurrency.is_none() {
        let what =
            "throttle: there is neither `bandwidth` nor `per_connection` nor `max_concurrent`";
        report(&table.span, what.into());
    }
    let client_by = match table.client_by.as_deref() {
        Some(ClientBy::User) => ClientBy::User,
        _ => ClientBy::Address,
    };
    let status = status("throttle", table.status.as_ref(), 503, report);
    ThrottleRules { concurrency, bandwidth, client_by, status }
}

fn bandwidth(table: &ThrottleTable, report: Report<'_>) -> Option<BandwidthRules> {
    let mut rate = |key: &str, rate: &Option<Spanned<Rate>>| {
        let rate = rate.as_ref()?;
        if rate.0 == 0 {
            report(&rate.span, format!("throttle: {key} is 0, so that nothing would ever be sent"));
        }
        Some(rate.0)
    };
    let ceiling = rate("bandwidth", &table.bandwidth);
    let per_connection = rate("per_connection", &table.per_connection);
    let minimum = rate("minimum", &table.minimum);
    if let Some(at) = &table.minimum {
        match ceiling {
            None => report(&at.span, "throttle: `minimum` is a share of `bandwidth`".into()),
            Some(ceiling) if at.0 > ceiling => {
                report(&at.span, "throttle: minimum is more than bandwidth".into());
            }
            Some(_) => {}
        }
    }
    (ceiling.is_some() || per_connection.is_some()).then(|| BandwidthRules {
        ceiling,
        per_connection,
        minimum,
        dry_run: table.dry_run.unwrap_or(false),
    })
}

fn concurrency(table: &ThrottleTable, report: Report<'_>) -> Option<ConcurrencyRules> {
    let number = |number: &Option<Spanned<usize>>| number.as_deref().copied();
    let Some(max_concurrent) = &table.max_concurrent else {
        let others = [
            ("queue", table.queue.as_ref().map(|at| &at.span)),
            ("burst_after", table.burst_after.as_ref().map(|at| &at.span)),
            ("burst_concurrent", table.burst_concurrent.as_ref().map(|at| &at.span)),
            ("queue_timeout", table.queue_timeout.as_ref().map(|at| &at.span)),
            ("max_per_client", table.max_per_client.as_ref().map(|at| &at.span)),
            ("client_by", table.client_by.as_ref().map(|at| &at.span)),
        ];
        for (key, span) in others {
            if let Some(span) = span {
                report(span, format!("throttle: `{key}` goes with `max_concurrent`"));
            }
        }
        return None;
    };
    for (key, at) in
        [("max_concurrent", &table.max_concurrent), ("max_per_client", &table.max_per_client)]
    {
        if let Some(at) = at.as_ref().filter(|at| at.value == 0) {
            report(&at.span, format!("throttle: {key} is 0, so that no request could run"));
        }
    }
    // The share of a client in the queue is computed by this product.
    let share = number(&table.max_per_client).unwrap_or(1);
    if let Some(queue) = table.queue.as_ref().filter(|at| at.value.checked_mul(share).is_none()) {
        report(&queue.span, "throttle: queue is too large for a share of max_per_client".into());
    }
    match (&table.burst_after, &table.burst_concurrent) {
        (Some(after), None) => {
            report(&after.span, "throttle: `burst_after` goes with `burst_concurrent`".into());
        }
        (None, Some(burst)) => {
            report(&burst.span, "throttle: `burst_concurrent` goes with `burst_after`".into());
        }
        (Some(_), Some(burst)) if burst.value <= max_concurrent.value => {
            report(
                &burst.span,
                "throttle: burst_concurrent is not more than max_concurrent".into(),
            );
        }
        _ => {}
    }
    if let (Some(per), None) = (&table.client_by, &table.max_per_client) {
        report(&per.span, "throttle: `client_by` goes with `max_per_client`".into());
    }
    let queue_timeout =
        table.queue_timeout.as_deref().map_or(Duration::from_secs(30), |span| span.0);
    if let Some(at) = table.queue_timeout.as_ref().filter(|_| queue_timeout.is_zero()) {
        report(
            &at.span,
            "throttle: queue_timeout is 0; to let no request wait, write queue = 0".into(),
        );
    }
    if let Some(after) = table.burst_after.as_ref().filter(|after| after.0 >= queue_timeout) {
        report(
            &after.span,
            format!("throttle: a request is rejected after {queue_timeout:?} already"),
        );
    }
    Some(ConcurrencyRules {
        max_concurrent: max_concurrent.value,
        queue: number(&table.queue).unwrap_or(100),
        burst_concurrent: number(&table.burst_concurrent).unwrap_or(max_concurrent.value),
        burst_after: table.burst_after.as_deref().map(|span| span.0),
        queue_timeout,
        max_per_client: number(&table.max_per_client),
        dry_run: table.dry_run.unwrap_or(false),
    })
}
