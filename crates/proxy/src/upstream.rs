//! One upstream, as all workers share it.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use dunlin_client::{Connection, Dial, Origin, Timeouts};
use dunlin_config::{ConcurrencyRules, Proxy, UpstreamAddress};
use dunlin_limits::concurrency::Concurrency;
use dunlin_net::clock;
use dunlin_net::log_limiter::LogLimiter;
use dunlin_telemetry::{RequestLabel, ScriptContext};

use crate::address;
use crate::failure::Failure;
use crate::health::{Health, ResponseTime};
use crate::idle::SharedIdlePool;
use crate::label::{Label, log_failure};
use crate::resolve::Resolved;
use crate::sticky_token::upstream_token;
use crate::tls::Outcome;

/// An upstream.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// No other upstream of the process has or had this number.
    pub(crate) id: usize,
    /// The name in logs: the address as in the configuration.
    pub(crate) name: Arc<str>,
    pub(crate) address: UpstreamAddress,
    /// The name in the cookie that keeps clients at the upstream; empty if there is no such cookie.
    pub(crate) cookie: Box<str>,
    target: Target,
    /// The number by which workers keep its idle connections: another one after a change of certificates.
    pool: AtomicUsize,
    pub(crate) resolved: Resolved,
    /// Connections that are in use for requests.
    pub(crate) connections: Arc<Concurrency>,
    /// Connections that use another protocol.
    pub(crate) tunnels: Arc<Concurrency>,
    /// Idle connections that workers share.
    pub(crate) shared_idle: SharedIdlePool,
    /// The share of the requests, relative to those of the others.
    pub(crate) weight: u32,
    /// Those with a higher number get requests only if none with a lower one can.
    pub(crate) priority: u16,
    /// Requests that it works on.
    pub(crate) in_flight: AtomicUsize,
    pub(crate) health: Health,
    response_time: ResponseTime,
    pub(crate) counts: Counts,
    /// The time and the reason of the last failure.
    last_failure: Mutex<Option<(SystemTime, String)>>,
    log_limiter: LogLimiter,
}

/// The target of a connection.
#[derive(Debug)]
enum Target {
    Plain(Origin),
    /// Changes with the files of certificates; or why they cannot be used.
    Tls(RwLock<Result<Origin, String>>),
}

/// Counters since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: AtomicU64,
    /// Attempts that brought no response.
    pub(crate) failures: AtomicU64,
    /// Connections that were opened.
    pub(crate) opened: AtomicU64,
    /// Connections that use another protocol now.
    pub(crate) tunnels: AtomicU64,
}

/// The state of an upstream, for the status page and metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UpstreamReport {
    /// The address as in the configuration.
    pub name: String,
    /// Requests that it works on.
    pub in_flight: u64,
    /// Requests that wait for a connection.
    pub waiting: u64,
    /// Requests that it was sent.
    pub requests: u64,
    /// Attempts that brought no response.
    pub failures: u64,
    /// Connections that were opened.
    pub connections: u64,
    /// Connections that use another protocol, such as WebSocket.
    pub tunnels: u64,
    /// It gets requests: neither have its requests failed lately, nor its health checks.
    pub is_available: bool,
    /// Requests in a row, up to the last one, that have failed.
    pub failing: u64,
    /// The time and the reason of the last failure.
    pub last_failure: Option<(SystemTime, String)>,
}

static LAST_ID: AtomicUsize = AtomicUsize::new(0);

impl Upstream {
    /// `tls` is for an upstream with TLS.
    pub(crate) fn new(upstream: &dunlin_config::Upstream, rules: &Proxy, tls: &Outcome) -> Self {
        let origin = address::origin(&upstream.address, rules, tls);
        let target = match origin {
            Ok(origin) if !origin.is_secure() => Target::Plain(origin),
            origin => Target::Tls(RwLock::new(origin)),
        };
        let id = LAST_ID.fetch_add(1, Ordering::Relaxed);
        let limit = |max_concurrent, queue| {
            Arc::new(Concurrency::new(ConcurrencyRules {
                max_concurrent,
                queue,
                burst_concurrent: max_concurrent,
                burst_after: None,
                queue_timeout: rules.queue_timeout,
                max_per_client: None,
                dry_run: false,
            }))
        };
        Self {
            id,
            pool: AtomicUsize::new(id),
            target,
            cookie: upstream_token(rules.sticky.as_ref(), &upstream.address.to_string()),
            name: upstream.address.to_string().into(),
            address: upstream.address.clone(),
            resolved: Resolved::all(&upstream.address),
            connections: limit(rules.connections, rules.queue),
            tunnels: limit(rules.tunnels, 0),
            shared_idle: SharedIdlePool::default(),
            weight: upstream.weight,
            priority: 0,
            in_flight: AtomicUsize::new(0),
            health: Health::default(),
            response_time: ResponseTime::default(),
            counts: Counts::default(),
            last_failure: Mutex::default(),
            log_limiter: LogLimiter::new(),
        }
    }

