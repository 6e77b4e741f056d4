//! Active health checks.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use dunlin_client::{Empty, Request, Timeouts};
use dunlin_config::{HealthCheck, Proxy};
use dunlin_net::clock;

use crate::address;
use crate::group::Group;
use crate::pool::WorkerProxy;
use crate::preface;
use crate::upstream::Upstream;

impl WorkerProxy {
    /// Checks the health of the upstreams, together with the other workers: one of them checks at a time.
    pub fn check_health(self: &Rc<Self>, group: &Arc<Group>) {
        if group.rules.health.is_none() || !self.begins_checks(group) {
            return;
        }
        let deadlines = Rc::clone(&self.deadlines);
        let (group, worker) = (Arc::downgrade(group), Rc::downgrade(self));
        tokio::task::spawn_local(async move {
            while let Some(wait) = check_if_due(&worker, &group).await {
                let now = clock::now();
                deadlines.until(now + wait, now).await;
            }
        });
    }
}

/// Checks the upstreams if that is due. Returns the time to the next check; `None` when the group is gone.
async fn check_if_due(
    worker: &std::rc::Weak<WorkerProxy>,
    group: &Weak<Group>,
) -> Option<std::time::Duration> {
    let (group, worker) = (group.upgrade()?, worker.upgrade()?);
    let check = group.rules.health.as_ref()?;
    if group.begins_check(check, clock::now()) {
        if group.has_services() {
            // The failure was logged.
            drop(group.present(&worker).await);
        }
        for upstream in &group.last_upstreams() {
            let error = probe(&worker, &group.rules, upstream, check).await.err();
            let needed = if error.is_some() { check.failures } else { check.successes };
            let (name, reason) = (&*upstream.name, error.unwrap_or_default());
            match upstream.health.note_check(reason.is_empty(), needed) {
                Some(true) => {
                    upstream.health.note_recovery(clock::now());
                    tracing::info!(upstream = name, "the upstream is healthy again");
                }
                Some(false) => tracing::warn!(
                    upstream = name,
                    "the health check of the upstream fails: {reason}; it gets no requests"
                ),
                None => {}
            }
        }
    }
    Some(check.interval)
}

impl Group {
    /// Whether this worker makes the check that is due.
    fn begins_check(&self, check: &HealthCheck, now: Instant) -> bool {
        let now = now.saturating_duration_since(self.made).as_millis() as u64 + 1;
        let last = self.checked.load(Ordering::Relaxed);
        // Workers' clocks differ by a tick.
        let is_due = last == 0 || now + 100 >= last + check.interval.as_millis() as u64;
        let claim = |now| {
            self.checked.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        is_due && claim(now)
    }
}

/// Requests the path of the check.
///
/// # Errors
/// Why the upstream is not healthy.
async fn probe(
    worker: &WorkerProxy,
    rules: &Proxy,
    upstream: &Upstream,
    check: &HealthCheck,
) -> Result<(), String> {
    let origin = upstream.origin()?;
    let mut request = Request::new(&origin, "GET", &check.path);
    request.head.authority = address::authority(&upstream.address).into();
    request.head.fields.push("User-Agent", concat!("dunlin/", env!("CARGO_PKG_VERSION")));
    request.head.fields.push("Connection", "close");
    request.timeouts = Timeouts::each(check.timeout);
    let preface = preface::own(rules);
    let connection =
        upstream.open(&worker.name_servers(), &origin, request.timeouts, &preface).await;
    let connection = connection.map_err(|failure| failure.reason().to_owned())?;
    let status =
        async { connection.send(&request, Empty)?.final_head().await.map(|head| head.status) };
    let status = status.await.map_err(|error| error.reason().to_owned())?;
    match check.status {
        Some(wanted) if status == wanted => Ok(()),
        None if (200..400).contains(&status) => Ok(()),
        _ => Err(format!("the status is {status}")),
    }
}
