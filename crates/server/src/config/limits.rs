//! The keys `limit` and `throttle`: how many requests clients may send, and how fast responses are sent.

use std::time::Duration;

use dunlin_http::semantics::is_token;

use super::at::At;
use super::file::{RateLimitTable, ShareBy, ThrottleTable};
use super::settings::Report;
use super::units::Rate;
use crate::checks::{BandwidthRules, ConcurrencyRules, RateKey, RateRules, Share, ThrottleRules};

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
        sends_fields: table.tell.unwrap_or(false),
        dry_run: table.dry_run.unwrap_or(false),
    }
}

/// Checks `table` and fills in its defaults.
pub(super) fn throttle(table: &At<ThrottleTable>, report: Report<'_>) -> ThrottleRules {
    let bandwidth = bandwidth(table, report);
    let concurrency = concurrency(table, report);
    if bandwidth.is_none() && concurrency.is_none() {
        let what = "throttle: there is neither `bandwidth` nor `per_connection` nor `concurrent`";
        report(&table.span, what.into());
    }
    let share = match table.per.as_deref() {
        Some(ShareBy::User) => Share::User,
        _ => Share::Address,
    };
    ThrottleRules { concurrency, bandwidth, share }
}

fn bandwidth(table: &ThrottleTable, report: Report<'_>) -> Option<BandwidthRules> {
    let mut rate = |key: &str, rate: &Option<At<Rate>>| {
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
    let number = |number: &Option<At<usize>>| number.as_deref().copied();
    let Some(concurrent) = &table.concurrent else {
        let others = [
            ("queue", table.queue.as_ref().map(|at| &at.span)),
            ("wait", table.wait.as_ref().map(|at| &at.span)),
            ("most", table.most.as_ref().map(|at| &at.span)),
            ("refuse_after", table.refuse_after.as_ref().map(|at| &at.span)),
            ("share", table.share.as_ref().map(|at| &at.span)),
            ("per", table.per.as_ref().map(|at| &at.span)),
        ];
        for (key, span) in others {
            if let Some(span) = span {
                report(span, format!("throttle: `{key}` goes with `concurrent`"));
            }
        }
        return None;
    };
    for (key, at) in [("concurrent", &table.concurrent), ("share", &table.share)] {
        if let Some(at) = at.as_ref().filter(|at| at.value == 0) {
            report(&at.span, format!("throttle: {key} is 0, so that no request could run"));
        }
    }
    match (&table.wait, &table.most) {
        (Some(wait), None) => {
            report(
                &wait.span,
                "throttle: `wait` goes with `most`, how many run at once then".into(),
            );
        }
        (None, Some(most)) => {
            report(&most.span, "throttle: `most` goes with `wait`, after which it holds".into());
        }
        (Some(_), Some(most)) if most.value <= concurrent.value => {
            report(&most.span, "throttle: most is not more than concurrent".into());
        }
        _ => {}
    }
    if let (Some(per), None) = (&table.per, &table.share) {
        report(&per.span, "throttle: `per` says whose `share` it is".into());
    }
    let refuse_after = table.refuse_after.as_deref().map_or(Duration::from_secs(30), |span| span.0);
    if let Some(at) = table.refuse_after.as_ref().filter(|_| refuse_after.is_zero()) {
        report(
            &at.span,
            "throttle: refuse_after is 0; to have nobody wait, write queue = 0".into(),
        );
    }
    if let Some(wait) = table.wait.as_ref().filter(|wait| wait.0 >= refuse_after) {
        report(
            &wait.span,
            format!("throttle: a request is refused after {refuse_after:?} already"),
        );
    }
    Some(ConcurrencyRules {
        concurrent: concurrent.value,
        queue: number(&table.queue).unwrap_or(100),
        most: number(&table.most).unwrap_or(concurrent.value),
        wait: table.wait.as_deref().map(|span| span.0),
        refuse_after,
        share: number(&table.share),
        dry_run: table.dry_run.unwrap_or(false),
    })
}
