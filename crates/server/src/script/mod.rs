//! Scripts: programs that produce responses.
//!
//! [`respond::respond`] runs the script for a request, a [`call::Call`]. What comes of it is an [`outcome::Outcome`]:
//! a response, or a resource that the server has to respond with in place of the script. Failures are returned, so that
//! the server makes the error page.
//!
//! [`state::Scripts`] is the state of all workers, and each worker has a [`state::WorkerScripts`]. Both use the server by
//! [`context::Shared`] and [`context::Context`], for which the server implements [`context::Files`] and [`context::Host`].
//!
//! The files of this folder hold what all kinds share; `cgi` and `warm` start a process for each request, and
//! `backend` is the interface of the kinds whose workers outlive a request.

mod app_server;
mod arguments;
mod backend;
mod body_buffer;
mod buffered;
pub(crate) mod call;
mod cgi;
mod cgiplus;
mod chunked;
pub(crate) mod context;
mod descriptors;
mod environment;
pub(crate) mod failure;
mod file_version;
pub(crate) mod head;
mod launch;
mod located;
mod location_cache;
mod lookup;
pub(crate) mod outcome;
mod output;
mod pipes;
mod pool;
mod process;
mod process_groups;
mod process_limit;
mod readiness;
mod remote;
mod reply;
pub(crate) mod report;
mod request_fields;
mod request_id;
pub(crate) mod respond;
pub(crate) mod route;
mod script_response;
mod search_path;
mod socket;
mod source;
mod spool;
mod start_error;
pub(crate) mod state;
mod stderr;
mod time_limit;
mod variables;
mod warm;
mod workers;

pub use self::launch::{LAUNCH, launch};
pub(crate) use self::pool::Pools;
pub(crate) use self::search_path::search_path;
pub use self::stderr::SCRIPTS;
pub(crate) use self::stderr::printable;
pub use self::warm::cold_programs;
pub(crate) use self::workers::Renewal;