    /// Creates the same with this priority.
    pub(crate) fn with_priority(self, priority: u16) -> Self {
        Self { priority, ..self }
    }

    /// Returns the same at one of the addresses of its name. Logs and reports call it `name`.
    pub(crate) fn at(self, address: IpAddr, name: &str, rules: &Proxy) -> Self {
        let cookie = upstream_token(rules.sticky.as_ref(), name);
        Self { name: name.into(), cookie, resolved: Resolved::only(address), ..self }
    }

    /// Returns the origin of the upstream.
    ///
    /// # Errors
    /// It needs TLS, and the certificates cannot be used: the reason.
    pub(crate) fn origin(&self) -> Result<Origin, String> {
        match &self.target {
            Target::Plain(origin) => Ok(origin.clone()),
            Target::Tls(origin) => origin.read().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// Has further requests use new connections with this configuration.
    pub(crate) fn set_tls(&self, rules: &Proxy, tls: &Outcome) {
        let Target::Tls(origin) = &self.target else { return };
        *origin.write().unwrap_or_else(PoisonError::into_inner) =
            address::origin(&self.address, rules, tls);
        self.pool.store(LAST_ID.fetch_add(1, Ordering::Relaxed), Ordering::Release);
    }

    /// Returns the number of the pool that a connection is taken from or put into.
    pub(crate) fn pool(&self) -> usize {
        self.pool.load(Ordering::Acquire)
    }

    /// Notes the time of a response.
    pub(crate) fn note_time(&self, time: Duration) {
        self.response_time.note(time, clock::now());
    }

    /// Returns how long a request probably takes, relative to its weight.
    pub(crate) fn load(&self, now: Instant) -> f64 {
        // Before the first response, an upstream is taken for a fast one.
        let nanos = self.response_time.nanos(now).max(1);
        nanos as f64 * self.requests_per_weight()
    }

    /// Requests in progress, with the next one, relative to its weight.
    pub(crate) fn requests_per_weight(&self) -> f64 {
        (self.in_flight.load(Ordering::Relaxed) + 1) as f64 / f64::from(self.weight)
    }

    /// Counts a failure, and logs it at most once a second. `result` is what follows for the client.
    pub(crate) fn report_failure(
        &self,
        reason: &str,
        result: &str,
        request: (&dyn Label, &ScriptContext),
    ) {
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
        let mut last = self.last_failure.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((SystemTime::now(), reason.to_owned()));
        drop(last);
        self.log(|upstream| log_failure(Some(upstream), request, reason, result));
    }

    /// Logs a response that a client cannot get, which is not a failure of the upstream.
    pub(crate) fn log_rejected_response(
        &self,
        failure: &Failure,
        (request, script_context): (&dyn Label, &ScriptContext),
    ) {
        let (reason, status) = (failure.reason(), failure.status());
        self.log(|upstream| {
            let RequestLabel { method, url, route, client } = request.label(script_context);
            let request_id = script_context.id();
            tracing::warn!(
                upstream,
                method,
                url,
                route,
                client,
                request_id,
                "{reason}; the response is {status}"
            );
        });
    }

    /// Calls `log` with the name, at most once a second.
    pub(crate) fn log(&self, log: impl FnOnce(&str)) {
        if self.log_limiter.is_due() {
            log(&self.name);
        }
    }

    /// Opens a connection that begins with `preface`. `servers` resolve the name.
    ///
    /// # Errors
    /// The upstream cannot be reached.
    pub(crate) async fn open(
        &self,
        servers: &[SocketAddr],
        origin: &Origin,
        timeouts: Timeouts,
        preface: &[u8],
    ) -> Result<Connection, Failure> {
        let addresses = self.addresses(servers).await?;
        let dial = Dial { addresses: addresses.as_deref(), preface, timeouts };
        Connection::open(origin, &dial).await.map_err(|error| Failure::of_client(&error))
    }

    pub(crate) fn report(&self) -> UpstreamReport {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        UpstreamReport {
            name: self.name.to_string(),
            in_flight: self.in_flight.load(Ordering::Relaxed) as u64,
            waiting: self.connections.counts().waiting as u64,
            requests: count(&self.counts.requests),
            failures: count(&self.counts.failures),
            connections: count(&self.counts.opened),
            tunnels: count(&self.counts.tunnels),
            is_available: self.health.is_available(clock::now()),
            failing: self.health.failures().into(),
            last_failure: self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}
