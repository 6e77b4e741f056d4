//! How often somebody has failed lately: guessing passwords has to be slow, and must not keep others
//! from asking.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::transport::Peer;

/// Failures by address. Of IPv6 a network of 64 bits counts as one address: a client can have all of
/// it.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    failures: Mutex<HashMap<Peer, Failures>>,
}

#[derive(Debug)]
struct Failures {
    count: u32,
    since: Instant,
}

/// Failures are counted for so long.
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses that are remembered.
const MOST: usize = 16 * 1024;

impl Attempts {
    /// Counts an attempt of that address before it is looked at, so that many at once are counted too.
    ///
    /// # Errors
    /// How long to wait, when there have been `most` of late.
    pub(crate) fn begin(&self, address: Peer, most: u32, now: Instant) -> Result<(), Duration> {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= MOST {
            failures.retain(|_, one| now.duration_since(one.since) < WINDOW);
        }
        if failures.len() >= MOST && !failures.contains_key(&address.network()) {
            // So many have failed within a minute. Whoever is forgotten may begin anew.
            let one = failures.keys().next().copied();
            one.and_then(|one| failures.remove(&one));
        }
        let one = failures.entry(address.network()).or_insert(Failures { count: 0, since: now });
        let age = now.duration_since(one.since);
        if age >= WINDOW {
            *one = Failures { count: 0, since: now };
        }
        if one.count >= most {
            return Err(WINDOW - age.min(WINDOW));
        }
        one.count += 1;
        Ok(())
    }

    /// The attempt was none to be counted.
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
    fn who_fails_too_often_waits_and_others_do_not() {
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
        // The clients of one network of 64 bits count together.
        let v6 = |last: u16| Peer::Ip([0x2001, 0xdb8, 0, 0, 0, 0, 0, last].into());
        (0..5).for_each(|last| attempts.begin(v6(last), 5, start).unwrap());
        assert!(attempts.begin(v6(9), 5, start).is_err());
    }

    #[test]
    fn memory_is_bounded() {
        let attempts = Attempts::default();
        let now = Instant::now();
        for number in 0..3 * MOST as u32 {
            attempts.begin(Peer::Ip(number.to_be_bytes().into()), 5, now).unwrap();
        }
        assert!(attempts.failures.lock().unwrap().len() <= MOST);
    }
}
