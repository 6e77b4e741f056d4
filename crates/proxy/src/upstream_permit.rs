//! A request's right to use an upstream.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dunlin_client::{
    Connection, Dial, Error, ErrorKind, OpenStream, Origin, Request, SharedConnection, Timeouts,
};
use dunlin_config::Proxy;
use dunlin_http::BodySize;
use dunlin_limits::concurrency::{Entry, Permit};
use dunlin_net::clock;

use crate::failure::{Failure, Kind};
use crate::group::Group;
use crate::idle::Reuse;
use crate::link::Link;
use crate::pool::{Selected, WorkerProxy};
use crate::upstream::Upstream;

/// A request's right to use a connection of an upstream, or a tunnel's. It counts until it is dropped.
#[derive(Debug)]
pub(crate) struct UpstreamPermit {
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) rules: Arc<Proxy>,
    pub(crate) worker: Rc<WorkerProxy>,
    /// The pool of its connection. Read before the origin is: a connection by an older origin is in an older pool.
    pool: usize,
    permit: Permit,
}

/// A stream of a connection that is open, or the right to open another one.
enum Shared {
    Stream(OpenStream),
    Open(tokio::sync::OwnedMutexGuard<()>),
}

impl UpstreamPermit {
    /// Waits until the upstream may have another connection in use. Returns when it may; `now` is the time of the call.
    ///
    /// # Errors
    /// All connections are in use, and too many requests wait or this one has waited too long.
    pub(crate) async fn wait(
        worker: &Rc<WorkerProxy>,
        group: &Group,
        upstream: &Arc<Upstream>,
        now: Instant,
    ) -> Result<(Self, Instant), Failure> {
        let (permit, since) = match upstream.connections.enter(None, now) {
            Entry::Run(permit) => (permit, now),
            Entry::Wait(waiter) => {
                let permit = Box::pin(waiter).await;
                let late = || Failure::new(Kind::Busy, "all connections stayed in use");
                (permit.ok_or_else(late)?, clock::now())
            }
            Entry::Busy(_) => {
                let reason = "all connections are in use, and the queue is full";
                return Err(Failure::new(Kind::Busy, reason));
            }
        };
        upstream.in_flight.fetch_add(1, Ordering::Relaxed);
        let permit = Self {
            upstream: Arc::clone(upstream),
            rules: Arc::clone(&group.rules),
            worker: Rc::clone(worker),
            pool: upstream.pool(),
            permit,
        };
        Ok((permit, since))
    }

    /// Has the connection, which uses another protocol now, count as a tunnel.
    ///
    /// # Errors
    /// The upstream has as many tunnels as it may have.
    pub(crate) fn become_tunnel(&mut self) -> Result<(), Failure> {
        match self.upstream.tunnels.enter(None, clock::now()) {
            Entry::Run(permit) => {
                self.permit = permit;
                Ok(())
            }
            Entry::Wait(_) | Entry::Busy(_) => Err(Failure::new(
                Kind::Busy,
                "all connections for other protocols are in use (`tunnels`)",
            )),
        }
    }

    /// Returns a connection for a request with a body of this `size`, and whether it was open before. A new one begins with
    /// `preface`; if there is one, the connection is for this request alone. `now` is approximately the current time.
    ///
    /// # Errors
    /// The upstream cannot be reached.
    pub(crate) async fn connect(
        &self,
        reuse: Reuse,
        request: &Request,
        size: BodySize,
        preface: &[u8],
        now: Instant,
    ) -> Result<(Link, bool), Failure> {
        let reuse = if preface.is_empty() { reuse } else { Reuse::None };
        if self.upstream.address.is_http2() {
            return Box::pin(self.open_stream(reuse, request, size, preface)).await;
        }
        if let Some(connection) = self.worker.take(&self.upstream, self.pool, reuse, now) {
            return Ok((Link::Http1(connection), true));
        }
        Ok((Link::Http1(Box::pin(self.open(&request.origin, preface)).await?), false))
    }

