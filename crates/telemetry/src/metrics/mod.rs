//! Counters and histograms.
//!
//! Each worker counts in cells of its own, without a lock or a shared cache line, and publishes a copy once a
//! tick; readers add up the copies. Label sets are bounded: sites and routes come from the configuration,
//! and other values that a client can choose are `_OTHER`.

mod clients;
mod histogram;
mod labels;
mod phases;
mod process;

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dunlin_http::Version;
use dunlin_http::semantics::Method;
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

pub use self::clients::{Client, Clients};
pub use self::histogram::{BOUNDS, Fine, Histogram, SIZES, Seconds, Sizes};
pub use self::labels::{Label, label, named};
pub use self::phases::PhaseSums;
pub use self::process::Process;
use dunlin_net::address::Peer;
use dunlin_net::clock::monotonic_millis;
use dunlin_net::connections::STATES;

use crate::Timings;

/// Labels of a finished request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Site and route.
    pub label: Label,
    /// The request method.
    pub method: Method,
    /// The version of HTTP.
    pub version: Version,
    /// The client used TLS.
    pub encrypted: bool,
    /// The status code of the response.
    pub status: u16,
}

/// A finished request.
#[derive(Debug, Clone, Copy)]
pub struct Finished {
    /// The labels of the series.
    pub key: Key,
    /// Address of the client.
    pub peer: Peer,
    /// From the first byte of the request to the last of the response.
    pub duration: Duration,
    /// Durations of the phases.
    pub timings: Timings,
    /// Bytes of the response body that were sent.
    pub sent: u64,
}

/// Histograms of the requests with one [`Key`].
#[derive(Debug, Clone)]
pub struct Series {
    /// The labels.
    pub key: Key,
    /// Durations of the requests.
    pub durations: Seconds,
    /// Bytes of response bodies that were sent.
    pub sizes: Sizes,
}

/// Counters of one route.
#[derive(Debug, Clone, Default)]
pub struct Route {
    /// All requests.
    pub requests: u64,
    /// Requests with a status of 500 or more.
    pub failed: u64,
    /// Bytes of response bodies that were sent.
    pub sent: u64,
    /// Durations of the requests.
    pub durations: Fine,
    /// Durations of their phases.
    pub phases: PhaseSums,
}

/// Result of a TLS handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handshake {
    /// A new session.
    Full,
    /// A resumed session.
    Resumed,
    /// The handshake failed.
    Failed,
    /// The client took too long.
    Late,
}

/// Counters of tunnels: connections and streams that use another protocol than HTTP, such as WebSocket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tunnels {
    /// Open tunnels.
    pub open: u64,
    /// Tunnels that were opened.
    pub opened: u64,
    /// Bytes that clients have sent.
    pub received: u64,
    /// Bytes for clients.
    pub sent: u64,
}

/// Counters of one worker, or the sums of all workers.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Histograms by [`Key`].
    pub series: Vec<Series>,
    /// By [`Label`]. Routes without requests may be absent.
    pub routes: Vec<Route>,
    /// Accepted connections.
    pub accepted: u64,
    /// Open connections, by [`Waiting`](dunlin_net::connections::Waiting).
    pub connections: [u64; STATES],
    /// Tunnels.
    pub tunnels: Tunnels,
    /// By [`Handshake`].
    pub handshakes: [u64; 4],
    /// The clients with the most requests, counted while the metrics are read.
    pub clients: Clients,
}

/// The published counters of all workers.
#[derive(Debug, Default)]
pub struct Metrics {
    published: Mutex<Vec<Arc<Mutex<Counts>>>>,
    /// When the counters were last read, in milliseconds of the monotonic clock; 0 for never.
    read_at: AtomicU64,
}

