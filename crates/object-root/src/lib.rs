//! Object stores as roots of files: an implementation of [`ObjectStore`] by the crate `object_store`.
//!
//! # What it does
//! [`open`] makes the client of a bucket from the rules of the configuration. What these leave out, it takes from the
//! environment, and credentials that are in neither from the metadata service of the machine. Requests have the signatures and
//! credentials of `object_store`, and are sent by `hyper`. It follows no redirects, holds little of what it reads, and reads
//! replies other than the content of objects up to a limit.
//!
//! # Contract
//! [`open`] and [`client`] are called within the runtime that polls the futures of the store. They read files, and open no
//! connection. The store can be shared by threads, and keeps idle connections.
//!
//! An error of [`open`] or [`client`] is a sentence for the user. What a
//! [`StoreError`](dunlin_files::objects::store::StoreError) means is described there; no request is repeated that may have
//! had an effect. Errors have no credentials, and no URL with a signature.
//!
//! # Example
//! ```
//! use dunlin_config::ObjectRoot;
//! use dunlin_files::objects::store::{GetRequest, Got, StoreError};
//!
//! /// The bytes of the object with that key; `None` if there is none.
//! async fn size(root: &ObjectRoot, key: &str) -> Result<Option<u64>, String> {
//!     let store = dunlin_object_root::open(root)?;
//!     let request = GetRequest { key: key.to_owned(), ..GetRequest::default() };
//!     match store.get(request).await {
//!         Ok(Got::Object(metadata, _)) => Ok(Some(metadata.size)),
//!         Ok(Got::NotModified) | Err(StoreError::Missing) => Ok(None),
//!         Err(error) => Err(format!("{root}: {error:?}")),
//!     }
//! }
//! # drop(size);
//! ```

mod bucket;
mod connector;
mod credentials;
mod errors;
mod listing;
mod options;
mod reply;
mod transport;

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
/// Returns the fault of the rules, the environment or the file of credentials.
pub fn open(root: &ObjectRoot) -> Result<Arc<dyn ObjectStore>, String> {
    options::open(root).map(|bucket| Arc::new(bucket) as Arc<dyn ObjectStore>)
}
