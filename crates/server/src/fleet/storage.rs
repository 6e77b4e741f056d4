//! The storage of certificates that the servers of a fleet have in common.

use std::fmt;
use std::sync::mpsc::Sender;
use std::time::Duration;

use dunlin_shared_state::objects::Locked;
use dunlin_shared_state::{Store, StoreError};
use dunlin_tls::{Pending, SharedChallenge, SharedStorage};
use tokio::sync::oneshot;

use super::messages::Content;
use super::{Command, Confirmed};

/// Operations on the store by the thread that talks to it.
#[derive(Debug, Clone)]
pub(super) struct FleetStorage(pub(super) Sender<Command>);

/// An operation, which gets the store, if it is reachable.
pub(super) struct Access(Box<Operation>);

type Operation = dyn FnOnce(Option<Reached<'_>>) -> Result<(), StoreError> + Send;

/// The store, while it is reachable.
pub(super) struct Reached<'a> {
    pub(super) store: &'a mut Store,
    /// The ID of this server.
    pub(super) server: &'a str,
    /// The other servers have had the time to reach the store, too.
    pub(super) is_settled: bool,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

impl Access {
    /// Does it.
    ///
    /// # Errors
    /// When the store does not respond.
    pub(super) fn run(self, store: Option<Reached<'_>>) -> Result<(), StoreError> {
        self.0(store)
    }
}

impl FleetStorage {
    /// Runs `operation` on the thread.
    fn access<T: Send + 'static>(
        &self,
        operation: impl FnOnce(Reached<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Pending<T> {
        let (done, result) = oneshot::channel();
        let access = move |reached: Option<Reached<'_>>| {
            let Some(reached) = reached else {
                // The receiver may be dropped.
                let _ = done.send(Err("the store is not reachable".to_owned()));
                return Ok(());
            };
            match operation(reached) {
                Ok(value) => {
                    let _ = done.send(Ok(value));
                    Ok(())
                }
                Err(error) => {
                    let _ = done.send(Err(error.to_string()));
                    Err(error)
                }
            }
        };
        let _ = self.0.send(Command::Access(Access(Box::new(access))));
        Box::pin(async move { result.await.unwrap_or_else(|_| Err(STOPPING.to_owned())) })
    }

    fn send(&self, content: Content) -> Pending<()> {
        let (confirm, confirmed) = oneshot::channel();
        let _ = self.0.send(Command::Announce(Box::new(content), confirm));
        Box::pin(async move {
            // A server that does not confirm in time must not keep the others from their certificate.
            let Confirmed { .. } = confirmed.await.unwrap_or_else(|_| Err(STOPPING.to_owned()))?;
            Ok(())
        })
    }
}

const STOPPING: &str = "the server is stopping";

impl SharedStorage for FleetStorage {
    fn read(&self, name: &str) -> Pending<Option<Vec<u8>>> {
        let name = name.to_owned();
        self.access(move |reached| reached.store.read(&name))
    }

    fn write(&self, name: &str, content: Vec<u8>, fence: u64) -> Pending<bool> {
        let name = name.to_owned();
        self.access(move |reached| {
            reached.store.write(&name, &content, None, (reached.server, fence))
        })
    }

    fn lock(&self, name: &str, lease: Duration) -> Pending<Option<u64>> {
        let name = name.to_owned();
        self.access(move |reached| {
            // A server that has not reached the store yet would not respond to the challenge of an order.
            if !reached.is_settled {
                return Ok(None);
            }
            Ok(match reached.store.lock(&name, reached.server, lease)? {
                Locked::Owned(fence) => Some(fence),
                Locked::Other(_) => None,
            })
        })
    }

    fn unlock(&self, name: &str, fence: u64) -> Pending<()> {
        let name = name.to_owned();
        self.access(move |reached| reached.store.unlock(&name, reached.server, fence))
    }

    fn challenge(&self, challenges: Vec<SharedChallenge>) -> Pending<()> {
        let content = |challenge| match challenge {
            SharedChallenge::Http { token, response } => Content::Http { token, response },
            SharedChallenge::Tls { name, digest } => Content::Tls { name, digest },
        };
        let sent: Vec<_> =
            challenges.into_iter().map(|challenge| self.send(content(challenge))).collect();
        Box::pin(async move {
            for confirmed in sent {
                confirmed.await?;
            }
            Ok(())
        })
    }

    fn announce(&self) -> Pending<()> {
        self.send(Content::Certificates)
    }
}
