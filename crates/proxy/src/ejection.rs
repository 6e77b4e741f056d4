//! Ejection of upstreams that fail again and again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::group::Group;
use crate::health::millis;
use crate::upstream::Upstream;

/// An upstream that fails again and again is ejected for up to this multiple of the configured time.
const MAX_EJECTIONS: u32 = 10;

impl Group {
    /// Notes that an upstream has responded.
    pub(crate) fn note_success(&self, upstream: &Upstream) {
        if upstream.health.note_success() {
            tracing::info!(upstream = &*upstream.name, "the upstream responds again");
        }
    }

    /// Notes that an upstream has failed. It is ejected after as many failures in a row as the configuration permits, unless
    /// too many others are.
    pub(crate) fn note_failure(&self, upstream: &Upstream, now: Instant) {
        let rules = &self.rules.eject;
        let health = &upstream.health;
        let failures = health.failures.fetch_add(1, Ordering::Relaxed) + 1;
        // One success is missing after an ejection: another failure ejects it again.
        let is_on_trial = health.ejections.load(Ordering::Relaxed) != 0;
        if rules.failures == 0
            || health.is_ejected(now)
            || !is_on_trial && failures < rules.failures
        {
            return;
        }
        let is_ejected = |other: &&Arc<Upstream>| other.health.is_ejected(now);
        let ejected = self.upstreams.iter().filter(is_ejected).count() + 1;
        if ejected * 100 > rules.share as usize * self.upstreams.len() {
            return;
        }
        let times = (health.ejections.fetch_add(1, Ordering::Relaxed) + 1).min(MAX_EJECTIONS);
        let time = rules.time * times;
        health.failures.store(0, Ordering::Relaxed);
        let until = millis(now) + time.as_millis() as u64;
        health.ejected_until.store(until.max(1), Ordering::Relaxed);
        tracing::warn!(
            upstream = &*upstream.name,
            "the upstream has failed {failures} times in a row; it gets no requests for {time:?}"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::group;

    #[test]
    fn an_upstream_is_ejected_after_failures_in_a_row_and_longer_each_time() {
        let group = group("eject = { failures = 3, time = '10s' }", &[1, 1]);
        let upstream = &group.upstreams[0];
        let mut now = Instant::now();
        let fail = |times, now| (0..times).for_each(|_| group.note_failure(upstream, now));
        fail(2, now);
        group.note_success(upstream);
        fail(2, now);
        assert!(upstream.health.is_available(now));
        fail(1, now);
        assert!(!upstream.health.is_available(now + Duration::from_secs(9)));
        now += Duration::from_secs(11);
        assert!(upstream.health.is_available(now));
        fail(1, now);
        assert!(!upstream.health.is_available(now + Duration::from_secs(19)));
        now += Duration::from_secs(21);
        group.note_success(upstream);
        fail(2, now);
        assert!(upstream.health.is_available(now));
    }

    #[test]
    fn not_all_upstreams_are_ejected() {
        let group = group("eject = { failures = 1 }", &[1, 1]);
        let now = Instant::now();
        group.note_failure(&group.upstreams[0], now);
        group.note_failure(&group.upstreams[1], now);
        let available = group.upstreams.iter().filter(|upstream| upstream.health.is_available(now));
        assert_eq!(available.count(), 1);
    }
}
