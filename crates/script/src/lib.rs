//! Scripts: programs that produce responses.
//!
//! # What it does
//! [`respond`](respond::respond) runs the script for a request, a [`Call`](call::Call), and returns an
//! [`Outcome`](outcome::Outcome): a response, or a resource that the server has to send instead.
//! Failures are returned, so that the server makes the error page.
//!
//! The files of `src` have what all kinds share; `cgi` and `warm` start a process for each request, and `backend` is the
//! interface of the kinds whose workers outlive a request: `socket` (FastCGI, SCGI, uWSGI), `cgiplus` and `app_server`
//! (WSGI, ASGI, PSGI), with pools of processes in `workers`.
//!
//! # Contract
//! The crate knows neither workers nor the router. [`Scripts`](state::Scripts) is the state of all workers of the server,
//! and each of them has a [`WorkerScripts`](state::WorkerScripts). Both use the server by
//! [`Shared`](context::Shared) and [`Context`](context::Context), for which the server implements
//! [`Files`](context::Files) and [`Host`](context::Host). For a request it implements [`Route`](route::Route).
//!
//! To start a script as another user or with limits, the crate executes the program of the server once more, with
//! [`LAUNCH`] as its first argument: the program then has to call [`launch()`] with the others. Before it ends, the server
//! calls [`Pools::kill_all`].
//!
//! # Example
//! ```
//! use std::rc::Rc;
//! use std::sync::Arc;
//!
//! use dunlin_exchange::{Incoming, Response};
//! use dunlin_script::call::Call;
//! use dunlin_script::outcome::Outcome;
//! use dunlin_script::respond::{report, respond};
//! use dunlin_telemetry::RequestLabel;
//!
//! /// The response of a script; `None` if the server has to respond instead. `label` names the request in the error log.
//! async fn run(call: &Call<'_>, label: RequestLabel, incoming: Box<Incoming>) -> Option<Response> {
//!     let script_context = Rc::clone(&incoming.script_context);
//!     let mut name = Arc::clone(&call.rules.label);
//!     match respond(call, incoming, &mut name).await {
//!         Ok(Outcome::Response(response) | Outcome::Message(response)) => Some(response),
//!         Ok(Outcome::Directory | Outcome::Internal(_)) => None,
//!         Err(failure) => {
//!             report(call, &failure, &name, label, &script_context).await;
//!             Some(Response::new(failure.status()))
//!         }
//!     }
//! }
//! # drop(run);
//! ```

mod app_server;
mod arguments;
mod backend;
mod body_buffer;
mod buffered;
pub mod call;
mod cgi;
mod cgiplus;
mod chunked;
pub mod context;
mod environment;
pub mod explain;
pub mod failure;
mod file_version;
pub mod head;
pub mod in_process;
mod launch;
mod location_cache;
mod lookup;
pub mod outcome;
mod output;
mod pipes;
mod pool;
mod process;
mod process_groups;
mod process_limit;
mod readiness;
mod remote;
mod reply;
pub mod report;
mod request_fields;
mod request_id;
mod resolved_script;
pub mod respond;
mod retry_on_emfile;
pub mod route;
mod script_response;
mod search_path;
mod seen;
mod socket;
mod source;
mod spool;
mod start_error;
pub mod state;
mod stderr;
mod time_limit;
mod variables;
mod warm;
mod workers;

pub use self::launch::{LAUNCH, launch};
pub use self::pool::Pools;
pub use self::search_path::search_path;
pub use self::seen::Seen;
pub use self::stderr::SCRIPTS;
pub use self::stderr::printable;
pub use self::warm::cold_programs;
pub use self::workers::Renewal;
