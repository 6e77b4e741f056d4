//! Waiting for a worker, and starting as many as the requests that wait need.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use super::super::context::{Context, Shared};
use super::super::failure::Failure;
use super::checkout::Checkout;
use super::pool::Pool;
use super::schedule::Demand;
use super::start;
use super::state::{PoolState, Waiter};

impl Pool {
    /// Waits for a worker, first come, first served.
    ///
    /// # Errors
    /// [`Failure::Busy`] when too many requests wait, or when this one has waited too long; [`Failure::Unreachable`] when no
    /// worker can be started.
    pub(in super::super) async fn checkout(
        self: &Arc<Self>,
        ctx: &Context,
        script: &Arc<str>,
    ) -> Result<Checkout, Failure> {
        let owner = std::thread::current().id();
        let (given, since) = {
            let mut state = self.lock();
            if let Some(checkout) = self.take(&mut state, script, owner) {
                return Ok(checkout);
            }
            if let Some(reason) = state.down() {
                return Err(Failure::Unreachable(reason.to_string()));
            }
            state.drop_abandoned();
            let (reply, given) = oneshot::channel();
            let (script, since) = (Arc::clone(script), Instant::now());
            state.queue.push_back(Waiter { script, owner, reply });
            self.grow(&mut state, &ctx.shared);
            if state.queue.len() > self.demand(&state).queue_room(self.rules.queue) {
                state.queue.pop_back();
                self.report_rejection(&mut state);
                return Err(Failure::Busy);
            }
            (given, since)
        };
        match ctx.deadlines.before(since + self.rules.queue_timeout, since, given).await {
            Some(Ok(Ok(checkout))) => Ok(checkout),
            Some(Ok(Err(reason))) => Err(Failure::Unreachable(reason)),
            Some(Err(_)) => Err(Failure::Broken("the server is stopping".into())),
            None => {
                self.report_rejection(&mut self.lock());
                Err(Failure::Busy)
            }
        }
    }

    /// Starts as many workers as are needed.
    pub(super) fn grow(self: &Arc<Self>, state: &mut PoolState, shared: &Arc<Shared>) {
        if state.is_stopping {
            return;
        }
        for _ in 0..self.demand(state).workers_to_start() {
            state.starting += 1;
            self.supervisor.spawn(start::run(Arc::clone(self), Arc::clone(shared)));
        }
    }

    fn demand(&self, state: &PoolState) -> Demand {
        let loading = state.loading();
        Demand {
            waiting: state.queue.len(),
            workers: state.slots.len() - loading,
            starting: state.starting + loading,
            min: self.local.min_processes,
            max: self.rules.processes,
            concurrent: self.capacity.concurrent,
            is_unproven: self.is_application() && !state.is_proven,
        }
    }
}
