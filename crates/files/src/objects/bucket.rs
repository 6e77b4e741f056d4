//! The state of one bucket: requests in progress, keys that are absent, and whether the store responds.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use dunlin_net::clock::monotonic_millis;

use super::claim::{CacheClaim, RequestedObject};
use super::client::Client;
use super::disk::{ObjectDisk, ObjectFile, ObjectName};
use super::flight::Flight;
use super::listing::{self, Listings};
use super::load::Context;
use super::once::{Promise, SharedOnce};
use super::restoration::Restoration;
use super::store::{ListRequest, ObjectMetadata, StoreError};
use crate::cache::resource::Resource;
use crate::cache::shared_cache::Key;
use crate::listing::contents::Contents;

/// A bucket, which the roots in it share.
#[derive(Debug)]
pub struct Bucket {
    /// Requests to it.
    pub client: Arc<Client>,
    listings: Arc<Listings>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    flights: HashMap<String, Arc<Flight>>,
    /// Files that are being read, by the keys of the objects and those in the cache.
    restorations: HashMap<(String, Key), Arc<Restoration>>,
    /// Until when keys without an object count as absent, in milliseconds of the monotonic clock.
    absent: HashMap<String, u64>,
    /// There are objects beneath prefixes, and until when that counts.
    prefixes: HashMap<String, (Arc<Existence>, u64)>,
}

/// The existence of objects beneath a prefix: one request for all that wait.
type Existence = SharedOnce<Result<bool, StoreError>>;

/// The maximum of keys that are known to be absent, and of prefixes. Clients choose them.
const MAX_KNOWN: usize = 20_000;

/// The maximum of pages in which an object beneath a prefix is looked for, and the entries of those after the first.
const MAX_PAGES: usize = 16;
const MORE: usize = 100;

/// The continuation of a request for an object.
pub(super) enum Joined {
    /// There is no such object.
    Absent,
    /// The cache has it after all.
    Cached(Arc<Resource>),
    /// The response to this request decides.
    Flight(Arc<Flight>),
    /// This request has ended, and what it has received is about to be in the cache.
    Ending(Arc<Flight>),
    /// The store does not respond.
    Down,
}

impl Bucket {
    pub(super) fn new(client: Arc<Client>) -> Arc<Self> {
        Arc::new(Self { client, listings: Arc::default(), state: Mutex::default() })
    }

    /// Joins the request for `key`, or begins one.
    pub(super) fn join(
        self: &Arc<Self>,
        context: &Arc<Context>,
        key: &str,
        claim: &CacheClaim,
        is_kept: bool,
    ) -> Joined {
        let held = claim.version();
        let mut state = self.lock();
        // A request may have ended since the caller has looked there.
        let cached = context.cache.get(&claim.key).filter(|_| is_kept);
        if let Some(cached) = cached.filter(|it| it.validity.is_fresh(monotonic_millis())) {
            return Joined::Cached(cached);
        }
        let claim = is_kept.then(|| claim.clone());
        if let Some(flight) = state.flights.get(key)
            // A caller without this version needs the content.
            && (flight.wanted.unless.is_none() || flight.wanted.unless.as_ref() == held)
        {
            // The store has to confirm an object for each request that comes after it has arrived.
            if self.client.revalidate() == 0 && flight.is_received() {
                return Joined::Ending(Arc::clone(flight));
            }
            self.client.counters.joined.fetch_add(1, Ordering::Relaxed);
            flight.claim(claim);
            return Joined::Flight(Arc::clone(flight));
        }
        if let Some(&until) = state.absent.get(key)
            && (monotonic_millis() < until || self.client.is_down())
        {
            return Joined::Absent;
        }
        if !self.client.health.may_send() {
            return Joined::Down;
        }
        let wanted = RequestedObject { key: key.to_owned(), unless: held.cloned() };
        let flight = Flight::new(wanted);
        flight.claim(claim);
        state.flights.insert(key.to_owned(), Arc::clone(&flight));
        drop(state);
        let (bucket, context, started) =
            (Arc::clone(self), Arc::clone(context), Arc::clone(&flight));
        self.client.handle.spawn(async move { started.fetch(&bucket, &context).await });
        Joined::Flight(flight)
    }

    /// Ends a request, whose result is where it is looked for first.
    pub(super) fn finish(&self, flight: &Arc<Flight>) {
        let mut state = self.lock();
        let key = &flight.wanted.key;
        if state.flights.get(key).is_some_and(|current| Arc::ptr_eq(current, flight)) {
            state.flights.remove(key);
        }
    }

    /// Joins those that wait for the file of an object, or finds the file to read; `None` if there is none.
    pub(super) fn begin_restoration(
        &self,
        disk: &dyn ObjectDisk,
        key: &str,
        claim: &CacheClaim,
    ) -> Option<(Arc<Restoration>, Option<ObjectFile>)> {
        let place = (key.to_owned(), claim.key.clone());
        let mut state = self.lock();
        if let Some(restoration) = state.restorations.get(&place) {
            return Some((Arc::clone(restoration), None));
        }
        let file = disk.find(self.name(key))?;
        let restoration: Arc<Restoration> = Arc::default();
        state.restorations.insert(place, Arc::clone(&restoration));
        Some((restoration, Some(file)))
    }

