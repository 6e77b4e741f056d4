//! Bandwidth limit of a route: in total (`ceiling`) and per connection.
//!
//! The limit is a virtual-clock pacer. Each sender reserves a slot of `chunk / rate` on a shared clock and sends the
//! chunk when the slot starts. A sender holds at most one reservation ahead, and all chunks have the same size, so
//! slots rotate among all active senders and a slow client leaves its share to the others. No queue and no lock is
//! needed for that, only one atomic clock for all workers.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use dunlin_config::BandwidthRules;
use dunlin_net::clock::{Sleep, now};

/// A bandwidth limit. All workers share it.
#[derive(Debug)]
pub struct Bandwidth {
    rules: BandwidthRules,
    /// Bytes per slot of the ceiling; `u64::MAX` without a ceiling.
    chunk: u64,
    /// Bytes per slot of a connection; `u64::MAX` without a rate per connection.
    connection_chunk: u64,
    /// Start of the ceiling's next free slot, in nanoseconds since [`ORIGIN`].
    next: AtomicU64,
    senders: AtomicUsize,
    sent: AtomicU64,
    rejected: AtomicU64,
}

/// Gauges and counters of a bandwidth limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BandwidthCounts {
    /// Responses in progress.
    pub senders: usize,
    /// Bytes of bodies that were admitted.
    pub sent: u64,
    /// Requests that were rejected because their share would have been below the minimum.
    pub rejected: u64,
}

/// Paces the body of one response.
#[derive(Debug)]
pub struct Pacer {
    shared: Arc<Bandwidth>,
    connection: ConnectionPace,
    reservation: Reservation,
    sleep: Option<Sleep>,
}

/// The slots that one response has reserved.
#[derive(Debug)]
struct Reservation {
    /// Bytes that may be sent now.
    allowance: u64,
    stage: Stage,
    /// When the slot of the stage starts, in nanoseconds since [`ORIGIN`].
    until: u64,
    /// The time in the past at which a slot may start, to make up for a late wake-up.
    credit: Duration,
}

/// Start of the connection's next free slot, in nanoseconds since the origin of all bandwidth clocks. All responses of the connection share it.
pub type ConnectionPace = Rc<Cell<u64>>;

/// A response that has a share of the ceiling. Dropping it returns the share.
#[derive(Debug)]
pub struct Sender(Arc<Bandwidth>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No slot is reserved.
    Idle,
    /// A chunk of that many bytes has a slot of the connection.
    Connection(u64),
    /// The chunk also has a slot of the ceiling.
    Ceiling(u64),
}

/// Duration of a slot of the ceiling with few senders.
const CHUNK: Duration = Duration::from_millis(25);
/// With more than this number of senders, chunks shrink so that a round of all senders takes `SPREAD` times
/// [`CHUNK`].
const SPREAD: u64 = 4;
/// Divisor of the first chunk of a response: the number of senders lags during a burst.
const FIRST: u64 = 5;
/// Duration of a slot of a connection.
const CONNECTION_CHUNK: Duration = Duration::from_millis(50);
/// Maximum credit of a response in progress for a late wake-up. Together with a chunk it is below 100 ms at the rate.
const CREDIT: Duration = Duration::from_millis(40);
/// Minimum chunk of about one packet: smaller chunks cost more than they smooth.
const PACKET: u64 = 1400;

impl Bandwidth {
    /// Creates a limit with these rules.
    pub fn new(rules: BandwidthRules) -> Self {
        let worth = |rate: Option<u64>, time: Duration| {
            rate.map_or(u64::MAX, |rate| (u128::from(rate) * time.as_nanos() / NANOS) as u64)
        };
        Self {
            rules,
            chunk: worth(rules.ceiling, CHUNK),
            connection_chunk: worth(rules.per_connection, CONNECTION_CHUNK),
            next: AtomicU64::new(0),
            senders: AtomicUsize::new(0),
            sent: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
        }
    }

