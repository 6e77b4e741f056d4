//! The contents of directories in object storage.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dunlin_net::clock::monotonic_millis;
use tokio::sync::Semaphore;

use super::client::Client;
use super::once::{Promise, SharedOnce};
use super::store::{ListRequest, StoreError};
use crate::listing::contents::Contents;

/// Listings that were read, and those that are being read.
#[derive(Debug)]
pub(super) struct Listings {
    known: Mutex<HashMap<String, Known>>,
    /// The permits to read listings: content that is being read is not in the cache yet.
    turns: Semaphore,
}

#[derive(Debug, Clone)]
struct Known {
    result: Arc<SharedOnce<Result<Arc<Contents>, StoreError>>>,
    /// Milliseconds of the monotonic clock.
    until: u64,
}

impl Known {
    fn has_failed(&self) -> bool {
        matches!(self.result.get(), Some(Err(_)))
    }
}

/// The number of listings that are read at a time.
const TURNS: usize = 4;
/// The maximum number of names of a directory.
const MAX_NAMES: usize = 1_000_000;
/// The memory for the names of all directories, in bytes.
const MAX_BYTES: usize = 64 << 20;

impl Default for Listings {
    fn default() -> Self {
        Self { known: Mutex::default(), turns: Semaphore::new(TURNS) }
    }
}

impl Listings {
    /// Forgets the directory of a key that has changed, and those above it.
    pub(super) fn forget(&self, key: &str) {
        self.lock().retain(|prefix, _| !key.starts_with(&**prefix));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        // No code panics under the lock.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a listing when it is its turn.
    async fn read(&self, client: &Client, prefix: &str) -> Result<Contents, StoreError> {
        let was_down = client.is_down();
        // Nothing closes the semaphore.
        let _turn = self.turns.acquire().await;
        if client.is_down() && !was_down {
            return Err(StoreError::Failed("it does not respond".into()));
        }
        read(client, prefix).await
    }

    fn make_room(&self) {
        let mut known = self.lock();
        let bytes = |known: &Known| match known.result.get() {
            Some(Ok(contents)) => contents.bytes(),
            _ => 0,
        };
        if known.values().map(bytes).sum::<usize>() > MAX_BYTES || known.len() > 10_000 {
            known.retain(|_, known| known.result.get().is_none());
        }
    }
}

/// Returns the entries of the directory with this prefix. Concurrent requests share one.
///
/// # Errors
/// Why it cannot be listed.
pub(super) async fn contents(
    client: &Arc<Client>,
    listings: &Arc<Listings>,
    prefix: &str,
) -> Result<Arc<Contents>, StoreError> {
    let now = monotonic_millis();
    let (known, begin) = {
        let mut known = listings.lock();
        match known.get(prefix) {
            Some(known)
                if now < known.until && !known.has_failed()
                    || client.is_down() && known.result.get().is_some() =>
            {
                (known.clone(), false)
            }
            _ if !client.health.may_send() => {
                return Err(StoreError::Failed("it does not respond".into()));
            }
            _ => {
                let new = Known { result: Arc::default(), until: u64::MAX };
                known.insert(prefix.to_owned(), new.clone());
                (new, true)
            }
        }
    };
    if begin {
        let (client, listings) = (Arc::clone(client), Arc::clone(listings));
        let promise = Promise::new(&known.result, Err(StoreError::abandoned()));
        let prefix = prefix.to_owned();
        let handle = client.handle.clone();
        handle.spawn(async move {
            let read = listings.read(&client, &prefix).await;
            if let Some(known) = listings.lock().get_mut(&prefix) {
                known.until = monotonic_millis() + client.revalidate();
            }
            promise.keep(read.map(Arc::new));
            listings.make_room();
        });
    }
    known.result.wait().await
}

async fn read(client: &Client, prefix: &str) -> Result<Contents, StoreError> {
    let mut contents = Contents::default();
    let (mut page, mut names) = (None, 0);
    loop {
        let request = ListRequest { prefix: prefix.to_owned(), max: None, page };
        let listed = client.list(request).await?;
        for name in &listed.prefixes {
            contents.push(name.as_bytes(), true, 0, 0);
        }
        for object in &listed.objects {
            let modified = i64::try_from(object.modified).unwrap_or(i64::MAX);
            contents.push(object.name.as_bytes(), false, object.size, modified);
        }
        names += listed.prefixes.len() + listed.objects.len();
        page = listed.next;
        contents.truncated =
            page.is_some() && (names >= MAX_NAMES || contents.bytes() >= MAX_BYTES);
        if page.is_none() || contents.truncated {
            break;
        }
    }
    contents.sort();
    Ok(contents)
}
