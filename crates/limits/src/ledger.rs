//! The store of shared limits in memory, for tests: the same rule as the script that runs in the store.

use std::collections::HashMap;

use crate::lease::{Granted, Report, Terms};
use crate::names::ClientId;

/// The buckets of one limit.
#[derive(Debug, Default)]
pub struct Ledger {
    buckets: HashMap<ClientId, (f64, u64)>,
}

impl Ledger {
    /// Responds to a report at the time `now`, in nanoseconds. `servers` is the number of servers.
    pub fn exchange(
        &mut self,
        terms: &Terms,
        servers: u32,
        client: ClientId,
        report: Report,
        now: u64,
    ) -> Granted {
        let (level, at) = *self.buckets.entry(client).or_insert((terms.burst, now));
        let refilled = level + now.saturating_sub(at) as f64 * terms.rate;
        let capacity = terms.capacity();
        let level = (refilled.min(capacity) - report.owed).clamp(-capacity, capacity);
        let credit = level.max(0.0) / f64::from(servers);
        // Whole tokens, so that parts of one are not spread over many servers.
        let missing = report.needed - credit;
        let tokens = match level >= 1.0 && missing > 0.0 {
            true => missing.ceil().min(level.floor()),
            false => 0.0,
        };
        self.buckets.insert(client, (level - tokens, now));
        Granted { tokens, level: level - tokens }
    }
}