/// Counters of one worker.
#[derive(Debug)]
pub struct WorkerMetrics {
    counts: RefCell<Counts>,
    places: RefCell<HashMap<Key, usize>>,
    /// The last series that was used: most requests have the same key as the one before.
    last: Cell<Option<(Key, usize)>>,
    published: Arc<Mutex<Counts>>,
    is_dirty: Cell<bool>,
    counts_clients: Cell<bool>,
}

/// Maximum of series per worker. Further keys are counted without route and method.
const MAX_SERIES: usize = 2_000;
/// Milliseconds after a read for which clients are counted.
const COUNT_CLIENTS_FOR: u64 = 15_000;

impl Metrics {
    /// Creates the counters of a worker.
    pub fn for_worker(&self) -> WorkerMetrics {
        let published = Arc::<Mutex<Counts>>::default();
        lock(&self.published).push(Arc::clone(&published));
        WorkerMetrics {
            counts: RefCell::default(),
            places: RefCell::default(),
            last: Cell::new(None),
            published,
            is_dirty: Cell::new(false),
            counts_clients: Cell::new(false),
        }
    }

    /// Returns the sums of all workers at their last tick, for a reader: clients are counted from then on for some time.
    pub fn sum(&self) -> Counts {
        self.read_at.store(monotonic_millis(), Ordering::Relaxed);
        self.sum_unread()
    }

    /// Returns the sums of all workers at their last tick.
    pub fn sum_unread(&self) -> Counts {
        let (mut sum, mut places) = (Counts::default(), HashMap::default());
        for counts in &*lock(&self.published) {
            sum.add(&lock(counts), &mut places);
        }
        sum.series.sort_by_key(|series| series.key);
        sum
    }

    /// Returns `true` if the counters were read recently.
    fn has_readers(&self) -> bool {
        let read_at = self.read_at.load(Ordering::Relaxed);
        read_at != 0 && monotonic_millis().saturating_sub(read_at) < COUNT_CLIENTS_FOR
    }
}

impl WorkerMetrics {
    /// Counts a finished request.
    #[inline]
    pub fn count(&self, finished: &Finished) {
        self.is_dirty.set(true);
        let counts = &mut *self.counts.borrow_mut();
        let place = match self.last.get() {
            Some((key, place)) if key == finished.key => place,
            _ => self.place(finished.key, counts),
        };
        let nanos = u64::try_from(finished.duration.as_nanos()).unwrap_or(u64::MAX);
        if let Some(series) = counts.series.get_mut(place) {
            series.durations.count(nanos, &BOUNDS);
            series.sizes.count(finished.sent, &SIZES);
        }
        if let Some(route) = counts.routes.get_mut(finished.key.label.0 as usize) {
            route.requests += 1;
            route.failed += u64::from(finished.key.status >= 500);
            route.sent += finished.sent;
            route.durations.count(nanos);
            route.phases.count(&finished.timings);
        }
        if self.counts_clients.get() {
            counts.clients.count(finished.peer, finished.sent, nanos);
        }
    }

    /// Counts a response that lasts until its client closes the connection. Its duration is not a property of the
    /// server, so it is not in the histograms.
    pub fn count_endless(&self, finished: &Finished) {
        self.is_dirty.set(true);
        let counts = &mut *self.counts.borrow_mut();
        let number = finished.key.label.0 as usize;
        if counts.routes.len() <= number {
            counts.routes.resize_with(number + 1, Route::default);
        }
        let route = &mut counts.routes[number];
        route.requests += 1;
        route.sent += finished.sent;
    }

    /// Returns the index of the series of a key. Creates the series if it is new.
    #[cold]
    fn place(&self, key: Key, counts: &mut Counts) -> usize {
        let mut places = self.places.borrow_mut();
        let route = key.label.0 as usize;
        if counts.routes.len() <= route {
            counts.routes.resize_with(route + 1, Route::default);
        }
        let kept = if places.len() < MAX_SERIES || places.contains_key(&key) {
            key
        } else {
            Key { label: Label::NONE, method: Method::Other, ..key }
        };
        let place = *places.entry(kept).or_insert_with(|| {
            let (durations, sizes) = Default::default();
            counts.series.push(Series { key: kept, durations, sizes });
            counts.series.len() - 1
        });
        self.last.set(Some((key, place)));
        place
    }

