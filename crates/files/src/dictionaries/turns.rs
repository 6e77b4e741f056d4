//! The turns of compression with dictionaries.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The turns of compression with dictionaries. After a deploy, a browser requests many files at a time, more than the pool has places
/// for; their requests wait here, so that the pool has room for other files.
#[derive(Debug)]
pub(crate) struct Turns {
    places: Arc<Semaphore>,
    /// Bytes that wait or are compressed.
    bytes: Arc<AtomicU64>,
}

/// A place in the pool. Dropping it gives it to another request.
#[derive(Debug)]
pub(super) struct Turn {
    _place: OwnedSemaphorePermit,
    _bytes: Waiting,
}

#[derive(Debug)]
struct Waiting(Arc<AtomicU64>, u64);

/// Jobs in the pool at a time.
const PLACES: usize = 4;

/// Bytes of jobs beyond which a request does not wait for its turn: they take about a second.
const MAX_WAITING: u64 = 24 << 20;

impl Default for Turns {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(PLACES)), bytes: Arc::default() }
    }
}

impl Turns {
    /// Waits for a turn with a job of that many bytes; `None` if it would take long.
    pub(super) async fn wait(&self, bytes: u64) -> Option<Turn> {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let waiting = Waiting(Arc::clone(&self.bytes), bytes);
        if before > MAX_WAITING {
            return None;
        }
        let place = Arc::clone(&self.places).acquire_owned().await.ok()?;
        Some(Turn { _place: place, _bytes: waiting })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}
