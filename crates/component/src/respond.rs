//! The way of a request to a component.

use std::sync::Arc;

use dunlin_exchange::Incoming;
use dunlin_script::call::Call;
use dunlin_script::failure::Failure;
use dunlin_script::outcome::Outcome;

use crate::cgi::{self, Command};
use crate::loaded::Program;
use crate::worker::WorkerComponents;
use crate::{proxy, service, typed};

/// Runs the component that the request is for. `name` becomes its name in the log as soon as it is known.
///
/// # Errors
/// Why the component gives no response.
pub async fn respond(
    components: &WorkerComponents,
    call: &Call<'_>,
    incoming: Box<Incoming>,
    name: &mut Arc<str>,
) -> Result<Outcome, Failure> {
    call.begin_within(&incoming);
    let route = components.route(call.rules)?;
    let (slot, located) = route.find(call)?;
    *name = Arc::clone(&slot.label);
    let loaded = slot.current().map_err(Failure::Broken)?;
    let at = (&*slot, &located);
    // Each is boxed to keep the future small.
    match &loaded.program {
        Program::Proxy(pre) => {
            Box::pin(proxy::respond(call, incoming, &route, &slot, &loaded, pre)).await
        }
        Program::Service(pre) => {
            Box::pin(service::respond(call, incoming, &route, &slot, &loaded, pre)).await
        }
        Program::Typed(pre, interfaces) => {
            let called = (pre, &**interfaces);
            Box::pin(typed::respond(call, incoming, &route, at, &loaded, called)).await
        }
        Program::Command(pre) => {
            let command = Command::Sync(pre);
            Box::pin(cgi::respond(call, incoming, &route, at, &loaded, command)).await
        }
        Program::AsyncCommand(pre) => {
            let command = Command::Async(pre);
            Box::pin(cgi::respond(call, incoming, &route, at, &loaded, command)).await
        }
    }
}
