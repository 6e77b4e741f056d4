//! Requests in flight at the end of a run that a server that keeps up would have responded to.

use crate::engine::Tally;

/// Shortest wait of arrivals at the end that matters, in milliseconds: connections are established, and processes scheduled.
pub(super) const LEAST_WAIT: f64 = 50.0;
/// Growth of the response time from the first quarter of the run to the last from which on the server does not keep up.
const GROWTH: f64 = 1.5;
/// The least share of that growth from one quarter to the next; a third if it is even.
const LEAST_PART: f64 = 0.1;

/// Of the requests in flight at the end, those that a server that keeps up would have responded to: in the second half of the
/// run there were fewer responses than arrivals, and they took longer from quarter to quarter. If the response time has changed
/// once, as many requests more are in flight, but no longer gather. The number of `independent` arrivals scatters with its square
/// root.
pub(super) fn overdue(tally: &Tally, independent: bool) -> u64 {
    let quarters = &tally.quarters;
    if quarters.iter().any(|quarter| quarter.responses == 0) {
        return 0;
    }
    let means = quarters.map(|quarter| quarter.time as f64 / quarter.responses as f64);
    let growth = means[3] - means[0];
    let steady = means.windows(2).all(|pair| pair[1] - pair[0] > LEAST_PART * growth);
    if growth < LEAST_WAIT * 1e6 || means[3] < GROWTH * means[0] || !steady {
        return 0;
    }
    let due = tally.due as f64 / 2.0;
    let chance = if independent { 2.0 * due.sqrt() } else { 0.0 };
    let lacking = due - (quarters[2].responses + quarters[3].responses) as f64;
    if lacking > chance { (2.0 * lacking).min(tally.unfinished as f64) as u64 } else { 0 }
}
