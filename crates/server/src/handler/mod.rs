//! Handlers: each makes a response from a routed request.

pub(crate) mod admin;
#[cfg(debug_assertions)]
pub(crate) mod break_out;
pub(crate) mod compress;
pub(crate) mod directory;
pub(crate) mod error_page;
pub(crate) mod errors;
pub(crate) mod file;
pub(crate) mod listing;
pub(crate) mod media_type;
pub(crate) mod records;
pub(crate) mod redirect;
pub(crate) mod respond;
pub(crate) mod script;
pub(crate) mod status;