    /// Adds a sender; `None` if its share would be below the minimum.
    pub fn enter(self: &Arc<Self>) -> Option<Sender> {
        let senders = self.senders.fetch_add(1, Ordering::Relaxed) + 1;
        let sender = Sender(Arc::clone(self));
        if let (Some(ceiling), Some(minimum)) = (self.rules.ceiling, self.rules.minimum)
            && ceiling / (senders as u64) < minimum
        {
            self.rejected.fetch_add(1, Ordering::Relaxed);
            return self.rules.dry_run.then_some(sender);
        }
        Some(sender)
    }

    /// Admits a response of `bytes` that is in memory, if all of it may be sent `now`. Otherwise changes nothing, and
    /// the caller uses [`enter`](Self::enter).
    #[inline]
    pub fn takes_at_once(&self, bytes: u64, now: Instant) -> bool {
        let BandwidthRules { ceiling, per_connection, minimum, dry_run } = self.rules;
        if dry_run || per_connection.is_some() {
            return false;
        }
        let now = now.saturating_duration_since(*ORIGIN).as_nanos() as u64;
        let senders = self.senders.load(Ordering::Relaxed) as u64 + 1;
        if let Some(rate) = ceiling {
            if rate / senders < minimum.unwrap_or(0) || self.chunk_of(senders) / FIRST < bytes {
                return false;
            }
            let slot = |next: u64| (next <= now).then(|| now + duration(bytes, rate));
            let (relaxed, next) = (Ordering::Relaxed, self.next.load(Ordering::Relaxed));
            let taken =
                slot(next).map(|after| self.next.compare_exchange(next, after, relaxed, relaxed));
            if !matches!(taken, Some(Ok(_))) {
                return false;
            }
        }
        self.sent.fetch_add(bytes, Ordering::Relaxed);
        true
    }

    /// Returns the rules of the limit.
    pub fn rules(&self) -> &BandwidthRules {
        &self.rules
    }

    /// Returns the counters of the limit.
    pub fn counts(&self) -> BandwidthCounts {
        BandwidthCounts {
            senders: self.senders.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            rejected: self.rejected.load(Ordering::Relaxed),
        }
    }

    /// Returns the bytes of one slot.
    fn chunk(&self) -> u64 {
        self.chunk_of(self.senders.load(Ordering::Relaxed).max(1) as u64)
    }

    /// Returns the bytes of one slot for that number of senders.
    fn chunk_of(&self, senders: u64) -> u64 {
        let of_ceiling = self.rules.ceiling.map_or(u64::MAX, |rate| {
            let share = match senders <= SPREAD {
                true => self.chunk,
                false => self.chunk.saturating_mul(SPREAD) / senders,
            };
            share.max((rate / 1000).min(PACKET))
        });
        of_ceiling.min(self.connection_chunk).max(1)
    }

    /// Reserves a slot of the ceiling for `bytes`, not before `earliest`. Returns its start.
    fn reserve(&self, bytes: u64, earliest: u64) -> u64 {
        let Some(rate) = self.rules.ceiling else { return earliest };
        let length = duration(bytes, rate);
        let after = |next: u64| Some(next.max(earliest) + length);
        let before = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
        before.unwrap_or_else(|next| next).max(earliest)
    }

    /// Reserves a slot of the connection for `bytes`, not before `earliest`. Returns its start.
    fn reserve_connection(&self, pace: &Cell<u64>, bytes: u64, earliest: u64) -> u64 {
        let Some(rate) = self.rules.per_connection else { return earliest };
        let start = pace.get().max(earliest);
        pace.set(start + duration(bytes, rate));
        start
    }
}

/// Origin of the virtual clocks.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

const NANOS: u128 = 1_000_000_000;

/// Returns the nanoseconds that `bytes` take at `rate`.
fn duration(bytes: u64, rate: u64) -> u64 {
    // A division of 128 bits is several times slower than one of 64 bits.
    match bytes.checked_mul(NANOS as u64) {
        Some(product) => product / rate.max(1),
        None => (u128::from(bytes) * NANOS / u128::from(rate.max(1))) as u64,
    }
}

