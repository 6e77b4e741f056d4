//! Limit of failed authentication attempts per address: it slows down password guessing without
//! affecting other clients. Servers of a fleet count them together.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dunlin_limits::names::{ClientId, NameKey};
use dunlin_net::address::Peer;
use sha2::{Digest, Sha256};

/// Failures by address. An IPv6 /64 network counts as one address, as one client can own all of it.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// Names the login in the fleet; empty where none is.
    scope: String,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    failures: HashMap<Peer, Failures>,
    /// Addresses of which the fleet has to know, each once.
    due: Vec<Peer>,
    /// The clients that the fleet has rejected, by its names there, until when.
    rejected: HashMap<ClientId, Instant>,
    /// The key of the names by which the fleet knows clients; `None` where none is.
    names: Option<NameKey>,
}

#[derive(Debug)]
struct Failures {
    count: u32,
    since: Instant,
    /// Attempts at other servers, at the last exchange.
    others: u32,
    /// The difference since the last exchange.
    change: i32,
    is_due: bool,
    /// The number of attempts that are allowed, when the last one came.
    max: u32,
}

/// The failures of an address that the fleet has to know.
#[cfg_attr(not(feature = "fleet"), allow(dead_code, reason = "there is no fleet"))]
#[derive(Debug)]
pub(crate) struct AttemptReport {
    /// The login and the address.
    pub(crate) id: ClientId,
    pub(crate) change: i32,
    /// The number of attempts that are allowed.
    pub(crate) max: u32,
    address: Peer,
}

/// Period in which failures are counted.
pub(crate) const WINDOW: Duration = Duration::from_secs(60);
/// Maximum of addresses in the table.
const MAX_ADDRESSES: usize = 16 * 1024;

impl Attempts {
    /// For a login that servers of a fleet have in common. `scope` names it.
    pub(crate) fn of_fleet(scope: String) -> Self {
        Self { scope, table: Mutex::default() }
    }

    /// Counts an attempt before it is verified, so that concurrent attempts are counted too.
    ///
    /// # Errors
    /// The time to wait, if there have been `max` attempts within a minute.
    pub(crate) fn begin(&self, address: Peer, max: u32, now: Instant) -> Result<(), Duration> {
        let mut table = self.table();
        let Table { failures, due, rejected, names } = &mut *table;
        if !rejected.is_empty()
            && let Some(names) = names
            && let Some(until) = rejected.get(&names.name(&self.id(address)))
            && *until > now
        {
            return Err(*until - now);
        }
        if failures.len() >= MAX_ADDRESSES {
            failures.retain(|_, one| now.duration_since(one.since) < WINDOW);
        }
        if failures.len() >= MAX_ADDRESSES && !failures.contains_key(&address.network()) {
            // The table is full of recent failures. The evicted address starts again at zero.
            let one = failures.keys().next().copied();
            one.and_then(|one| failures.remove(&one));
        }
        let one = failures.entry(address.network()).or_insert(Failures::new(now));
        let age = now.duration_since(one.since);
        if age >= WINDOW {
            *one = Failures { is_due: one.is_due, ..Failures::new(now) };
        }
        if one.count + one.others >= max {
            return Err(WINDOW - age.min(WINDOW));
        }
        one.max = max;
        one.change(1, address.network(), due, &self.scope);
        Ok(())
    }

    /// Takes back an attempt that [`begin`](Self::begin) has counted.
    pub(crate) fn forgive(&self, address: Peer) {
        let mut table = self.table();
        let Table { failures, due, .. } = &mut *table;
        if let Some(one) = failures.get_mut(&address.network()).filter(|one| one.count > 0) {
            one.change(-1, address.network(), due, &self.scope);
        }
    }
}

/// The exchange with the other servers of a fleet.
#[cfg_attr(not(feature = "fleet"), allow(dead_code, reason = "there is no fleet"))]
impl Attempts {
    /// Sets what the fleet names clients by.
    pub(crate) fn set_names(&self, names: &NameKey) {
        self.table().names = Some(names.clone());
    }

    /// Takes at most `max` changes to publish to the fleet. Each is settled by [`apply`](Self::apply) or
    /// [`take_back`](Self::take_back).
    pub(crate) fn reports(&self, max: usize) -> Vec<AttemptReport> {
        let mut table = self.table();
        let Table { failures, due, .. } = &mut *table;
        let report = |address: Peer| {
            let one = failures.get_mut(&address)?;
            one.is_due = false;
            let (change, max) = (std::mem::take(&mut one.change), one.max);
            (change != 0).then(|| AttemptReport { id: self.id(address), change, max, address })
        };
        let count = due.len().min(max);
        due.drain(..count).filter_map(report).collect()
    }

    /// Takes back a change that the fleet may not have received.
    pub(crate) fn take_back(&self, report: &AttemptReport) {
        let mut table = self.table();
        let Table { failures, due, .. } = &mut *table;
        if let Some(one) = failures.get_mut(&report.address) {
            one.report(report.change, report.address, due);
        }
    }

    /// Takes the number of attempts of all servers.
    pub(crate) fn apply(&self, report: &AttemptReport, total: u32) {
        if let Some(one) = self.table().failures.get_mut(&report.address) {
            let own = i64::from(one.count) - i64::from(one.change);
            one.others = u32::try_from(i64::from(total) - own).unwrap_or(0);
        }
    }

