//! The storage of accounts, certificates and the outcomes of attempts: files alone, or also a storage that the servers of
//! a fleet have in common. Each server keeps a copy in its files, so that it starts and serves without the storage.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use dunlin_config::{Acme, Authority};
use tokio::sync::watch;

use super::files::{Outcome, replace};
use super::order::Failure;
use crate::certificate;

/// A storage that several servers have in common. Its futures resolve to the error as text when it is not reachable.
pub trait SharedStorage: fmt::Debug + Send + Sync {
    /// Reads the content of `name`.
    fn read(&self, name: &str) -> Pending<Option<Vec<u8>>>;

    /// Writes the content of `name`. Resolves to `false`, and writes nothing, if the lock of the name has been lost.
    fn write(&self, name: &str, content: Vec<u8>, fence: u64) -> Pending<bool>;

    /// Takes the lock of `name` for `lease`, or extends it. Resolves to its number, which is higher than those of all owners
    /// before; `None` if another server has it.
    fn lock(&self, name: &str, lease: Duration) -> Pending<Option<u64>>;

    /// Releases the lock of `name`.
    fn unlock(&self, name: &str, fence: u64) -> Pending<()>;

    /// Publishes the challenges of an order to every server. Resolves when all of them respond to the challenges.
    fn challenge(&self, challenges: Vec<SharedChallenge>) -> Pending<()>;

    /// Notifies every server that certificates have changed.
    fn announce(&self) -> Pending<()>;
}

/// The result of an operation of a storage.
pub type Pending<T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send>>;

/// A challenge to which any server of a fleet can respond.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharedChallenge {
    /// HTTP-01: the token and the response.
    Http {
        /// The last segment of the path.
        token: String,
        /// The content.
        response: String,
    },
    /// TLS-ALPN-01: the name and the SHA-256 of the key authorization.
    Tls {
        /// The server name of the handshake.
        name: String,
        /// The content of the extension.
        digest: [u8; 32],
    },
}

impl SharedChallenge {
    /// Returns the texts that it has.
    pub(crate) fn texts(&self) -> [&str; 2] {
        match self {
            Self::Http { token, response } => [token, response],
            Self::Tls { name, .. } => [name, ""],
        }
    }
}

/// Changes with each announcement.
static ANNOUNCED: LazyLock<watch::Sender<()>> = LazyLock::new(|| watch::channel(()).0);

/// Notifies the renewal of this server that another server has stored certificates.
pub fn certificates_were_stored() {
    ANNOUNCED.send_replace(());
}

/// Announcements from now on.
pub(super) fn announcements() -> watch::Receiver<()> {
    ANNOUNCED.subscribe()
}

/// The storage of one certificate.
#[derive(Debug, Clone)]
pub(crate) struct Storage {
    shared: Option<Arc<dyn SharedStorage>>,
}

/// The right to order a certificate.
#[derive(Debug)]
pub(crate) struct Turn {
    /// The number of the lock; 0 where no other server is.
    fence: u64,
}

/// The time for which a lock lasts unless it is extended.
const LEASE: Duration = Duration::from_secs(60);

impl Storage {
    pub(crate) fn new(shared: Option<Arc<dyn SharedStorage>>) -> Self {
        Self { shared }
    }

    /// Takes the right to order the certificate; `None` if another server has it.
    ///
    /// # Errors
    /// When the storage is not reachable: without it, several servers would order the same certificate.
    pub(crate) async fn begin(&self, acme: &Acme) -> Result<Option<Turn>, String> {
        let Some(shared) = &self.shared else { return Ok(Some(Turn { fence: 0 })) };
        let fence = shared.lock(&name(&acme.file()), LEASE).await?;
        Ok(fence.map(|fence| Turn { fence }))
    }

    /// Does `work` while the lock is extended.
    pub(crate) async fn during<T>(&self, acme: &Acme, work: impl Future<Output = T>) -> T {
        let Some(shared) = &self.shared else { return work.await };
        let extend = async {
            loop {
                tokio::time::sleep(LEASE / 4).await;
                // If it fails, the certificate may be ordered twice, and one of both is stored.
                let _ = shared.lock(&name(&acme.file()), LEASE).await;
            }
        };
        tokio::select! {
            result = work => result,
            () = extend => unreachable_end().await,
        }
    }

    /// Releases the lock.
    pub(crate) async fn end(&self, acme: &Acme, turn: &Turn) {
        if let Some(shared) = &self.shared {
            // It expires, anyway.
            let _ = shared.unlock(&name(&acme.file()), turn.fence).await;
        }
    }

    /// Writes the certificate of another server to the files if it is newer than the local certificate. Returns `true` if it has
    /// done so.
    ///
    /// # Errors
    /// When the storage is not reachable, or the files cannot be written.
    pub(crate) async fn adopt(&self, acme: &Acme) -> Result<bool, String> {
        let Some(shared) = &self.shared else { return Ok(false) };
        let file = acme.file();
        let Some(content) = shared.read(&name(&file)).await? else { return Ok(false) };
        if std::fs::read(&file).is_ok_and(|own| own == content) {
            return Ok(false);
        }
        let own = until(&file);
        let stored = replace(&file, &content, |new| {
            certificate::check_pair(new, new)?;
            match own {
                Some(own) if until(new).is_none_or(|new| new <= own) => Err(NOT_NEWER.to_owned()),
                _ => Ok(()),
            }
        });
        match stored {
            Ok(()) => Ok(true),
            Err(error) if error.to_string() == NOT_NEWER => Ok(false),
            Err(error) => Err(format!("{}: {error}", file.display())),
        }
    }

