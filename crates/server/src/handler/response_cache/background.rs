//! Background validation of stale responses while they are served (RFC 5861 §3).

use std::rc::Rc;

use dunlin_exchange::{EarlyHints, Incoming, Response};
use dunlin_net::clock;
use dunlin_response_cache::flight::Role;
use dunlin_telemetry::ScriptContext;

use super::forwarding::Forwarding;
use super::outcome::Outcome;
use super::reuse::reuse;

impl Forwarding {
    /// Responds with the stored response, and validates it in the background unless another request does.
    pub(super) async fn revalidate_later(self: Box<Self>, incoming: Box<Incoming>) -> Response {
        let Some(stored) = self.stored.clone() else { return self.respond(incoming).await };
        let request = self.call.request();
        let settings = &self.call.matched.settings;
        let response =
            reuse(&self.call.ctx, &self.cache, &request, settings, &stored, Outcome::Stale);
        if let Role::Leader(leader) = self.cache.flights.join(&self.key, b"") {
            // The validation is not visible to the client: the access record has the times of the client's own response.
            let incoming = Box::new(Incoming {
                script_context: Rc::new(ScriptContext::new(clock::now(), None)),
                early_hints: EarlyHints::new(false),
                ..*incoming.without_body()
            });
            tokio::task::spawn_local(async move {
                // Dropping the response does not end the task that stores it.
                drop(self.fetch(leader, incoming).await);
            });
        }
        response
    }
}
