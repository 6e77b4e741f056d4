//! An asynchronous HTTP client for the server's own needs: forward authentication, export of traces, ACME, and
//! commands that talk to a running server. The reverse proxy keeps pools of its own ([`Connection`]).
//!
//! # What it does
//! - It opens connections by TCP, TLS and Unix sockets, keeps idle ones, and reuses a connection only if the framing of
//!   the last response permits it.
//! - Bodies are streams of [`Bytes`](bytes::Bytes) in both directions with back-pressure: the client polls a request's
//!   [`Body`] only if the connection takes more, and reads from the connection only if the caller polls for data.
//! - Interim responses, trailer fields and protocol upgrades are visible to the caller.
//! - Each phase has its own limit of time ([`Timeouts`]).
//! - Fields that concern one connection (RFC 9110 §7.6.1), redirects, cookies and decompression are the caller's
//!   subject.
//!
//! # Contract
//! A [`Client`] is a cheap handle of a pool. All its requests have to be made within one tokio runtime, as connections
//! belong to the runtime that they were opened in; the flavour of the runtime does not matter.
//! No task is needed for an exchange over HTTP/1: it makes progress when the caller polls it. A caller that drops an
//! [`Exchange`] before its end closes the connection (HTTP/1) or resets the stream (HTTP/2).
//!
//! Programs without a runtime use [`BlockingClient`].
//!
//! # Example
//! ```
//! use dunlin_client::{Client, Empty, Error, Origin, Request};
//!
//! async fn fetch() -> Result<(), Error> {
//!     let client = Client::default();
//!     let origin = Origin::tcp("127.0.0.1", 8080);
//!     let request = Request::new(&origin, "GET", "/index.html");
//!     let mut exchange = client.send(request, Empty).await?;
//!     let head = exchange.final_head().await?;
//!     println!("status {}", head.status);
//!     while let Some(data) = exchange.data().await {
//!         println!("{} bytes", data?.len());
//!     }
//!     Ok(())
//! }
//! # drop(fetch);
//! ```

mod any_certificate;
mod blocking;
mod body;
mod client;
mod connect;
mod connection;
mod error;
mod event;
mod exchange;
mod http1;
mod http2;
mod origin;
mod pool;
mod request;
mod stream;
#[cfg(test)]
mod test_stream;
mod timer;
mod tls_error;
mod transport;
mod upgraded;

pub use any_certificate::AnyCertificate;
pub use blocking::{BlockingClient, BlockingResponse};
pub use body::{Body, Empty, Full};
pub use client::Client;
pub use connect::Dial;
pub use connection::{Connection, OpenStream, SharedConnection};
pub use dunlin_http::semantics::url::{InvalidUrl, Url};
pub use error::{Error, ErrorKind, Phase};
pub use exchange::Exchange;
pub use origin::Origin;
pub use pool::PoolLimits;
pub use request::Request;
pub use timer::Timeouts;
pub use tls_error::{describe_certificate_error, describe_tls_error, snake_case};
pub use upgraded::Upgraded;
