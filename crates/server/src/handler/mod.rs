//! Handlers: each makes a response from a routed request.

pub mod compress;
pub mod error_page;
pub mod listing;
pub mod media_type;
pub mod records;
