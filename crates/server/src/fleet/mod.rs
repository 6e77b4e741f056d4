//! The fleet: the servers that share their state by a store, `[shared]`.
//!
//! One thread talks to the store. Requests read what it has learned, and never wait for it: while the store is not reachable, a
//! server continues with what it knows. [`Fleet`] is the handle of that thread.
//!
//! Messages are purges, rejected log-ins, challenges and announcements: a stream in the store, of which each server notes how far it
//! has read. `limits::lease` is the state machine of one server's share of a rate limit. The keys of session tickets are derived from
//! secrets of the fleet (`tls::shared_tickets`), and certificates need locks with an owner and a number that only grows
//! (`tls::acme::storage`).

#[cfg(feature = "fleet")]
mod messages;
mod participants;
pub(crate) mod servers;
#[cfg(feature = "fleet")]
mod storage;
#[cfg(feature = "fleet")]
mod task;

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use dunlin_config::{Config, Problem, Shared};
use dunlin_tls::SharedStorage;
use tokio::sync::oneshot;

pub(crate) use self::participants::Participants;
use self::servers::servers;
use crate::handler::response_cache::purge_order::PurgeOrder;
use crate::maintenance::Closure;

/// The handle of the thread that talks to the store.
#[derive(Debug)]
pub(crate) struct Fleet {
    settings: Shared,
    commands: Sender<Command>,
    /// For the thread, which has not been started yet.
    receiver: Mutex<Option<Receiver<Command>>>,
    pub(crate) state: Arc<FleetState>,
}

/// The state of the store, as the thread has learned it.
#[derive(Debug, Default)]
pub(crate) struct FleetState {
    pub(crate) is_connected: AtomicBool,
    pub(crate) counts: FleetCounts,
}

/// Counters since the start.
#[derive(Debug, Default)]
pub(crate) struct FleetCounts {
    /// Exchanges of rate limits with the store.
    pub(crate) exchanges: AtomicU64,
    /// Messages of other servers.
    pub(crate) messages: AtomicU64,
    /// Times that the store was lost.
    pub(crate) losses: AtomicU64,
}

/// Receives how far the other servers have executed a command, or why they do not know of it.
type Confirmation = oneshot::Sender<Result<Confirmed, String>>;

/// The servers that have executed a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Confirmed {
    /// Servers that have done so, with this one.
    by: usize,
    /// All servers.
    of: usize,
}

/// Commands to the thread.
#[cfg_attr(not(feature = "fleet"), expect(dead_code, reason = "the thread is absent"))]
#[derive(Debug)]
enum Command {
    /// A generation of the configuration is in use.
    Use(Box<Participants>),
    /// Have the other servers purge.
    Purge(PurgeOrder, Confirmation),
    /// Begin or end the maintenance of a site.
    Maintenance(String, Option<Closure>, Confirmation),
    /// Operate on the store.
    #[cfg(feature = "fleet")]
    Access(storage::Access),
    /// Send a message to the other servers.
    #[cfg(feature = "fleet")]
    Announce(Box<messages::Content>, Confirmation),
    /// Leave the fleet and end.
    Stop(Sender<()>),
}

/// Returns why this build cannot use the configuration; `None` if it can.
pub(crate) fn conflict(config: &Config) -> Option<Problem> {
    let shared = config.shared.as_ref().filter(|_| !cfg!(feature = "fleet"))?;
    let what = "[shared]: this build lacks the feature `fleet`; build with `--features fleet`, or install a package";
    Some(shared.problem.with_message(what.to_owned()))
}

impl Fleet {
    /// Returns the fleet that `config` names, which is `before` if its store is the same; `None` if it names none.
    pub(crate) fn of(config: &Config, before: Option<&Arc<Self>>) -> Option<Arc<Self>> {
        let settings = config.shared.as_ref()?;
        if let Some(before) = before.filter(|before| before.settings == *settings) {
            return Some(Arc::clone(before));
        }
        let (commands, receiver) = channel();
        Some(Arc::new(Self {
            settings: settings.clone(),
            commands,
            receiver: Mutex::new(Some(receiver)),
            state: Arc::default(),
        }))
    }

