//! The content of objects that are not in the cache: it arrives, or is requested from the store for each response.

use std::fmt;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::client::Client;
use super::download::Download;
use super::once::{Promise, SharedOnce};
use super::remote::{Broken, ContentReader, RemoteContent};
use super::store::{GetRequest, Got, Later, ObjectBody, ObjectMetadata, StoreError};

/// Content that arrives once for all responses.
#[derive(Debug, Clone)]
pub(super) struct Downloading {
    pub(super) download: Arc<Download>,
    /// Set when it is in the cache, or will never be.
    pub(super) finished: Arc<SharedOnce<()>>,
}

/// The content of an object that does not fit into the cache: each response requests its ranges.
#[derive(Debug, Clone)]
pub(super) struct Streamed {
    pub(super) client: Arc<Client>,
    pub(super) key: String,
    pub(super) metadata: ObjectMetadata,
    /// The body of the response by which the object was found, for the first response.
    pub(super) begun: Option<Arc<StreamedBody>>,
}

/// A body that one response takes.
pub(super) struct StreamedBody(Mutex<Option<Box<dyn ObjectBody>>>);

/// A reader of a response of the store.
#[derive(Debug)]
struct Reader {
    /// The pieces that have arrived, few at a time.
    chunks: mpsc::Receiver<Bytes>,
    /// Bytes that are missing.
    left: u64,
}

/// Chunks that wait for a client. The store's connection is not read beyond them.
const CHUNKS: usize = 1;

impl StreamedBody {
    pub(super) fn new(body: Box<dyn ObjectBody>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(body))))
    }

    fn take(&self) -> Option<Box<dyn ObjectBody>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for StreamedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamedBody")
    }
}

impl RemoteContent for Downloading {
    fn open(&self, range: Range<u64>) -> Later<Result<Box<dyn ContentReader>, StoreError>> {
        let reader = self.download.read(range);
        Box::pin(async move { Ok(Box::new(reader) as Box<dyn ContentReader>) })
    }

    fn arrived(&self) -> Option<Later<()>> {
        let finished = Arc::clone(&self.finished);
        Some(Box::pin(async move { finished.wait().await }))
    }
}

impl RemoteContent for Streamed {
    fn open(&self, range: Range<u64>) -> Later<Result<Box<dyn ContentReader>, StoreError>> {
        let this = self.clone();
        Box::pin(async move { this.opened(range).await })
    }

    fn arrived(&self) -> Option<Later<()>> {
        None
    }
}

impl Streamed {
    async fn opened(self, range: Range<u64>) -> Result<Box<dyn ContentReader>, StoreError> {
        let (sender, chunks) = mpsc::channel(CHUNKS);
        let left = range.end - range.start;
        let begun = self.begun.as_ref().filter(|_| range.start == 0).and_then(|begun| begun.take());
        let opened = Arc::new(SharedOnce::default());
        let result = Promise::new(&opened, Err(StoreError::abandoned()));
        let handle = self.client.handle.clone();
        handle.spawn(async move {
            let body = match begun {
                Some(body) => Ok(body),
                None => self.request(range).await,
            };
            match body {
                Ok(body) => {
                    result.keep(Ok(()));
                    self.forward(body, left, &sender).await;
                }
                Err(error) => result.keep(Err(error)),
            }
        });
        opened.wait().await?;
        Ok(Box::new(Reader { chunks, left }))
    }

    async fn request(&self, range: Range<u64>) -> Result<Box<dyn ObjectBody>, StoreError> {
        let whole = range == (0..self.metadata.size);
        let request = GetRequest {
            key: self.key.clone(),
            unless: None,
            only: Some(self.metadata.version.clone()),
            range: (!whole).then_some(range),
        };
        match self.client.get(request).await? {
            // Without an entity tag the store cannot compare versions.
            Got::Object(metadata, body) if metadata.size == self.metadata.size => Ok(body),
            _ => Err(StoreError::Changed),
        }
    }

    /// Forwards the body as the client takes it.
    async fn forward(
        &self,
        mut body: Box<dyn ObjectBody>,
        mut left: u64,
        to: &mpsc::Sender<Bytes>,
    ) {
        let counters = &self.client.counters;
        while left > 0 {
            // No further chunk is read while one waits. An error means that the client is gone.
            let Ok(place) = to.reserve().await else { return };
            let limit = self.client.rules.timeout;
            let next = timeout(limit, poll_fn(|cx| body.poll_next(cx))).await;
            let Ok(Some(Ok(mut bytes))) = next else {
                counters.errors.fetch_add(1, Ordering::Relaxed);
                return;
            };
            bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            left -= bytes.len() as u64;
            counters.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            place.send(bytes);
        }
    }
}

impl ContentReader for Reader {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        if self.left == 0 {
            return Poll::Ready(Ok(None));
        }
        self.chunks.poll_recv(cx).map(|bytes| {
            let bytes = bytes.ok_or(Broken)?;
            self.left = self.left.saturating_sub(bytes.len() as u64);
            Ok(Some(bytes))
        })
    }
}
