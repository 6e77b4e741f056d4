//! Watches the memory of requests and responses in progress (`memory` of `[server]`).

use dunlin_memory::Change;

/// Compares the memory with its limit, and logs the begin and the end of each time in which it is exhausted.
pub(crate) fn check() {
    dunlin_memory::update();
    log_change();
}

/// Logs that the memory is exhausted, or available again, if that was not logged yet.
pub(crate) fn log_change() {
    let (held, limit) = (dunlin_memory::held(), dunlin_memory::limit());
    match dunlin_memory::take_change() {
        Some(Change::Exhausted) => tracing::warn!(
            held,
            memory = limit,
            "requests are rejected with status 503: requests and responses on their way hold more than `memory`; raise it, or \
             limit `connections`"
        ),
        Some(Change::Available) => tracing::info!(
            held,
            rejected = dunlin_memory::rejected(),
            "memory is available again; requests are no longer rejected"
        ),
        None => {}
    }
}
