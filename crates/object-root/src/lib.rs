//! Object stores as roots of files: an implementation of [`ObjectStore`] by the crate `object_store`.
//!
//! # What it does
//! [`open`] makes the client of a bucket from the rules of the configuration. What these leave out, it takes from the
//! environment, and credentials that are in neither from the metadata service of the machine.
//!
//! # Contract
//! [`open`] is called within the runtime that polls the futures of the store. It reads files. Errors have no credentials, and no URL
//! with a signature.

mod bucket;
mod connector;
mod credentials;
mod errors;
mod options;

use std::sync::Arc;

pub use self::errors::describe;

use dunlin_config::ObjectRoot;
use dunlin_files::objects::store::ObjectStore;

/// Makes the client of the bucket of `root`, for requests that are no reads of files: conditional writes, and listings of all keys.
///
/// # Errors
/// As [`open`].
pub fn client(root: &ObjectRoot) -> Result<Arc<dyn object_store::ObjectStore>, String> {
    options::open(root).map(bucket::Bucket::into_client)
}

/// Makes the client of the bucket of `root`.
///
/// # Errors
/// What is missing or wrong in the rules, the environment or the file of credentials.
pub fn open(root: &ObjectRoot) -> Result<Arc<dyn ObjectStore>, String> {
    options::open(root).map(|bucket| Arc::new(bucket) as Arc<dyn ObjectStore>)
}
