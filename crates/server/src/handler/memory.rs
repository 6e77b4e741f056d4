//! What the server does while the memory of requests and responses on their way is exhausted (`memory` of `[server]`).

use dunlin_config::field_edits::apply_to_message;
use dunlin_memory::Change;

use super::rejection::error_response;
use crate::route::reply::Reply;
use crate::route::sites::Route;

/// Rejects a request. An error page of the route's own might need memory, too.
#[cold]
pub(crate) fn reject(settings: &Route) -> Reply {
    dunlin_memory::reject();
    log_change();
    let mut response = error_response(503, true);
    response.fields.push("Retry-After", "1");
    apply_to_message(settings, &mut response.fields);
    response.into()
}

/// Compares the memory with its limit, and logs the begin and the end of each time in which it is exhausted.
pub(crate) fn check() {
    dunlin_memory::update();
    log_change();
}

fn log_change() {
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