    /// Stores the certificate of this server for the others.
    ///
    /// # Errors
    /// When it could not be stored.
    pub(crate) async fn offer(&self, acme: &Acme, turn: &Turn) -> Result<(), String> {
        let Some(shared) = &self.shared else { return Ok(()) };
        let file = acme.file();
        let content = read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let Some(content) = content else { return Ok(()) };
        if !shared.write(&name(&file), content, turn.fence).await? {
            return Err("another server has taken over the order".to_owned());
        }
        shared.announce().await
    }

    /// Returns whether the storage has no certificate.
    ///
    /// # Errors
    /// When the storage is not reachable.
    pub(crate) async fn lacks(&self, acme: &Acme) -> Result<bool, String> {
        let Some(shared) = &self.shared else { return Ok(false) };
        Ok(shared.read(&name(&acme.file())).await?.is_none())
    }

    /// Returns the outcome of the last attempts, of all servers.
    pub(crate) async fn outcome(&self, acme: &Acme) -> Option<Outcome> {
        let file = acme.outcome();
        if let Some(shared) = &self.shared
            && let Ok(Some(content)) = shared.read(&name(&file)).await
        {
            return serde_json::from_slice(&content).ok();
        }
        Outcome::read(&file)
    }

    /// Stores the outcome of an attempt; `None` for a success.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) async fn conclude(&self, acme: &Acme, outcome: Option<&Outcome>) -> io::Result<()> {
        let file = acme.outcome();
        if let Some(shared) = &self.shared {
            let content = outcome.and_then(|outcome| serde_json::to_vec(outcome).ok());
            // Without an outcome there is nothing to read: `null`.
            let content = content.unwrap_or_else(|| b"null".to_vec());
            if let Ok(Some(fence)) = shared.lock(&name(&file), LEASE).await {
                let _ = shared.write(&name(&file), content, fence).await;
                let _ = shared.unlock(&name(&file), fence).await;
            }
        }
        match outcome {
            Some(outcome) => outcome.write(&file),
            None => {
                let _ = std::fs::remove_file(&file);
                Ok(())
            }
        }
    }

    /// Has `create` make the account in its file, unless another server has made it. With `is_gone`, the authority does not
    /// know the stored one any more.
    ///
    /// # Errors
    /// When the storage is not reachable, or the error of `create`.
    pub(crate) async fn account(
        &self,
        authority: &Authority,
        is_gone: bool,
        create: impl AsyncFnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let file = authority.account();
        let Some(shared) = &self.shared else { return create().await };
        let key = name(&file);
        let lost = |error: String| Failure { error, unreachable: true };
        let began = tokio::time::Instant::now();
        let fence = loop {
            match shared.lock(&key, LEASE).await.map_err(lost)? {
                Some(fence) => break fence,
                None if began.elapsed() > 2 * LEASE => {
                    return Err(lost("another server holds the account for too long".to_owned()));
                }
                None => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        };
        let result =
            self.account_under_lock(&file, (&**shared, &key, fence), is_gone, create).await;
        let _ = shared.unlock(&key, fence).await;
        result
    }

    async fn account_under_lock(
        &self,
        file: &Path,
        (shared, key, fence): (&dyn SharedStorage, &str, u64),
        is_gone: bool,
        create: impl AsyncFnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let lost = |error: String| Failure { error, unreachable: true };
        let wrong = |error: io::Error| Failure::from(format!("{}: {error}", file.display()));
        let own = read(file).map_err(wrong)?;
        let stored = shared.read(key).await.map_err(lost)?;
        // The one that the authority does not know may have been replaced by another server.
        if let Some(stored) = stored.filter(|stored| !is_gone || Some(stored) != own.as_ref()) {
            if own.as_ref() != Some(&stored) {
                replace(file, &stored, |_| Ok(())).map_err(wrong)?;
            }
            return Ok(());
        }
        create().await?;
        let content = read(file).map_err(wrong)?.unwrap_or_default();
        match shared.write(key, content, fence).await.map_err(lost)? {
            true => Ok(()),
            false => Err(lost("another server has taken over the account".to_owned())),
        }
    }

    /// Publishes the challenges of an order to the other servers, too.
    ///
    /// # Errors
    /// When the storage is not reachable.
    pub(crate) async fn challenge(&self, challenges: Vec<SharedChallenge>) -> Result<(), Failure> {
        let Some(shared) = self.shared.as_ref().filter(|_| !challenges.is_empty()) else {
            return Ok(());
        };
        let lost = |error: String| Failure { error, unreachable: true };
        shared.challenge(challenges).await.map_err(lost)
    }

    /// Returns `true` if several servers have it in common.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }
}

/// Why a certificate is not adopted.
const NOT_NEWER: &str = "it is not newer than the local certificate";

/// Never resolves: the loop before it has no end.
async fn unreachable_end<T>() -> T {
    std::future::pending().await
}

/// Returns the name of a file in the storage: its directory, which names the account, and its own.
fn name(file: &Path) -> String {
    let parts: PathBuf =
        file.components().rev().take(2).collect::<Vec<_>>().into_iter().rev().collect();
    format!("acme/{}", parts.display())
}

fn read(file: &Path) -> io::Result<Option<Vec<u8>>> {
    match std::fs::read(file) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the end of the certificate in `file`, if it is usable.
fn until(file: &Path) -> Option<SystemTime> {
    certificate::check_pair(file, file).ok()?;
    Some(certificate::validity(file).ok()?.until)
}
