//! Active health checks.

use std::net::SocketAddr;
use std::rc::{self, Rc};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use dunlin_client::{Empty, Request, Timeouts};
use dunlin_config::{HealthCheck, Proxy};
use dunlin_net::clock;

use crate::address;
use crate::group::Group;
use crate::pool::WorkerProxy;
use crate::proxy_header;
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
            while let Some(wait) = check_if_due(&worker, &group) {
                let now = clock::now();
                deadlines.until(now + wait, now).await;
            }
        });
    }
}

/// Begins to check the upstreams if that is due. Returns the time to the next check; `None` when the group is gone.
fn check_if_due(worker: &rc::Weak<WorkerProxy>, group: &Weak<Group>) -> Option<Duration> {
    let (group, worker) = (group.upgrade()?, worker.upgrade()?);
    let check = group.rules.health.as_ref()?;
    let interval = check.interval;
    if !group.begins_check(check, clock::now()) {
        return Some(interval);
    }
    let upstreams = group.last_upstreams();
    upstreams.iter().for_each(|upstream| begin(&worker, &group.rules, upstream));
    if group.has_services()
        && let Some(taken) = group.resolving.take()
    {
        tokio::task::spawn_local(async move {
            let _taken = taken;
            // The failure was logged.
            drop(group.present(&worker).await);
            let known = |it: &Arc<Upstream>| upstreams.iter().any(|other| other.id == it.id);
            let new = group.last_upstreams().into_iter().filter(|upstream| !known(upstream));
            new.for_each(|upstream| begin(&worker, &group.rules, &upstream));
        });
    }
    Some(interval)
}

/// Begins to check an upstream. One that does not respond is not checked again meanwhile, and delays no other.
fn begin(worker: &WorkerProxy, rules: &Arc<Proxy>, upstream: &Arc<Upstream>) {
    let Some(taken) = upstream.health.checking.take() else { return };
    let (rules, servers, upstream) =
        (Arc::clone(rules), worker.name_servers(), Arc::clone(upstream));
    tokio::task::spawn_local(async move {
        let _taken = taken;
        check(&servers, &rules, &upstream).await;
    });
}

/// Checks an upstream, and notes the result.
async fn check(servers: &[SocketAddr], rules: &Proxy, upstream: &Upstream) {
    let Some(check) = &rules.health else { return };
    let error = probe(servers, rules, upstream, check).await.err();
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

impl Group {
    /// Returns `true` if this worker makes the check that is due.
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
    servers: &[SocketAddr],
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
    let preface = proxy_header::own(rules);
    let connection = upstream.open(servers, &origin, request.timeouts, &preface).await;
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

#[cfg(test)]
mod tests {
    use dunlin_net::deadlines::Deadlines;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tokio::task::LocalSet;

    use super::*;
    use crate::testing::rules;

    /// Returns a server that accepts connections, and responds with `response` or not at all.
    async fn server(response: Option<&'static str>) -> (String, Rc<std::cell::Cell<usize>>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let connections = Rc::new(std::cell::Cell::new(0));
        let count = Rc::clone(&connections);
        tokio::task::spawn_local(async move {
            let mut open = Vec::new();
            while let Ok((mut connection, _)) = listener.accept().await {
                count.set(count.get() + 1);
                if let Some(response) = response {
                    connection.write_all(response.as_bytes()).await.unwrap();
                }
                open.push(connection);
            }
        });
        (url, connections)
    }

    async fn wait_until(is_true: impl Fn() -> bool) {
        for _ in 0..3000 {
            if is_true() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("it does not become true");
    }

    #[tokio::test]
    async fn upstreams_that_hang_delay_the_check_of_no_other_and_are_checked_once() {
        let test = async {
            let (mut urls, mut hanging) = (Vec::new(), Vec::new());
            for _ in 0..4 {
                let (url, connections) = server(None).await;
                urls.push(format!("'{url}'"));
                hanging.push(connections);
            }
            let error = "HTTP/1.1 500 x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let (url, failing) = server(Some(error)).await;
            urls.push(format!("'{url}'"));
            let keys = format!(
                "to = [{}], health = {{ path = '/', failures = 2, timeout = '60s' }}",
                urls.join(", ")
            );
            let group = Arc::new(Group::new(&rules(&keys)));
            let workers =
                [(); 2].map(|()| WorkerProxy::new(&Rc::new(Deadlines::new(Rc::default()))));
            let begin_all = || {
                for worker in &workers {
                    let (worker, group) = (Rc::downgrade(worker), Arc::downgrade(&group));
                    assert!(check_if_due(&worker, &group).is_some());
                }
            };
            begin_all();
            wait_until(|| hanging.iter().all(|count| count.get() == 1)).await;
            let last = &group.upstreams[4].health;
            wait_until(|| last.checking.take().is_some()).await;
            assert!(last.is_available(clock::now()), "one failure is too few");
            // The next round.
            group.checked.store(0, Ordering::Relaxed);
            begin_all();
            wait_until(|| !last.is_available(clock::now())).await;
            assert_eq!(failing.get(), 2);
            for (upstream, connections) in group.upstreams.iter().zip(hanging) {
                assert!(upstream.health.is_available(clock::now()) && connections.get() == 1);
            }
        };
        LocalSet::new().run_until(test).await;
    }
}
