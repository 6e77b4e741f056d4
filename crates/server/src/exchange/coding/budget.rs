//! The processor time for compression: of a worker, and of each client.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dunlin_coding::Effort;
use dunlin_files::shared::Shared;
use dunlin_net::address::Peer;
use dunlin_net::clock::TICK;
use rustix::time::{ClockId, clock_gettime};

use super::body::Work;
use super::forms::CodedForms;

/// The time that a worker may spend on compression, and what it has compressed.
pub(crate) struct CodingBudget {
    bounds: Bounds,
    /// Since the last tick.
    spent: Cell<Duration>,
    /// Of the clients that had most requests compressed first.
    clients: RefCell<Vec<(Peer, Duration)>>,
    ticks: Cell<u64>,
    /// The bodies whose encoders have memory.
    at_work: RefCell<Vec<Weak<RefCell<Work>>>>,
    pub(super) counts: Arc<CodingCounts>,
    pub(super) forms: RefCell<CodedForms>,
    /// The pools, the history of dictionaries and what they save.
    pub(super) files: Arc<Shared>,
}

/// Processor time in a tick.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Above it, compression takes less time.
    less: Duration,
    /// Above it, nothing more of one client is compressed.
    client: Duration,
    /// Above it, nothing more is compressed.
    all: Duration,
}

/// What all workers have compressed for one request each.
#[derive(Debug, Default)]
pub(crate) struct CodingCounts {
    /// Responses.
    pub(crate) responses: AtomicU64,
    /// Responses at the fastest level, because compression took a large share of the processor.
    pub(crate) lowered: AtomicU64,
    /// Responses that were not compressed to their end, because compression took too large a share of the processor.
    pub(crate) skipped: AtomicU64,
    /// Responses that were decoded.
    pub(crate) decoded: AtomicU64,
    /// Bytes before compression.
    pub(crate) plain_bytes: AtomicU64,
    /// Bytes after it.
    pub(crate) coded_bytes: AtomicU64,
}

/// The processor time of one body, and the tick in which it was spent.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct BodyTime {
    tick: u64,
    spent: Duration,
}

/// Ticks without compression after which an encoder rests.
const IDLE: u64 = 10;
/// Encoders that come to rest in one tick at most: each takes about 50 µs.
const RESTS: usize = 64;
/// The bounds in per cent of themselves.
const WHOLE: u32 = 100;
/// Clients whose time is measured in a tick.
const CLIENTS: usize = 64;
/// The time of each tick for a body that has begun, within half as much again of the bounds.
const OF_BODY: Duration = Duration::from_millis(1);

impl std::fmt::Debug for CodingBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CodingBudget").field("spent", &self.spent).finish_non_exhaustive()
    }
}

impl Bounds {
    /// Creates the bounds of that share of a worker, in per cent.
    fn new(share: usize) -> Self {
        if share >= 100 {
            return Self { less: Duration::MAX, client: Duration::MAX, all: Duration::MAX };
        }
        let all = TICK * share as u32 / 100;
        Self { less: all / 2, client: all * 2 / 3, all }
    }
}

impl CodingBudget {
    /// Creates the budget of a worker, which is a share of its time in per cent.
    pub(crate) fn new(counts: &Arc<CodingCounts>, share: usize, files: &Arc<Shared>) -> Rc<Self> {
        Rc::new(Self {
            bounds: Bounds::new(share),
            spent: Cell::default(),
            clients: RefCell::default(),
            ticks: Cell::new(1),
            at_work: RefCell::default(),
            counts: Arc::clone(counts),
            forms: RefCell::default(),
            files: Arc::clone(files),
        })
    }

    /// Begins another tick of the worker's clock.
    pub(crate) fn begin_tick(&self) {
        self.ticks.set(self.ticks.get() + 1);
        self.spent.set(Duration::ZERO);
        self.clients.borrow_mut().clear();
        self.have_rest();
    }

    /// Returns the number of the present tick.
    pub(super) fn tick(&self) -> u64 {
        self.ticks.get()
    }

    /// Has an encoder rest once nothing is compressed for a second: its client is slow, or its source has nothing to send.
    pub(super) fn list(&self, work: &Rc<RefCell<Work>>) {
        self.at_work.borrow_mut().push(Rc::downgrade(work));
    }

    fn have_rest(&self) {
        let since = self.ticks.get().saturating_sub(IDLE);
        let mut room = RESTS;
        self.at_work.borrow_mut().retain(|work| {
            let Some(work) = work.upgrade() else { return false };
            let mut work = work.borrow_mut();
            let is_idle = room > 0 && work.is_idle_since(since);
            if is_idle {
                room -= 1;
                work.rest();
            }
            !is_idle
        });
    }

    /// Returns the time that the next response to a client may take; `None` if it is not to be compressed. `is_kept`: its coded
    /// form is kept.
    pub(super) fn effort(&self, client: Peer, is_kept: bool) -> Option<Effort> {
        if self.is_spent(client, WHOLE) || dunlin_memory::is_exhausted() {
            add(&self.counts.skipped, 1);
            return None;
        }
        Some(match self.spent.get() >= self.bounds.less {
            true => {
                add(&self.counts.lowered, 1);
                Effort::Least
            }
            false if is_kept => Effort::Shared,
            false => Effort::Normal,
        })
    }

    /// Returns `true` if a body that is being compressed is to be sent as it is from here on. `time` is that of the body.
    pub(super) fn is_too_much(&self, client: Peer, time: BodyTime) -> bool {
        let is_large = time.tick == self.ticks.get() && time.spent > OF_BODY;
        self.is_spent(client, if is_large { WHOLE } else { WHOLE + WHOLE / 2 })
    }