    /// Counts an accepted connection.
    #[inline]
    pub fn accepted(&self) {
        self.is_dirty.set(true);
        self.counts.borrow_mut().accepted += 1;
    }

    /// Counts a tunnel that opens.
    pub fn tunnel_opened(&self) {
        self.change_tunnels(|tunnels| {
            tunnels.open += 1;
            tunnels.opened += 1;
        });
    }

    /// Counts bytes of a tunnel: those of the client, and those for it.
    pub fn tunnel_moved(&self, received: u64, sent: u64) {
        self.change_tunnels(|tunnels| {
            tunnels.received += received;
            tunnels.sent += sent;
        });
    }

    /// Counts a tunnel that closes. It was opened on the same worker.
    pub fn tunnel_closed(&self) {
        self.change_tunnels(|tunnels| tunnels.open = tunnels.open.saturating_sub(1));
    }

    fn change_tunnels(&self, change: impl FnOnce(&mut Tunnels)) {
        self.is_dirty.set(true);
        change(&mut self.counts.borrow_mut().tunnels);
    }

    /// Counts a handshake.
    pub fn handshake(&self, handshake: Handshake) {
        self.is_dirty.set(true);
        self.counts.borrow_mut().handshakes[handshake as usize] += 1;
    }

    /// Publishes the counters. `connections` are the open connections by state. Call this once a tick.
    pub fn publish(&self, metrics: &Metrics, connections: [u64; STATES]) {
        let mut counts = self.counts.borrow_mut();
        let has_readers = metrics.has_readers();
        if self.counts_clients.replace(has_readers) != has_readers {
            counts.clients = Clients::default();
            self.is_dirty.set(true);
        }
        if counts.connections != connections {
            counts.connections = connections;
            self.is_dirty.set(true);
        }
        if self.is_dirty.take() {
            lock(&self.published).copy(&counts);
        }
    }
}

impl Counts {
    /// Copies the changes of `other`, of which this is an earlier copy.
    fn copy(&mut self, other: &Self) {
        let known = self.series.len();
        for (series, fresh) in self.series.iter_mut().zip(&other.series) {
            if series.durations.count != fresh.durations.count {
                series.clone_from(fresh);
            }
        }
        self.series.extend_from_slice(&other.series[known..]);
        let known = self.routes.len();
        for (route, fresh) in self.routes.iter_mut().zip(&other.routes) {
            if route.requests != fresh.requests {
                route.clone_from(fresh);
            }
        }
        self.routes.extend_from_slice(&other.routes[known..]);
        self.accepted = other.accepted;
        self.connections = other.connections;
        self.tunnels = other.tunnels;
        self.handshakes = other.handshakes;
        self.clients.clone_from(&other.clients);
    }

    /// Adds the counts of a worker. `places` has the position of each series.
    fn add(&mut self, other: &Self, places: &mut HashMap<Key, usize>) {
        for series in &other.series {
            if let Some(at) = places.get(&series.key) {
                let mine = &mut self.series[*at];
                mine.durations.add(&series.durations);
                mine.sizes.add(&series.sizes);
            } else {
                places.insert(series.key, self.series.len());
                self.series.push(series.clone());
            }
        }
        if self.routes.len() < other.routes.len() {
            self.routes.resize_with(other.routes.len(), Route::default);
        }
        for (mine, route) in self.routes.iter_mut().zip(&other.routes) {
            mine.requests += route.requests;
            mine.failed += route.failed;
            mine.sent += route.sent;
            mine.durations.add(&route.durations);
            mine.phases.add(&route.phases);
        }
        self.accepted += other.accepted;
        for (mine, count) in self.connections.iter_mut().zip(other.connections) {
            *mine += count;
        }
        self.tunnels.open += other.tunnels.open;
        self.tunnels.opened += other.tunnels.opened;
        self.tunnels.received += other.tunnels.received;
        self.tunnels.sent += other.tunnels.sent;
        for (mine, count) in self.handshakes.iter_mut().zip(other.handshakes) {
            *mine += count;
        }
        self.clients.add(&other.clients);
    }
}

