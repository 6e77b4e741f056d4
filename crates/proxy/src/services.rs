//! The services of a group, whose SRV records name upstreams (RFC 2782).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use dunlin_config::Service;
use dunlin_dns::{RETRY, Target};

/// The services of a group, and what they have had lately. `G` is a group of the upstreams that there are now.
#[derive(Debug)]
pub(crate) struct Services<G> {
    /// Each with its weight.
    pub(crate) services: Vec<(Service, u32)>,
    pub(crate) state: Mutex<State<G>>,
}

#[derive(Debug)]
pub(crate) struct State<G> {
    /// The last answer for each service.
    pub(crate) targets: Vec<Vec<Target>>,
    pub(crate) group: Option<Arc<G>>,
    /// When the services are resolved again.
    pub(crate) until: Option<Instant>,
    /// The last attempt has failed, and that was logged.
    pub(crate) has_failed: bool,
}

impl<G> Services<G> {
    /// Those services, each with its weight; `None` if there are none.
    pub(crate) fn new(services: Vec<(Service, u32)>) -> Option<Self> {
        let state = State { targets: Vec::new(), group: None, until: None, has_failed: false };
        (!services.is_empty()).then(|| Self { services, state: Mutex::new(state) })
    }

    pub(crate) fn fresh(&self, now: Instant) -> Option<Arc<G>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.group.as_ref().filter(|_| state.until.is_some_and(|until| now < until)).cloned()
    }

    /// The names of the services, for people.
    pub(crate) fn names(&self) -> String {
        let names: Vec<_> = self.services.iter().map(|(service, _)| &*service.name).collect();
        names.join(", ")
    }

    pub(crate) fn last(&self) -> Option<Arc<G>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).group.clone()
    }

    /// Notes that a query begins. Until its answer arrives, other requests use the last one. Returns `false` if there was none.
    pub(crate) fn begin(&self, now: Instant) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.group.is_some() {
            state.until = Some(now + RETRY);
        }
        state.group.is_some()
    }
}
