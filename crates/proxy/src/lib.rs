//! The reverse proxy: forwards the requests of a route to other HTTP servers, the upstreams, and their responses to the
//! client.
//!
//! # What it does
//! - A [`Group`] has the upstreams of one table `proxy`. All workers share it, and it outlives a reload that does not
//!   change the table: who is loaded, who has failed.
//! - [`WorkerProxy`] has the idle connections of one worker.
//! - [`forward()`] sends one request and returns the head of the response as soon as it is there. No task is needed: the
//!   request and the response make progress when the client's connection polls them, each no faster than its receiver
//!   takes it. A short response that is complete at the first read leaves in one write.
//!
//! Idle connections belong to the worker, the limits of connections to the upstream. SRV records and names give a group
//! further upstreams (`current_upstreams`). `forward` chooses, connects, sends (`upload`) and reads the head; a body that
//! has not arrived with its head is a source that the adapter polls (`download`), and `read_ahead` collects responses that
//! `buffer` holds. `request` and `response` decide which fields pass, [`Sent`] lists them for a cache, `upgrade_request`
//! makes `Upgrade` of both forms of a request for a tunnel.
//!
//! # Contract
//! A [`Group`] can be shared by threads; its creation reads the files of TLS. A [`WorkerProxy`] belongs to one worker, and
//! [`forward()`] is called within the worker's runtime, in which `spawn_local` is possible. It never blocks.
//!
//! The engines of `dunlin-http` read requests and responses, and nothing is forwarded that they reject. The fields of one
//! connection (RFC 9110 §7.6.1) end here, and fields that name the client come from what the server knows of it, never
//! from the client. The caller adds the fields of the route, and responds with an error page to a [`Failure`], which is
//! logged already if an upstream is its cause. A response whose body ends early is broken, not a [`Failure`].
//!
//! # Example
//! ```
//! use std::rc::Rc;
//!
//! use dunlin_exchange::{Incoming, Response};
//! use dunlin_proxy::{Call, Label, forward};
//!
//! /// The response of an upstream, or an error without content. `label` names the request in the error log.
//! async fn respond(call: &Call<'_>, label: &Rc<dyn Label>, mut incoming: Box<Incoming>) -> Response {
//!     match forward(call, label, &mut incoming).await {
//!         Ok(forwarded) => forwarded.response,
//!         Err(failure) => {
//!             let mut response = Response::new(failure.status());
//!             response.fields.push("Proxy-Status", failure.proxy_status());
//!             response
//!         }
//!     }
//! }
//! # drop(respond);
//! ```

mod address;
mod balance;
mod budget;
mod call;
mod check;
mod current_upstreams;
mod download;
mod ejection;
mod failure;
mod forward;
mod group;
mod health;
mod hop_fields;
mod idle;
mod label;
mod link;
mod location;
mod memory;
mod pool;
mod proxy_header;
mod read_ahead;
mod references;
mod request;
mod resolve;
mod response;
mod sent;
mod sticky;
mod sticky_token;
mod stream_tunnel;
mod target;
#[cfg(test)]
mod testing;
mod tls;
mod trailers;
mod tunnel;
mod turn;
mod upgrade_request;
mod upload;
mod upstream;
mod upstream_permit;

pub use self::call::Call;
pub use self::failure::Failure;
pub use self::forward::{Forwarded, forward};
pub use self::group::Group;
pub use self::label::{Label, report};
pub use self::pool::WorkerProxy;
pub use self::sent::Sent;
pub use self::upstream::UpstreamReport;
