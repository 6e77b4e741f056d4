//! A sample of the figures each second, with and without readers.

use std::time::SystemTime;

use dunlin_status::{Requests, Totals, seconds};
use dunlin_telemetry::metrics::Process;

use crate::worker::SharedState;

/// Adds a sample to the history of the server.
pub(crate) fn sample(shared: &SharedState) {
    let counts = shared.metrics.sum_unread();
    shared.history.add(Totals {
        time: seconds(SystemTime::now()),
        open: counts.connections.iter().sum(),
        requests: Requests::new(&counts),
        rejected: shared.limiter.per_address().rejected() + shared.sites.rejected(),
        cpu: Process::cpu_time(),
    });
}
