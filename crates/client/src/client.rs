//! Sending requests.

use std::sync::Arc;

use dunlin_http::RequestHead;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::body::Body;
use crate::connect::{connect, within};
use crate::exchange::Exchange;
use crate::http1::Http1;
use crate::pool::{Pool, PoolLimits};
use crate::{Error, ErrorKind, Origin, Phase, Timeouts, Url};

/// An HTTP client: a handle of a pool of connections. Clones share the pool.
#[derive(Debug, Clone, Default)]
pub struct Client {
    pool: Arc<Pool>,
}

/// A request without its body.
#[derive(Debug, Clone)]
pub struct Request {
    /// The server that the request goes to.
    pub origin: Origin,
    /// Method, target and fields.
    pub head: RequestHead,
    /// Limits of time.
    pub timeouts: Timeouts,
}

impl Request {
    /// A request for `target` of `origin`. Its authority is that of the origin.
    #[must_use]
    pub fn new(origin: &Origin, method: &str, target: &str) -> Self {
        Self {
            origin: origin.clone(),
            head: RequestHead::new(method, &origin.authority(), target),
            timeouts: Timeouts::default(),
        }
    }

    /// A request for `url`, which `origin` serves.
    #[must_use]
    pub fn for_url(origin: &Origin, method: &str, url: &Url) -> Self {
        Self {
            origin: origin.clone(),
            head: RequestHead::new(method, url.authority(), url.target()),
            timeouts: Timeouts::default(),
        }
    }
}

impl Client {
    /// A client with an empty pool.
    #[must_use]
    pub fn new(limits: PoolLimits) -> Self {
        Self { pool: Arc::new(Pool::new(limits)) }
    }

    /// Sends a request and waits for the first head of the response, interim or final, which [`Exchange::head`] returns.
    ///
    /// An idle connection may end at the moment it is used. The client then repeats the request on a new connection, if
    /// the method is idempotent (RFC 9110 §9.2.2) and the body can restart.
    ///
    /// # Errors
    /// If there is no response; [`Error::kind`] says what failed.
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
        if let Some(http1) = self.pool.take(&request.origin) {
            let pool = Arc::clone(&self.pool);
            let mut exchange = Exchange::begin(pool, permit, http1, request, body, end)?;
            match exchange.wait_for_response().await {
                Ok(()) => return Ok(exchange),
                Err(error) if !error.is_unanswered => return Err(error),
                Err(error) => {
                    let (held, rest) = exchange.into_parts();
                    (permit, body) = match held {
                        Some(held) => (held, rest),
                        None => return Err(error),
                    };
                    if !is_idempotent(&request.head.method) || !body.restart() {
                        return Err(error);
                    }
                }
            }
        }
        let stream = connect(&request.origin, &request.timeouts).await?;
        let (pool, http1) = (Arc::clone(&self.pool), Box::new(Http1::new(stream)));
        let mut exchange = Exchange::begin(pool, permit, http1, request, body, end)?;
        exchange.wait_for_response().await?;
        Ok(exchange)
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

/// Whether a request of that method may be repeated (RFC 9110 §9.2.2).
fn is_idempotent(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE")
}
