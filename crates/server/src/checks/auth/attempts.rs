//! Limit of failed authentication attempts per address: it slows down password guessing without
//! affecting other clients.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dunlin_net::address::Peer;

/// Failures by address. An IPv6 /64 network counts as one address, as one client can own all of it.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    failures: Mutex<HashMap<Peer, Failures>>,
}

#[derive(Debug)]
struct Failures {
    count: u32,
    since: Instant,
}

/// Period in which failures are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// Maximum of addresses in the table.
const MAX_ADDRESSES: usize = 16 * 1024;

impl Attempts {
    /// Counts an attempt before it is verified, so that concurrent attempts are counted too.
    ///
    /// # Errors
    /// The time to wait, if there have been `max` attempts within a minute.
    pub(crate) fn begin(&self, address: Peer, max: u32, now: Instant) -> Result<(), Duration> {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= MAX_ADDRESSES {
            failures.retain(|_, one| now.duration_since(one.since) < WINDOW);
        }
        if failures.len() >= MAX_ADDRESSES && !failures.contains_key(&address.network()) {
            // The table is full of recent failures. The evicted address starts again at zero.
            let one = failures.keys().next().copied();
            one.and_then(|one| failures.remove(&one));
        }
        let one = failures.entry(address.network()).or_insert(Failures { count: 0, since: now });
        let age = now.duration_since(one.since);
        if age >= WINDOW {
            *one = Failures { count: 0, since: now };
        }
        if one.count >= max {
            return Err(WINDOW - age.min(WINDOW));
        }
        one.count += 1;
        Ok(())
    }

    /// Takes back an attempt that [`begin`](Self::begin) has counted.
    pub(crate) fn forgive(&self, address: Peer) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(one) = failures.get_mut(&address.network()) {
            one.count = one.count.saturating_sub(1);
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
    }

    #[test]
    fn the_table_of_addresses_is_bounded() {
        let attempts = Attempts::default();
        let now = Instant::now();
        for number in 0..3 * MAX_ADDRESSES as u32 {
            attempts.begin(Peer::Ip(number.to_be_bytes().into()), 5, now).unwrap();
        }
        assert!(attempts.failures.lock().unwrap().len() <= MAX_ADDRESSES);
    }
}
