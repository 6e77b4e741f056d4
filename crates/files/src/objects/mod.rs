//! Files in object storage, which the file cache holds like files of a directory.
//!
//! # What it does
//! [`resolve`](resolve::resolve) finds the object of a path by the search that directories have: it visits the same candidates, and each
//! candidate that is not known yet becomes a request to the store. [`Bucket`](bucket::Bucket) joins concurrent requests for an object,
//! so that the store gets one, and remembers which keys are absent. A flight receives the response; what fits into the cache is
//! received once for all that wait for it and then inserted as a [`Resource`](crate::cache::resource::Resource), so that
//! further requests take the same path as those for files. Larger objects are streamed by ranges.
//!
//! With a directory for it, an object that was received whole is also written to [disk]: it is read again when the cache in memory does
//! not have it, after a restart too.
//!
//! The validity of such a resource is a time: after `revalidate` the store gets a conditional request. While it does not respond, what
//! the cache holds stays in use.
//!
//! # Contract
//! A store is a [`ObjectStore`](store::ObjectStore). Its futures run on the [thread] for object stores; workers only wait
//! for results.

pub mod bucket;
mod claim;
pub mod client;
mod content;
pub mod disk;
mod download;
mod flight;
mod health;
mod listing;
pub(crate) mod load;
mod once;
pub mod registry;
pub mod remote;
pub mod resolve;
mod restoration;
mod restore;
pub(crate) mod siblings;
pub mod store;
pub mod thread;
