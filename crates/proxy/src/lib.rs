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
//! # Contract
//! The engines of `dunlin-http` read requests and responses, and nothing is forwarded that they reject. The fields of one
//! connection (RFC 9110 §7.6.1) end here, and fields that name the client come from what the server knows of it, never
//! from the client. The caller adds the fields of the route, and responds with an error page to a [`Failure`].

mod address;
mod balance;
mod budget;
mod call;
mod check;
mod download;
mod failure;
mod forward;
mod group;
mod health;
mod idle;
mod lease;
mod link;
mod memory;
mod pool;
mod preface;
mod present;
mod read_ahead;
mod request;
mod resolve;
mod response;
mod sticky;
mod stream_tunnel;
mod switch;
mod target;
#[cfg(test)]
mod testing;
mod tls;
mod token;
mod trailers;
mod tunnel;
mod upload;
mod upstream;

pub use self::call::Call;
pub use self::failure::Failure;
pub use self::forward::forward;
pub use self::group::Group;
pub use self::pool::WorkerProxy;
pub use self::upstream::UpstreamReport;
