//! Limits and throttles of a route, from the file to what all workers share.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use dunlin_http::semantics::is_token;

use super::at::At;
use super::file::{Auth, RateLimitTable, Route, ShareBy, ThrottleTable};
use super::settings::Report;
use super::sites::{Site, SiteRoute};
use super::units::Rate;
use crate::checks::{
    Bandwidth, BandwidthRules, Concurrency, ConcurrencyRules, Limited, RateKey, RateLimit,
    RateRules, RouteCounts, Share, Throttle,
};

/// The limit that all settings share which are made of `table`.
pub(super) fn limit(table: &RateLimitTable, report: Report<'_>) -> Arc<RateLimit> {
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
    table.made.get_or_make(|| {
        RateLimit::new(RateRules {
            requests: requests.times,
            period: requests.period,
            burst: table.burst.as_deref().copied().unwrap_or(requests.times),
            by: by.unwrap_or(RateKey::Address),
            sends_fields: table.tell.unwrap_or(false),
            dry_run: table.dry_run.unwrap_or(false),
        })
    })
}

/// The throttle that all settings share which are made of `table`.
pub(super) fn throttle(table: &At<ThrottleTable>, report: Report<'_>) -> Arc<Throttle> {
    let bandwidth = bandwidth(table, report);
    let concurrency = concurrency(table, report);
    if bandwidth.is_none() && concurrency.is_none() {
        let what = "throttle: there is neither `bandwidth` nor `per_connection` nor `concurrent`";
        report(&table.span, what.into());
    }
    table.made.get_or_make(|| Throttle {
        concurrency: concurrency.map(|rules| Arc::new(Concurrency::new(rules))),
        bandwidth: bandwidth.map(|rules| Arc::new(Bandwidth::new(rules))),
        share: match table.per.as_deref() {
            Some(ShareBy::User) => Share::User,
            _ => Share::Address,
        },
        hasher: Default::default(),
    })
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

impl Route {
    /// Goes on with what is known of clients where the same route of an earlier configuration has tables
    /// that say the same: what they have used up of limits, who runs and waits, and who has failed to
    /// log in.
    pub(super) fn keep_state(&mut self, before: &Self) {
        if let (Some(now), Some(then)) = (&mut self.throttle, &before.throttle)
            && now.value == then.value
        {
            now.value.made = then.made.clone();
        }
        let mut then: Vec<_> = before.limit.iter().flat_map(|limits| &limits.value.0).collect();
        for now in self.limit.iter_mut().flat_map(|limits| &mut limits.value.0) {
            if let Some(at) = then.iter().position(|then| *then == now) {
                now.made = then.remove(at).made.clone();
            }
        }
        if let (Some(now), Some(then)) = (&mut self.script, &before.script)
            && now.is_same(then)
        {
            now.value.id = then.id;
        }
        if let Some(At { value: Auth::Table(now), .. }) = &mut self.auth
            && let Some(At { value: Auth::Table(then), .. }) = &before.auth
            && now.basic == then.basic
        {
            now.users = Arc::clone(&then.users);
            now.failures = Arc::clone(&then.failures);
        }
    }
}

impl Site {
    /// What the limits of its routes do and have done.
    pub(crate) fn limits(&self) -> impl Iterator<Item = RouteCounts> {
        self.routes.iter().filter_map(|SiteRoute { route, .. }| {
            let throttle = route.throttle.as_ref().and_then(|table| table.made.get());
            let limits = route.limit.iter().flat_map(|limits| &limits.0);
            let limits: Vec<_> = limits
                .filter_map(|table| table.made.get())
                .map(|limit| limited(limit.rules(), limit.rules().dry_run, limit.counts()))
                .collect();
            (throttle.is_some() || !limits.is_empty()).then(|| RouteCounts {
                site: self.name.clone(),
                route: route.path.value.clone(),
                concurrency: throttle
                    .and_then(|throttle| throttle.concurrency.as_ref())
                    .map(|gate| limited(gate.rules(), gate.rules().dry_run, gate.counts())),
                bandwidth: throttle
                    .and_then(|throttle| throttle.bandwidth.as_ref())
                    .map(|gate| limited(gate.rules(), gate.rules().dry_run, gate.counts())),
                limits,
            })
        })
    }
}

fn limited<C>(rules: &impl Display, dry_run: bool, counts: C) -> Limited<C> {
    Limited { rule: rules.to_string(), dry_run, counts }
}