    /// Opens a stream on a connection of HTTP/2 that the worker has, or on a new one.
    async fn open_stream(
        &self,
        reuse: Reuse,
        request: &Request,
        size: BodySize,
        preface: &[u8],
    ) -> Result<(Link, bool), Failure> {
        let opening = match reuse {
            Reuse::None => None,
            _ => match self.in_time(request, self.shared_stream(request, size)).await? {
                Shared::Stream(stream) => return Ok((Link::Http2(stream), true)),
                Shared::Open(opening) => Some(opening),
            },
        };
        self.upstream.counts.opened.fetch_add(1, Ordering::Relaxed);
        let addresses = self.upstream.addresses(&self.worker.name_servers()).await?;
        let origin = &request.origin;
        let is_kept = self.rules.idle_connections > 0;
        let idle_time = if is_kept { self.rules.keep_alive } else { Duration::ZERO };
        let dial = Dial { addresses: addresses.as_deref(), preface, timeouts: self.timeouts() };
        let shared = SharedConnection::open(origin, &dial, idle_time).await;
        let shared = shared.map_err(|error| Failure::of_client(&error))?;
        if preface.is_empty() {
            self.worker.share(self.pool, &shared);
        }
        drop(opening);
        let stream = self.in_time(request, shared.open_stream(request, size)).await?;
        let ended = || Failure::new(Kind::Lost, "the upstream closed the connection at once");
        Ok((Link::Http2(stream.ok_or_else(ended)?), false))
    }

    /// Returns a stream of a connection that the worker has, as soon as the upstream permits one; or the right to open
    /// another connection.
    async fn shared_stream(&self, request: &Request, size: BodySize) -> Result<Shared, Error> {
        let mut opening = None;
        loop {
            match self.worker.select(self.pool, self.rules.connections) {
                Selected::Stream(shared) => {
                    opening = None;
                    if let Some(stream) = shared.open_stream(request, size).await? {
                        return Ok(Shared::Stream(stream));
                    }
                }
                Selected::New(shared) => {
                    opening = None;
                    shared.settled().await;
                }
                Selected::Open(lock) => match opening {
                    Some(opening) => return Ok(Shared::Open(opening)),
                    // Another request may have opened one meanwhile.
                    None => opening = Some(lock.lock_owned().await),
                },
            }
        }
    }

    /// Waits for a stream.
    ///
    /// # Errors
    /// The upstream permits none within the time for connecting, or the request cannot be sent as it is.
    async fn in_time<T>(
        &self,
        request: &Request,
        opened: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Failure> {
        let (now, limit) = (clock::now(), self.rules.connect_timeout);
        let opened = self.worker.deadlines.before(now + limit, now, opened).await;
        // An extended CONNECT also waits for the settings of the upstream.
        let is_extended = request.head.protocol.is_some();
        let late = || match is_extended {
            true => "no SETTINGS, or no stream permitted, within `connect_timeout`",
            false => {
                "no connection, or it permits no further stream (SETTINGS_MAX_CONCURRENT_STREAMS), within `connect_timeout`"
            }
        };
        let opened = opened.ok_or_else(|| Failure::new(Kind::ConnectTimeout, late()))?;
        opened.map_err(|error| match error.kind() {
            // The upstream is the cause, not the request.
            ErrorKind::InvalidRequest if is_extended => Failure::new(Kind::Upgrade, error.reason()),
            _ => Failure::of_client(&error),
        })
    }

    fn timeouts(&self) -> Timeouts {
        let limit = Some(self.rules.connect_timeout);
        Timeouts { connect: limit, tls: limit, ..Timeouts::none() }
    }

    async fn open(&self, origin: &Origin, preface: &[u8]) -> Result<Connection, Failure> {
        self.upstream.counts.opened.fetch_add(1, Ordering::Relaxed);
        self.upstream.open(&self.worker.name_servers(), origin, self.timeouts(), preface).await
    }

    /// Keeps the connection, which is idle since `now`, for another request.
    pub(crate) fn give_back(&self, connection: Option<Connection>, now: Instant) {
        if let Some(connection) = connection
            && self.rules.proxy_protocol.is_none()
        {
            self.worker.put(&self.upstream, self.pool, &self.rules, connection, now);
        }
    }
}

impl Drop for UpstreamPermit {
    fn drop(&mut self) {
        self.upstream.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
