//! Files: finds the file of a path, keeps it in a cache, and selects the response for a request.
//!
//! [`search`](search::search) finds the file of a path by the settings of its route, and [`resolve`](resolve::resolve)
//! opens and loads it as a [`Resource`](cache::resource::Resource). [`select`](select::select) evaluates content
//! negotiation, conditions and ranges of a request for it. [`shared::Shared`] is the state that all workers share,
//! [`worker::Worker`] that of one worker.
//!
//! What a file cannot decide is a return value for the caller: [`Found`](search::Found) names a redirect, a listing or
//! another path of the site; [`Failure`](crate::fs::failure::Failure) and [`Selected`](select::Selected) name an error.

pub(crate) mod cache;
pub(crate) mod compress;
pub(crate) mod encoded;
pub(crate) mod explain;
pub(crate) mod file_response;
pub(crate) mod listing;
mod load;
pub(crate) mod media_type;
pub(crate) mod records;
mod render;
pub(crate) mod resolve;
pub(crate) mod search;
pub(crate) mod select;
pub(crate) mod shared;
mod source;
pub(crate) mod uncached;
mod validators;
pub(crate) mod worker;
