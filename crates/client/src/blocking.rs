//! The client for programs without a runtime: each call blocks its thread.

use std::fmt;
use std::io::{self, BufRead, Read};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use dunlin_http::ResponseHead;
use tokio::runtime::{Builder, Runtime};

use crate::{Client, Error, Exchange, Full, Origin, Request, Timeouts};

/// A client of one server that blocks. Clones share their connections.
#[derive(Clone)]
pub struct BlockingClient {
    runtime: Arc<Runtime>,
    client: Client,
    origin: Origin,
    timeouts: Timeouts,
}

/// A response whose body is read as it comes.
pub struct BlockingResponse {
    runtime: Arc<Runtime>,
    exchange: Exchange<Full>,
    head: ResponseHead,
    chunk: Bytes,
}

/// Most bytes of a body that [`BlockingResponse::text`] reads.
const MAX_TEXT: usize = 64 << 20;

impl BlockingClient {
    /// Returns a client of `origin`.
    ///
    /// # Errors
    /// If the system lacks a resource that the runtime needs.
    pub fn new(origin: &Origin) -> io::Result<Self> {
        Ok(Self {
            runtime: Arc::new(Builder::new_current_thread().enable_all().build()?),
            client: Client::default(),
            origin: origin.clone(),
            timeouts: Timeouts::default(),
        })
    }

    /// Creates the same client with other limits of time.
    #[must_use]
    pub fn with_timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Requests `target`, a path with its query.
    ///
    /// # Errors
    /// If there is no response.
    pub fn get(&self, target: &str) -> Result<BlockingResponse, Error> {
        self.send(Request::new(&self.origin, "GET", target), Bytes::new())
    }

    /// Sends `body` to `target`, a path with its query.
    ///
    /// # Errors
    /// If there is no response.
    pub fn post(
        &self,
        target: &str,
        media_type: &str,
        body: impl Into<Bytes>,
    ) -> Result<BlockingResponse, Error> {
        let mut request = Request::new(&self.origin, "POST", target);
        request.head.fields.push("Content-Type", media_type);
        self.send(request, body)
    }

    fn send(
        &self,
        mut request: Request,
        body: impl Into<Bytes>,
    ) -> Result<BlockingResponse, Error> {
        request.head.fields.push("User-Agent", concat!("dunlin/", env!("CARGO_PKG_VERSION")));
        request.timeouts = self.timeouts;
        let body = Full::new(body);
        let (exchange, head) = self.runtime.block_on(async {
            // Nothing has driven the runtime since the last call: the first turn learns of what has arrived, the others
            // let the tasks of connections find those that have ended.
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            let mut exchange = self.client.send(request, body).await?;
            let head = exchange.final_head().await?;
            Ok::<_, Error>((exchange, head))
        })?;
        let runtime = Arc::clone(&self.runtime);
        Ok(BlockingResponse { runtime, exchange, head, chunk: Bytes::new() })
    }
}

impl BlockingResponse {
    /// Returns the status code.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// Returns the value of a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.head.fields.get(name)
    }

    /// Returns the whole body as text.
    ///
    /// # Errors
    /// If the body is broken off or is larger than 64 MiB.
    pub fn text(mut self) -> Result<String, Error> {
        let body = self.runtime.block_on(self.exchange.collect(MAX_TEXT))?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}

impl BufRead for BlockingResponse {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.chunk.is_empty() {
            let next = self.runtime.block_on(self.exchange.data());
            self.chunk = next.transpose().map_err(io::Error::other)?.unwrap_or_default();
        }
        Ok(&self.chunk)
    }

    fn consume(&mut self, count: usize) {
        self.chunk.advance(count);
    }
}

impl Read for BlockingResponse {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.len().min(into.len());
        into[..count].copy_from_slice(&self.chunk[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl fmt::Debug for BlockingClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingClient").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl fmt::Debug for BlockingResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingResponse").field("head", &self.head).finish_non_exhaustive()
    }
}
