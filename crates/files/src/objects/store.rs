//! The interface of object stores.

use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;

/// A future that the thread for object stores polls.
pub type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A bucket of an object store. The futures do I/O, and retry at most requests that certainly had no effect.
pub trait ObjectStore: fmt::Debug + Send + Sync {
    /// Requests an object.
    fn get(&self, request: GetRequest) -> Later<Result<Got, StoreError>>;

    /// Requests a page of the objects and common prefixes beneath a prefix.
    fn list(&self, request: ListRequest) -> Later<Result<ListPage, StoreError>>;

    /// Returns `true` if it has prefixes, as the search for directories needs them: a plain HTTP server has none.
    fn has_prefixes(&self) -> bool;
}

/// A request for an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GetRequest {
    /// The key, as the store has it.
    pub key: String,
    /// The version that is there already: the response is [`Got::NotModified`] if it is the current one.
    pub unless: Option<Version>,
    /// The version that is required: the response is [`StoreError::Changed`] if it is not the current one.
    pub only: Option<Version>,
    /// The bytes that are requested; all without it.
    pub range: Option<Range<u64>>,
}

/// A version of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Version {
    /// The entity tag, as the store sent it.
    pub etag: Option<String>,
    /// Seconds since 1970.
    pub last_modified: Option<u64>,
}

/// The properties of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectMetadata {
    /// Bytes.
    pub size: u64,
    /// The version, which distinguishes the object from the one that had the key before.
    pub version: Version,
    /// The media type that the store has.
    pub content_type: Option<String>,
    /// The content coding that the store has.
    pub content_encoding: Option<String>,
}

/// The response to a request for an object.
pub enum Got {
    /// The object. The body has the bytes of the requested range.
    Object(ObjectMetadata, Box<dyn ObjectBody>),
    /// The version is still the current one.
    NotModified,
}

/// The body of an object.
pub trait ObjectBody: Send {
    /// Returns the next bytes; `None` at the end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StoreError>>>;
}

/// A request for a page of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListRequest {
    /// The prefix of the keys, with a final slash unless it is empty.
    pub prefix: String,
    /// The maximum number of entries.
    pub max: Option<usize>,
    /// The start of the page, from [`ListPage::next`].
    pub page: Option<String>,
}

/// A page of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListPage {
    /// The objects directly beneath the prefix.
    pub objects: Vec<ListedObject>,
    /// The names of common prefixes, without slashes.
    pub prefixes: Vec<String>,
    /// The start of the next page; `None` at the end.
    pub next: Option<String>,
}

/// An object of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedObject {
    /// The key without the prefix.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Seconds since 1970.
    pub modified: u64,
}

/// Why a request has no object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreError {
    /// There is no object with this key.
    Missing,
    /// The store does not permit access to it.
    Denied,
    /// The required version is not the current one.
    Changed,
    /// The store has no such operation.
    Unsupported,
    /// The response is not as it should be. The text has no secret.
    Invalid(String),
    /// The store did not respond, or responded with an error. The text has no secret.
    Failed(String),
}

impl StoreError {
    /// Returns the task that had the request has ended without a result.
    pub(super) fn abandoned() -> Self {
        Self::Failed("a request to it was given up".into())
    }
}
