//! The handlers that the response cache can stand before: the script of a route, and its upstreams.

use std::rc::Rc;

use dunlin_exchange::{Incoming, ResponseFuture};

use super::call::HandlerCall;
use super::{proxy, script};

/// Has the script or the upstreams of the route respond.
pub(super) fn fetch(call: Rc<HandlerCall>, incoming: Box<Incoming>) -> ResponseFuture {
    match call.matched.settings.handler.script() {
        Some(_) => Box::pin(script::fetch(call, incoming)),
        None => Box::pin(proxy::fetch(call, incoming)),
    }
}