/// Ignores poisoning: the counters are consistent after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn finished(status: u16, micros: u64) -> Finished {
        let key = Key {
            label: label("test", "/*"),
            method: Method::Get,
            version: Version::Http11,
            encrypted: false,
            status,
        };
        let peer = Peer::Ip(IpAddr::from([192, 0, 2, 1]));
        let duration = Duration::from_micros(micros);
        let timings = Timings { handler: Some(micros * 1_000), ..Timings::default() };
        Finished { key, peer, duration, timings, sent: 10 }
    }

    #[test]
    fn published_counters_of_all_workers_are_added_up() {
        let metrics = Metrics::default();
        let workers = [metrics.for_worker(), metrics.for_worker()];
        for own in &workers {
            own.count(&finished(200, 100));
            own.count(&finished(500, 20_000));
            own.accepted();
            own.tunnel_opened();
            own.tunnel_opened();
            own.tunnel_moved(3, 5);
            own.tunnel_closed();
        }
        assert!(metrics.sum().series.is_empty(), "nothing is published before the tick");
        for own in &workers {
            own.publish(&metrics, [1; STATES]);
        }
        let sum = metrics.sum();
        let counted: Vec<_> =
            sum.series.iter().map(|series| (series.key.status, series.durations.count)).collect();
        assert_eq!(counted, [(200, 2), (500, 2)]);
        let route = &sum.routes[label("test", "/*").0 as usize];
        assert_eq!((route.requests, route.failed, route.sent), (4, 2, 40));
        let phases: Vec<_> = route.phases.iter().collect();
        assert_eq!(phases, [("head", 4, 0), ("handler", 4, 40_200_000)]);
        assert_eq!((sum.accepted, sum.connections[0]), (2, 2));
        let tunnels = Tunnels { open: 2, opened: 4, received: 6, sent: 10 };
        assert_eq!(sum.tunnels, tunnels);
    }

    #[test]
    fn an_endless_response_has_no_duration() {
        let metrics = Metrics::default();
        let own = metrics.for_worker();
        own.count(&finished(200, 100));
        own.count_endless(&finished(200, 60_000_000));
        own.publish(&metrics, [0; STATES]);
        let sum = metrics.sum();
        assert_eq!(sum.series.iter().map(|series| series.durations.count).sum::<u64>(), 1);
        let route = &sum.routes[label("test", "/*").0 as usize];
        assert_eq!((route.requests, route.sent), (2, 20));
        assert_eq!(route.durations.iter().map(|(_, count)| count).sum::<u64>(), 1);
    }

    #[test]
    fn the_number_of_series_is_bounded() {
        let metrics = Metrics::default();
        let own = metrics.for_worker();
        for n in 0..3_000 {
            own.count(&finished(n, 1));
        }
        own.publish(&metrics, [0; STATES]);
        let sum = metrics.sum();
        assert!(sum.series.len() <= MAX_SERIES + 1_000);
        assert_eq!(sum.series.iter().map(|series| series.durations.count).sum::<u64>(), 3_000);
    }

    #[test]
    fn clients_are_counted_while_metrics_are_read() {
        let metrics = Metrics::default();
        let own = metrics.for_worker();
        own.count(&finished(200, 1));
        own.publish(&metrics, [0; STATES]);
        assert_eq!(metrics.sum().clients.iter().count(), 0);
        own.publish(&metrics, [0; STATES]);
        own.count(&finished(200, 1));
        own.publish(&metrics, [0; STATES]);
        assert_eq!(metrics.sum().clients.iter().count(), 1);
    }
}
