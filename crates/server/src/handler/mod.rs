//! Handlers: each makes a response from a routed request.

pub(crate) mod admin;
#[cfg(debug_assertions)]
pub(crate) mod break_out;
mod call;
pub(crate) mod checked;
mod config_diff;
pub(crate) mod dav;
pub(crate) mod dictionary;
pub(crate) mod error_page;
pub(crate) mod errors;
pub(crate) mod files;
mod kept_fields;
mod maintenance;
pub(crate) mod memory;
mod named;
mod object_events;
mod object_search;
mod objects;
mod origin;
pub(crate) mod plain_page;
mod proxy;
pub(crate) mod readiness;
pub(crate) mod redirect;
pub(crate) mod rejection;
pub(crate) mod reply;
mod request_label;
pub(crate) mod respond;
pub(crate) mod response_cache;
pub(crate) mod rewrite;
pub(crate) mod script;
pub(crate) mod status;
pub(crate) mod subrequest;
pub(crate) mod transform;
