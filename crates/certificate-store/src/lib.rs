//! Accounts, certificates and challenges of ACME in a bucket of an object store, which several servers have in common.
//!
//! # What it does
//! [`open`] makes the [`SharedStorage`] of a bucket and prefix. Beneath the prefix are
//!
//! - `content/NAME`: a file, behind a line with the number of the lock under which it was written;
//! - `locks/NAME`: who has the right to write that file, and for how long;
//! - `notices/NAME`: challenges in progress, and one object that changes when a certificate was stored.
//!
//! Every write has a condition on the version that was read before (`If-Match`, `If-None-Match`), so that of two servers one succeeds.
//!
//! # Contract
//! No clock of the store or of another server is compared with the own one: a lock is taken over when its object has not changed for the
//! time of its lease. All requests run on one thread, which ends with the storage; the futures may be awaited by any runtime.
//! A store that does not respond is logged once, and once when it responds again.

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
/// What is missing or wrong in the rules, the environment or the file of credentials; or the thread cannot be started.
pub fn open(root: &ObjectRoot) -> Result<Arc<dyn SharedStorage>, String> {
    storage::CertificateStore::open(root).map(|store| Arc::new(store) as Arc<dyn SharedStorage>)
}