    /// Rejects attempts of a client by its name in the fleet, because the servers together have counted too many.
    pub(crate) fn reject(&self, name: ClientId, until: Instant, now: Instant) {
        let rejected = &mut self.table().rejected;
        rejected.retain(|_, until| *until > now);
        if rejected.len() < MAX_ADDRESSES {
            rejected.insert(name, until);
        }
    }
}

impl Attempts {
    fn id(&self, address: Peer) -> ClientId {
        let digest = Sha256::digest(format!("{}\n{}", self.scope, address.network()));
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        id
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Failures {
    fn new(since: Instant) -> Self {
        Self { count: 0, since, others: 0, change: 0, is_due: false, max: u32::MAX }
    }

    fn change(&mut self, by: i32, address: Peer, due: &mut Vec<Peer>, scope: &str) {
        self.count = self.count.saturating_add_signed(by);
        if !scope.is_empty() {
            self.report(by, address, due);
        }
    }

    fn report(&mut self, by: i32, address: Peer, due: &mut Vec<Peer>) {
        self.change = self.change.saturating_add(by);
        // An address that is evicted and comes again is there twice, so that the table is no bound for the list.
        if !self.is_due && due.len() < MAX_ADDRESSES {
            self.is_due = true;
            due.push(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_too_many_failures_waits_and_others_do_not() {
        let attempts = Attempts::default();
        let (one, other) = (Peer::Ip([192, 0, 2, 1].into()), Peer::Ip([192, 0, 2, 2].into()));
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        for second in 0..5 {
            attempts.begin(one, 5, after(second)).unwrap();
        }
        assert_eq!(attempts.begin(one, 5, after(20)), Err(Duration::from_secs(40)));
        attempts.begin(other, 5, after(20)).unwrap();
        attempts.begin(one, 5, after(60)).unwrap();
        for _ in 0..100 {
            attempts.begin(other, 5, after(30)).unwrap();
            attempts.forgive(other);
        }
        // Addresses of one IPv6 /64 network count together.
        let v6 = |last: u16| Peer::Ip([0x2001, 0xdb8, 0, 0, 0, 0, 0, last].into());
        (0..5).for_each(|last| attempts.begin(v6(last), 5, start).unwrap());
        assert!(attempts.begin(v6(9), 5, start).is_err());
        assert!(attempts.reports(9).is_empty(), "there is no fleet");
    }

    #[test]
    fn the_table_of_addresses_is_bounded() {
        let attempts = Attempts::default();
        let now = Instant::now();
        for number in 0..3 * MAX_ADDRESSES as u32 {
            attempts.begin(Peer::Ip(number.to_be_bytes().into()), 5, now).unwrap();
        }
        assert!(attempts.table().failures.len() <= MAX_ADDRESSES);
        let of_fleet = Attempts::of_fleet("a".into());
        for number in 0..3 * MAX_ADDRESSES as u32 {
            of_fleet.begin(Peer::Ip(number.to_be_bytes().into()), 5, now).unwrap();
        }
        assert!(of_fleet.table().due.len() <= MAX_ADDRESSES, "the store does not respond");
    }

    #[test]
    fn servers_count_together_and_reject_what_one_of_them_has_found() {
        let (one, other) = (Attempts::of_fleet("a".into()), Attempts::of_fleet("a".into()));
        let (address, now) = (Peer::Ip([192, 0, 2, 1].into()), Instant::now());
        (0..3).for_each(|_| one.begin(address, 5, now).unwrap());
        one.forgive(address);
        // The store did not respond to the first exchange.
        one.reports(9).iter().for_each(|report| one.take_back(report));
        let reports = one.reports(9);
        assert_eq!((reports.len(), reports[0].change, reports[0].max), (1, 2, 5));
        other.begin(address, 5, now).unwrap();
        let report = other.reports(9).pop().unwrap();
        assert_eq!(report.id, reports[0].id);
        // The store has counted two of the first server, and this one.
        other.apply(&report, 3);
        other.begin(address, 5, now).unwrap();
        other.begin(address, 5, now).unwrap();
        assert!(other.begin(address, 5, now).is_err());
        let elsewhere = Attempts::of_fleet("b".into());
        let names = NameKey::new(&[1; 32]);
        for attempts in [&one, &elsewhere] {
            attempts.set_names(&names);
            attempts.reject(names.name(&report.id), now + Duration::from_secs(9), now);
        }
        assert_eq!(one.begin(address, 5, now), Err(Duration::from_secs(9)));
        elsewhere.begin(address, 5, now).unwrap();
        one.begin(address, 5, now + Duration::from_secs(9)).unwrap();
    }

    #[test]
    fn an_exchange_has_a_bound_and_the_next_one_has_the_rest() {
        let attempts = Attempts::of_fleet("a".into());
        let address = |last: u8| Peer::Ip([192, 0, 2, last].into());
        (0..5).for_each(|last| attempts.begin(address(last), 5, Instant::now()).unwrap());
        let counts: Vec<usize> = (0..4).map(|_| attempts.reports(2).len()).collect();
        assert_eq!(counts, [2, 2, 1, 0]);
    }
}
