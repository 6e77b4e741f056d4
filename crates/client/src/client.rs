//! Sending requests.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::body::Body;
use crate::connect::{Dial, connect, within};
use crate::exchange::{Exchange, PoolPermit};
use crate::http1::Http1;
use crate::http2::Http2;
use crate::pool::{Pool, PoolLimits};
use crate::transport::Transport;
use crate::{Error, ErrorKind, Phase, Request};

/// An HTTP client: a handle of a pool of connections. Clones share the pool.
#[derive(Debug, Clone, Default)]
pub struct Client {
    pool: Arc<Pool>,
}

impl Client {
    /// Creates a client with an empty pool.
    #[must_use]
    pub fn new(limits: PoolLimits) -> Self {
        Self { pool: Arc::new(Pool::new(limits)) }
    }

    /// Sends a request and waits for the first head of the response, interim or final, which [`Exchange::head`] returns.
    ///
    /// An idle connection may end at the moment it is used. The client then repeats the request on a new connection, if
    /// the method is idempotent (RFC 9110 §9.2.2) and the body can restart. It also repeats a request that the server
    /// has stated not to have processed (RFC 9113 §8.7).
    ///
    /// # Errors
    /// If there is no response; [`Error::kind`] names what failed.
    pub async fn send<B: Body>(&self, request: Request, body: B) -> Result<Exchange<B>, Error> {
        let end = request.timeouts.total.map(|limit| Instant::now() + limit);
        let Some(end) = end else { return self.attempt(&request, body, None).await };
        match tokio::time::timeout_at(end, self.attempt(&request, body, Some(end))).await {
            Ok(result) => result,
            Err(_) => Err(Error::timeout(Phase::Total, &request.origin)),
        }
    }

    async fn attempt<B: Body>(
        &self,
        request: &Request,
        mut body: B,
        end: Option<Instant>,
    ) -> Result<Exchange<B>, Error> {
        let mut permit = self.permit(request).await?;
        let mut is_repeated = false;
        loop {
            let reused = if is_repeated { None } else { self.reuse(request, &body).await? };
            let is_reused = reused.is_some();
            let transport = match reused {
                Some(transport) => transport,
                None => self.open(request, &body).await?,
            };
            let held = Some(PoolPermit { pool: Arc::clone(&self.pool), permit });
            let mut exchange = Exchange::begin(held, transport, request, body, end)?;
            let Err(error) = exchange.wait_for_response().await else { return Ok(exchange) };
            let was_lost = is_reused && error.is_without_response;
            let may_repeat =
                error.is_unprocessed || was_lost && is_idempotent(&request.head.method);
            let (Some(held), mut rest) = exchange.into_parts() else { return Err(error) };
            if !may_repeat || is_repeated || !rest.restart() {
                return Err(error);
            }
            (permit, body, is_repeated) = (held, rest, true);
        }
    }

    /// Returns a connection of the pool: an idle one of HTTP/1.1, or a stream on one of HTTP/2.
    async fn reuse<B: Body>(
        &self,
        request: &Request,
        body: &B,
    ) -> Result<Option<Transport>, Error> {
        if let Some(http1) = self.pool.take(&request.origin) {
            return Ok(Some(Transport::Http1(http1)));
        }
        match self.pool.http2(&request.origin) {
            Some(http2) => self.open_stream(&http2, request, body).await,
            None => Ok(None),
        }
    }

    /// Returns a new connection.
    async fn open<B: Body>(&self, request: &Request, body: &B) -> Result<Transport, Error> {
        let stream =
            connect(&request.origin, &Dial { timeouts: request.timeouts, ..Dial::default() })
                .await?;
        if !request.origin.has_prior_knowledge() && !stream.has_selected_http2() {
            return Ok(Transport::Http1(Box::new(Http1::new(stream))));
        }
        let idle_time = self.pool.limits().idle_time;
        let http2 = Http2::start(stream, request.origin.is_secure(), idle_time);
        self.pool.put_http2(&request.origin, &http2);
        let stream = self.open_stream(&http2, request, body).await?;
        stream.ok_or_else(|| {
            let reason = "the server closed the connection at once";
            Error::new(ErrorKind::Connection, &request.origin, reason)
        })
    }

    async fn open_stream<B: Body>(
        &self,
        http2: &Http2,
        request: &Request,
        body: &B,
    ) -> Result<Option<Transport>, Error> {
        let invalid = |error| Error::new(ErrorKind::InvalidRequest, &request.origin, error);
        let stream = async { http2.open(&request.head, body.size()).await.map_err(invalid) };
        let stream = within(Phase::Wait, request.timeouts.wait, &request.origin, stream).await?;
        Ok(stream.map(Transport::Http2))
    }

    /// Waits until the origin may have another connection in use.
    async fn permit(&self, request: &Request) -> Result<OwnedSemaphorePermit, Error> {
        let permits = self.pool.permits(&request.origin);
        let wait = async {
            let closed = |error| Error::new(ErrorKind::Connection, &request.origin, error);
            permits.acquire_owned().await.map_err(closed)
        };
        within(Phase::Wait, request.timeouts.wait, &request.origin, wait).await
    }
}

/// Returns `true` if a request of that method may be repeated (RFC 9110 §9.2.2).
fn is_idempotent(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE")
}