    /// Begins to keep `participants` in step with the store, and leaves the fleet of `before` if that is another one.
    pub(crate) fn takes_over(
        now: Option<&Arc<Self>>,
        before: Option<&Arc<Self>>,
        participants: Participants,
    ) {
        if let Some(before) = before
            && now.is_none_or(|now| !Arc::ptr_eq(now, before))
        {
            before.leave();
        }
        match now {
            Some(fleet) => {
                fleet.send(Command::Use(Box::new(participants)));
                fleet.start();
            }
            None if before.is_some() => {
                servers().set(1);
                dunlin_tls::set_ticket_secrets(Vec::new());
            }
            None => {}
        }
    }

    /// Leaves the fleet: the others do not count this server any more. Returns what the thread drops when it has done so.
    pub(crate) fn leave(&self) -> Receiver<()> {
        let (done, left) = channel();
        self.send(Command::Stop(done));
        left
    }

    /// Returns the storage of certificates that the servers have in common; `None` if this build has none.
    pub(crate) fn storage(&self) -> Option<Arc<dyn SharedStorage>> {
        #[cfg(feature = "fleet")]
        return Some(Arc::new(storage::FleetStorage(self.commands.clone())));
        #[cfg(not(feature = "fleet"))]
        return None;
    }

    /// Requests a purge on all other servers. Resolves to a summary.
    ///
    /// # Errors
    /// Why the request was not published.
    pub(crate) fn purge(
        &self,
        order: &PurgeOrder,
    ) -> impl Future<Output = Result<String, String>> + use<> {
        let (confirm, confirmed) = oneshot::channel();
        self.send(Command::Purge(order.clone(), confirm));
        settle(confirmed)
    }

    /// Begins or ends the maintenance of a site on all servers. Resolves to a summary.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub(crate) fn set_maintenance(
        &self,
        site: &str,
        closure: Option<Closure>,
    ) -> impl Future<Output = Result<String, String>> + use<> {
        let (confirm, confirmed) = oneshot::channel();
        self.send(Command::Maintenance(site.to_owned(), closure, confirm));
        settle(confirmed)
    }

    fn send(&self, command: Command) {
        // It fails when the thread has ended.
        let _ = self.commands.send(command);
    }

    /// Starts the thread, once.
    fn start(&self) {
        let receiver = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(receiver) = receiver else { return };
        #[cfg(feature = "fleet")]
        {
            let task = task::Task::new(self.settings.clone(), Arc::clone(&self.state), receiver);
            let thread = std::thread::Builder::new().name("shared-state".into());
            if let Err(error) = thread.spawn(move || task.run()) {
                tracing::error!(
                    "shared state: the thread cannot start, this server is alone: {error}"
                );
            }
        }
        #[cfg(not(feature = "fleet"))]
        drop(receiver);
    }
}

/// Waits for the confirmation of a command, and describes it.
async fn settle(confirmed: oneshot::Receiver<Result<Confirmed, String>>) -> Result<String, String> {
    let gone = || Err("the server is stopping".to_owned());
    let Confirmed { by, of } = confirmed.await.unwrap_or_else(|_| gone())?;
    Ok(match of {
        0 | 1 => "there is no other server".to_owned(),
        _ if by == of => format!("all {of} servers have confirmed it"),
        _ => format!(
            "{by} of {of} servers have confirmed it, the others follow when they reach the store"
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use dunlin_config::Overrides;

    use super::*;

    #[test]
    fn a_build_without_the_feature_rejects_a_store() {
        let parse = |table: &str| {
            let text = format!("[[listen]]\naddress = ':1'\n[[site]]\nroot = '/'\n{table}");
            Config::parse(&text, Path::new("/d.toml"), &Overrides::default()).unwrap()
        };
        assert!(conflict(&parse("")).is_none());
        let found = conflict(&parse("[shared]\nurl = 'redis://127.0.0.1:1'"));
        match cfg!(feature = "fleet") {
            true => assert!(found.is_none()),
            false => {
                let text = found.unwrap().to_string();
                assert!(text.starts_with("/d.toml:5:1: [shared] needs a build"), "{text}");
            }
        }
    }
}