    /// Ends the reading of a file.
    pub(super) fn end_restoration(&self, key: &str, claim: &CacheClaim) {
        self.lock().restorations.remove(&(key.to_owned(), claim.key.clone()));
    }

    /// Schedules writing a received object to disk, unless it has changed since.
    pub(super) fn keep_on_disk(
        &self,
        disk: &dyn ObjectDisk,
        flight: &Flight,
        metadata: &ObjectMetadata,
        content: Bytes,
    ) {
        // A notification takes the lock, too, so that it removes what is written here, or is known here.
        let _state = self.lock();
        if !flight.is_outdated() {
            disk.write(self.name(&flight.wanted.key), metadata, content);
        }
    }

    /// Schedules removal of an outdated object from disk.
    pub(super) fn remove_from_disk(&self, context: &Context, key: &str) {
        if let Some(disk) = &context.disk {
            disk.remove(self.name(key));
        }
    }

    /// Returns the name of an object on disk.
    pub(super) fn name<'a>(&self, key: &'a str) -> ObjectName<'a> {
        ObjectName { bucket: self.client.number, key }
    }

    /// Records that there is no object with this key.
    pub(super) fn set_absent(&self, key: &str) {
        let (now, mut state) = (monotonic_millis(), self.lock());
        if state.absent.len() >= MAX_KNOWN {
            state.absent.retain(|_, until| now < *until);
        }
        if state.absent.len() >= MAX_KNOWN {
            state.absent.clear();
        }
        state.absent.insert(key.to_owned(), now + self.client.revalidate());
    }

    /// Records that there is an object with this key.
    pub(super) fn set_present(&self, key: &str) {
        self.lock().absent.remove(key);
    }

    /// Forgets what is known of `key`, because it has changed: requests in progress may have had the object from before.
    pub(super) fn forget(&self, key: &str, disk: Option<&dyn ObjectDisk>) {
        let mut state = self.lock();
        if let Some(disk) = disk {
            disk.remove(self.name(key));
        }
        for ((other, _), restoration) in &state.restorations {
            if other == key {
                restoration.set_outdated();
            }
        }
        state.absent.remove(key);
        if let Some(flight) = state.flights.remove(key) {
            flight.set_outdated();
        }
        // A new object can make a directory, and the last one can take it away.
        let is_above = |prefix: &String| key.starts_with(&**prefix);
        state.prefixes.retain(|prefix, _| !is_above(prefix));
        drop(state);
        self.listings.forget(key);
    }

    /// Returns whether there are objects beneath `prefix`, which ends with a slash.
    pub(super) async fn has_prefix(self: &Arc<Self>, prefix: &str) -> Result<bool, StoreError> {
        let (result, begin) = {
            let (now, mut state) = (monotonic_millis(), self.lock());
            if state.prefixes.len() >= MAX_KNOWN {
                state.prefixes.clear();
            }
            match state.prefixes.get(prefix) {
                Some((known, until))
                    if now < *until || self.client.is_down() && known.get().is_some() =>
                {
                    (Arc::clone(known), false)
                }
                _ if !self.client.health.may_send() => {
                    return Err(StoreError::Failed("it does not respond".into()));
                }
                _ => {
                    let new: Arc<SharedOnce<_>> = Arc::default();
                    // Requests that come while it is in progress share it, even if `revalidate` is 0.
                    let until = now
                        + self
                            .client
                            .revalidate()
                            .max(self.client.rules.timeout.as_millis() as u64);
                    state.prefixes.insert(prefix.to_owned(), (Arc::clone(&new), until));
                    (new, true)
                }
            }
        };
        if begin {
            let (this, prefix) = (Arc::clone(self), prefix.to_owned());
            let promise = Promise::new(&result, Err(StoreError::abandoned()));
            self.client.handle.spawn(async move {
                let found = this.look_beneath(&prefix).await;
                let until = match found {
                    Ok(_) => monotonic_millis() + this.client.revalidate(),
                    Err(_) => 0,
                };
                promise.keep(found);
                if let Some(known) = this.lock().prefixes.get_mut(&prefix) {
                    known.1 = until;
                }
            });
        }
        result.wait().await
    }

    /// Looks for an object beneath `prefix`. Pages are without keys that have no path, and the first ones may have no others.
    async fn look_beneath(&self, prefix: &str) -> Result<bool, StoreError> {
        let mut request = ListRequest { prefix: prefix.to_owned(), max: Some(1), page: None };
        for _ in 0..MAX_PAGES {
            let page = self.client.list(request.clone()).await?;
            if !page.objects.is_empty() || !page.prefixes.is_empty() {
                return Ok(true);
            }
            if page.next.is_none() {
                return Ok(false);
            }
            request = ListRequest { max: Some(MORE), page: page.next, ..request };
        }
        // There are many objects, if none with a path.
        Ok(true)
    }

    /// Returns the entries of the directory with this prefix.
    pub(super) async fn contents(&self, prefix: &str) -> Result<Arc<Contents>, StoreError> {
        listing::contents(&self.client, &self.listings, prefix).await
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
