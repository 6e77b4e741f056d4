//! The response while the memory of requests and responses in progress is exhausted (`memory` of `[server]`).

use dunlin_config::field_edits::apply_to_message;

use super::rejection::error_response;
use crate::route::reply::Reply;
use crate::route::sites::Route;
use crate::worker::memory::log_change;

/// Rejects a request. An error page of the route's own might need memory, too.
#[cold]
pub(crate) fn reject(settings: &Route) -> Reply {
    dunlin_memory::reject();
    log_change();
    let mut response = error_response(503, true);
    response.fields.push("Retry-After", "1");
    apply_to_message(settings, response.status, &mut response.fields);
    response.into()
}
