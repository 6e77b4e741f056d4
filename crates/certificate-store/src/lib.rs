//! Accounts, certificates and challenges of ACME in a bucket of an object store, which several servers have in common.
//!
//! # What it does
//! [`open`] makes the [`SharedStorage`] of a bucket and prefix. Beneath the prefix are
//!
//! - `content/NAME`: a file, behind a line with the number of the lock under which it was written;
//! - `locks/NAME`: who has the right to write that file, and for how long;
//! - `notices/NAME`: challenges in progress, and one object that changes when a certificate was stored.
//!
//! Every write has a condition on the version that was read before (`If-Match`, `If-None-Match`), so that of two servers one
//! succeeds.
//!
//! # Contract
//! [`open`] reads files and starts a thread. All requests run on that thread, which ends with the storage; the futures may be
//! awaited by any runtime, and dropping one does not cancel its request. [`open`] needs no runtime.
//!
//! No clock of the store or of another server is compared with the own one: a lock is taken over when its object has not
//! changed for the time of its lease. The owner of a lock therefore extends it by
//! [`lock`](SharedStorage::lock) before that time is over.
//!
//! An error is a sentence for the log, without credentials; the operation may have taken effect. A store that does not
//! respond is logged once, and once when it responds again.
//!
//! # Example
//! ```
//! use std::time::Duration;
//!
//! use dunlin_config::ObjectRoot;
//!
//! /// Writes a file, unless another server has its lock.
//! async fn write(root: &ObjectRoot, name: &str, content: Vec<u8>) -> Result<bool, String> {
//!     let storage = dunlin_certificate_store::open(root)?;
//!     let Some(fence) = storage.lock(name, Duration::from_secs(60)).await? else {
//!         return Ok(false);
//!     };
//!     let is_written = storage.write(name, content, fence).await?;
//!     storage.unlock(name, fence).await?;
//!     Ok(is_written)
//! }
//! # drop(write);
//! ```

mod content;
mod lock;
mod notices;
mod objects;
mod storage;

use std::sync::Arc;

use dunlin_config::ObjectRoot;
use dunlin_tls::SharedStorage;

/// Opens the storage of certificates in the bucket of `root`, beneath its prefix.
///
/// # Errors
/// Returns the fault of the rules, the environment or the file of credentials; or the thread cannot be started.
pub fn open(root: &ObjectRoot) -> Result<Arc<dyn SharedStorage>, String> {
    storage::CertificateStore::open(root).map(|store| Arc::new(store) as Arc<dyn SharedStorage>)
}