    /// Returns `true` if that many per cent of the bounds are spent.
    fn is_spent(&self, client: Peer, per_cent: u32) -> bool {
        let reaches =
            |spent: Duration, bound: Duration| spent >= bound.saturating_mul(per_cent) / WHOLE;
        let of_client = || {
            let clients = self.clients.borrow();
            let network = client.network();
            clients.iter().find(|(other, _)| *other == network).map(|(_, spent)| *spent)
        };
        reaches(self.spent.get(), self.bounds.all)
            || reaches(self.spent.get(), self.bounds.client)
                && of_client().is_some_and(|spent| reaches(spent, self.bounds.client))
    }

    /// Measures the compression of a body of a client by `encode`, which gets plain bytes, and appends coded ones.
    pub(super) fn measure<E>(
        &self,
        client: Peer,
        (plain, output): (usize, &mut Vec<u8>),
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<BodyTime, E> {
        let (began, before) = (processor_time(), output.len());
        encode(output)?;
        let spent = processor_time().saturating_sub(began);
        self.spend(client, spent);
        add(&self.counts.plain_bytes, plain);
        add(&self.counts.coded_bytes, output.len().saturating_sub(before));
        Ok(BodyTime { tick: self.ticks.get(), spent })
    }

    /// Counts the time of work for a client that is done in any case.
    pub(super) fn spend_on<T>(&self, client: Peer, work: impl FnOnce() -> T) -> T {
        let began = processor_time();
        let done = work();
        self.spend(client, processor_time().saturating_sub(began));
        done
    }

    fn spend(&self, client: Peer, time: Duration) {
        self.spent.set(self.spent.get() + time);
        let (mut clients, network) = (self.clients.borrow_mut(), client.network());
        let has_room = clients.len() < CLIENTS;
        match clients.iter_mut().find(|(other, _)| *other == network) {
            Some((_, spent)) => *spent += time,
            None if has_room => clients.push((network, time)),
            None => {}
        }
    }
}

impl std::ops::AddAssign for BodyTime {
    fn add_assign(&mut self, more: Self) {
        *self = match self.tick == more.tick {
            true => Self { spent: self.spent + more.spent, ..more },
            false => more,
        };
    }
}

pub(super) fn add(counter: &AtomicU64, more: usize) {
    counter.fetch_add(more as u64, Ordering::Relaxed);
}

/// Returns the processor time of this thread, which does not pass while others have the processor.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv6Addr};
    use std::path::Path;

    use dunlin_config::{Config, Overrides};
    use dunlin_net::blocking::Pools;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn client(number: u128) -> Peer {
        Peer::Ip(IpAddr::V6(Ipv6Addr::from_bits(number)))
    }

    fn with_share(share: usize) -> Rc<CodingBudget> {
        let text = "[[listen]]\naddress = ':1'\n[[site]]\nroot = '/'\n";
        let config = Config::parse(text, Path::new("/d.toml"), &Overrides::default()).unwrap();
        let files = Shared::first(&config, Arc::new(Pools::inline()), None);
        CodingBudget::new(&Arc::default(), share, &Arc::new(files))
    }

    fn spent(milliseconds: u32) -> Rc<CodingBudget> {
        let budget = with_share(60);
        budget.spend(client(1 << 64), MS * milliseconds);
        budget
    }

    #[test]
    fn the_level_falls_and_compression_stops() {
        let other = client(2 << 64);
        assert_eq!(spent(29).effort(other, false), Some(Effort::Normal));
        assert_eq!(spent(29).effort(other, true), Some(Effort::Shared));
        assert_eq!(spent(30).effort(other, true), Some(Effort::Least));
        assert_eq!(spent(59).effort(other, false), Some(Effort::Least));
        let budget = spent(60);
        assert_eq!(budget.effort(other, false), None);
        budget.begin_tick();
        assert_eq!(budget.effort(other, false), Some(Effort::Normal));
        assert_eq!(budget.counts.skipped.load(Ordering::Relaxed), 1);
        let unbounded = with_share(100);
        unbounded.spend(other, MS * 1000);
        assert_eq!(unbounded.effort(other, false), Some(Effort::Normal));
        assert_eq!(with_share(0).effort(other, false), None);
    }

    #[test]
    fn one_client_leaves_time_to_others() {
        let budget = spent(40);
        // The addresses of a network are one client.
        assert_eq!(budget.effort(client(1 << 64 | 7), false), None);
        assert_eq!(budget.effort(client(2 << 64), false), Some(Effort::Least));
        for number in 0..1000 {
            budget.spend(client(number << 64), Duration::ZERO);
        }
        assert_eq!(budget.clients.borrow().len(), CLIENTS);
    }

    #[test]
    fn bodies_that_take_much_are_stopped() {
        let budget = spent(60);
        let mut time = BodyTime { tick: budget.ticks.get(), spent: MS };
        assert!(!budget.is_too_much(client(0), time));
        time += time;
        assert!(budget.is_too_much(client(0), time));
        budget.begin_tick();
        assert!(!budget.is_too_much(client(0), time));
    }

    #[test]
    fn many_bodies_that_take_little_are_stopped() {
        let little = BodyTime::default();
        assert!(!spent(89).is_too_much(client(0), little));
        assert!(spent(90).is_too_much(client(0), little));
        // Of one client.
        assert!(!spent(59).is_too_much(client(1 << 64), little));
        assert!(spent(60).is_too_much(client(1 << 64), little));
        assert!(!spent(60).is_too_much(client(2 << 64), little));
    }
}