impl Sender {
    /// Returns the pacer of the response; `None` in a dry run. `short` is the length of a body that is in memory, and
    /// the current time: returns `None` if all of it may be sent now.
    pub fn pacer(
        &self,
        connection: &ConnectionPace,
        short: Option<(usize, Instant)>,
    ) -> Option<Pacer> {
        let Self(shared) = self;
        if shared.rules.dry_run {
            return None;
        }
        let credit = Duration::ZERO;
        let mut reservation = Reservation { allowance: 0, stage: Stage::Idle, until: 0, credit };
        if let Some((bytes, now)) = short
            && reservation.admits(shared, connection, bytes as u64, now)
        {
            return None;
        }
        let (shared, connection) = (Arc::clone(shared), Rc::clone(connection));
        Some(Pacer { shared, connection, reservation, sleep: None })
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.senders.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pacer {
    /// Returns how many of `wanted` bytes may be sent now. Wakes the task when sending may continue.
    pub fn poll(&mut self, cx: &mut Context<'_>, wanted: u64) -> Poll<u64> {
        if wanted == 0 {
            return Poll::Ready(0);
        }
        loop {
            let now = now().saturating_duration_since(*ORIGIN).as_nanos() as u64;
            match self.reservation.advance(&self.shared, &self.connection, now, wanted) {
                Ok(allowance) => return Poll::Ready(allowance),
                Err(until) => {
                    let deadline = *ORIGIN + Duration::from_nanos(until);
                    let sleep = self.sleep.get_or_insert_with(|| Sleep::until(deadline));
                    sleep.reset(deadline);
                    if Pin::new(sleep).poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    /// Returns `true` if the response waits for its slot.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.reservation.stage != Stage::Idle
    }

    /// Returns the bytes that may be sent without another [`poll`](Self::poll).
    #[inline]
    pub fn allowance(&self) -> u64 {
        self.reservation.allowance
    }

    /// Accounts for `bytes` that were sent.
    #[inline]
    pub fn spend(&mut self, bytes: u64) {
        self.reservation.allowance = self.reservation.allowance.saturating_sub(bytes);
        self.shared.sent.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Reservation {
    /// Admits a whole body if it fits into the first chunk and its slot has started.
    fn admits(
        &mut self,
        shared: &Bandwidth,
        connection: &Cell<u64>,
        bytes: u64,
        now: Instant,
    ) -> bool {
        let now = now.saturating_duration_since(*ORIGIN).as_nanos() as u64;
        let may = |max: u64| max >= bytes;
        let passes = bytes == 0 || self.advance(shared, connection, now, bytes).is_ok_and(may);
        if passes {
            shared.sent.fetch_add(bytes, Ordering::Relaxed);
        }
        passes
    }

    /// Reserves the next slots as far as possible at `now`.
    ///
    /// # Errors
    /// The time at which to call again.
    fn advance(
        &mut self,
        shared: &Bandwidth,
        connection: &Cell<u64>,
        now: u64,
        wanted: u64,
    ) -> Result<u64, u64> {
        let earliest = now.saturating_sub(self.credit.as_nanos() as u64);
        while self.allowance == 0 {
            if self.stage != Stage::Idle && now < self.until {
                return Err(self.until);
            }
            match self.stage {
                Stage::Idle => {
                    // The number of senders lags during a burst, so the first chunk is smaller.
                    let part = if self.credit.is_zero() { FIRST } else { 1 };
                    let chunk = (shared.chunk() / part).clamp(1, wanted);
                    self.until = shared.reserve_connection(connection, chunk, earliest);
                    self.stage = Stage::Connection(chunk);
                }
                Stage::Connection(chunk) => {
                    self.until = shared.reserve(chunk, earliest);
                    self.stage = Stage::Ceiling(chunk);
                }
                Stage::Ceiling(chunk) => {
                    self.allowance = chunk;
                    self.credit = CREDIT;
                    self.stage = Stage::Idle;
                }
            }
        }
        Ok(self.allowance.min(wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn throttle(rules: BandwidthRules) -> Arc<Bandwidth> {
        Arc::new(Bandwidth::new(rules))
    }

    fn advance(pacer: &mut Pacer, now: u64, wanted: u64) -> Result<u64, u64> {
        pacer.reservation.advance(&pacer.shared, &pacer.connection, now, wanted)
    }

    fn ceiling(rate: u64) -> Arc<Bandwidth> {
        throttle(BandwidthRules { ceiling: Some(rate), ..Default::default() })
    }

    fn pacers(throttle: &Arc<Bandwidth>, count: usize) -> (Vec<Sender>, Vec<Pacer>) {
        let senders: Vec<_> = (0..count).map(|_| throttle.enter().unwrap()).collect();
        let pacers =
            senders.iter().map(|sender| sender.pacer(&Rc::default(), None).unwrap()).collect();
        (senders, pacers)
    }

    /// Polls all pacers each millisecond for `seconds`. `slow` returns the maximum rate of a client, if it has one.
    /// Returns the bytes of each pacer, and the maximum of all in any 100 ms.
    fn run(
        pacers: &mut [Pacer],
        seconds: u64,
        slow: impl Fn(usize) -> Option<u64>,
    ) -> (Vec<u64>, u64) {
        let mut sent = vec![0_u64; pacers.len()];
        let mut window = std::collections::VecDeque::from([0_u64; 100]);
        let mut max = 0;
        for millis in 0..seconds * 1000 {
            let now = SECOND + millis * 1_000_000;
            let before: u64 = sent.iter().sum();
            for (number, pacer) in pacers.iter_mut().enumerate() {
                loop {
                    let room = slow(number).map_or(u64::MAX, |rate| {
                        (rate * (millis + 1) / 1000).saturating_sub(sent[number])
                    });
                    if room == 0 {
                        break;
                    }
                    let Ok(allowed) = advance(pacer, now, u64::MAX) else { break };
                    let taken = allowed.min(room);
                    pacer.spend(taken);
                    sent[number] += taken;
                }
            }
            window.pop_front();
            window.push_back(sent.iter().sum::<u64>() - before);
            max = max.max(window.iter().sum());
        }
        (sent, max)
    }

    fn assert_near(value: u64, wanted: u64, percent: u64) {
        assert!(value.abs_diff(wanted) * 100 <= wanted * percent, "{value} is not near {wanted}");
    }

    #[test]
    fn responses_without_pacing_share_the_ceiling_with_paced_ones() {
        let throttle = ceiling(1_000_000);
        let (_senders, mut pacers) = pacers(&throttle, 1);
        let (mut at_once, mut paced) = (0, 0);
        for millis in 0..10_000 {
            let now = Duration::from_secs(1) + Duration::from_millis(millis);
            at_once += 1_000 * u64::from(throttle.takes_at_once(1_000, *ORIGIN + now));
            if let Ok(allowed) = advance(&mut pacers[0], now.as_nanos() as u64, 10_000) {
                pacers[0].spend(allowed);
                paced += allowed;
            }
        }
        assert_near(at_once + paced, 10_000_000, 2);
        assert!(at_once > 0 && paced > 0, "{at_once} at once, {paced} paced");
        assert_eq!(throttle.counts().sent, at_once + paced);
    }

    #[test]
    fn a_response_that_would_be_delayed_rejected_or_only_counted_is_not_sent_at_once() {
        let now = *ORIGIN + Duration::from_secs(1);
        let rules = BandwidthRules { ceiling: Some(100_000), ..Default::default() };
        let takes = |rules, bytes| throttle(rules).takes_at_once(bytes, now);
        assert!(takes(rules, 500) && takes(rules, 0));
        assert!(!takes(rules, 1_000), "more than a first chunk");
        assert!(!takes(BandwidthRules { per_connection: Some(100_000), ..rules }, 1));
        assert!(!takes(BandwidthRules { minimum: Some(100_001), ..rules }, 1));
        assert!(!takes(BandwidthRules { dry_run: true, ..rules }, 1));
    }

    #[test]
    fn the_ceiling_holds_at_every_rate_for_one_and_many_senders() {
        for rate in [1_000, 33_333, 1_000_000, 100_000_000] {
            for count in [1, 7, 1_000] {
                let throttle = ceiling(rate);
                let (_senders, mut pacers) = pacers(&throttle, count);
                let (sent, max) = run(&mut pacers, 10, |_| None);
                let all = sent.iter().sum();
                assert_near(all, 10 * rate, 2);
                assert_eq!(throttle.counts().sent, all);
                // The bytes of 100 ms, plus bytes that may be early.
                assert!(max <= rate / 5, "{max} bytes in 100 ms at {rate}, {count} senders");
            }
        }
    }

    #[test]
    fn senders_have_equal_shares_and_a_slow_one_leaves_its_share_to_the_others() {
        let throttle = ceiling(1_000_000);
        let (senders, mut all) = pacers(&throttle, 10);
        let (sent, _) = run(&mut all, 10, |_| None);
        drop(senders);
        for bytes in sent {
            assert_near(bytes, 1_000_000, 3);
        }
        let throttle = ceiling(1_000_000);
        let (_senders, mut some) = pacers(&throttle, 5);
        let (sent, _) = run(&mut some, 10, |number| (number == 0).then_some(20_000));
        assert_near(sent[0], 200_000, 3);
        for bytes in &sent[1..] {
            assert_near(*bytes, 2_450_000, 3);
        }
    }

    #[test]
    fn the_rate_of_a_connection_holds_over_all_its_responses() {
        let rules = BandwidthRules { per_connection: Some(50_000), ..Default::default() };
        let throttle = throttle(rules);
        let (sent, max) = run(&mut pacers(&throttle, 3).1, 10, |_| None);
        for bytes in sent {
            assert_near(bytes, 500_000, 2);
        }
        assert!(max <= 3 * 10_000);
        // Two responses of one connection share its rate, and a new response gets no new credit.
        let pace = ConnectionPace::default();
        let of_one = || throttle.enter().unwrap().pacer(&pace, None).unwrap();
        let (sent, _) = run(&mut [of_one(), of_one()], 10, |_| None);
        assert_near(sent.iter().sum(), 500_000, 2);
        let now = 11 * SECOND;
        let (mut now, mut total) = (now, 0);
        while now < 12 * SECOND {
            let mut pacer = of_one();
            match advance(&mut pacer, now, 100) {
                Ok(bytes) => total += bytes,
                Err(until) => now = until,
            }
            // The slot of a dropped response counts as sent.
            assert!(total <= 55_000);
        }
    }

    #[test]
    fn a_small_response_takes_a_small_slot() {
        let throttle = ceiling(1_000_000);
        let (mut now, mut responses) = (SECOND, 0);
        while now < 2 * SECOND {
            let mut pacer = throttle.enter().unwrap().pacer(&Rc::default(), None).unwrap();
            while let Err(until) = advance(&mut pacer, now, 100) {
                now = until;
            }
            responses += 1;
        }
        assert_near(responses, 10_000, 5);
    }

    #[test]
    fn a_sender_below_the_minimum_is_rejected_until_another_ends() {
        let rules =
            BandwidthRules { ceiling: Some(100_000), minimum: Some(30_000), ..Default::default() };
        let strict = throttle(rules);
        let mut senders: Vec<_> = (0..3).map(|_| strict.enter().unwrap()).collect();
        assert!(strict.enter().is_none());
        assert_eq!((strict.counts().senders, strict.counts().rejected), (3, 1));
        senders.pop();
        assert!(strict.enter().is_some());
        let lenient = throttle(BandwidthRules { dry_run: true, ..rules });
        let senders: Vec<_> = (0..5).map(|_| lenient.enter().unwrap()).collect();
        assert_eq!((senders.len(), lenient.counts().rejected), (5, 2));
    }
}
