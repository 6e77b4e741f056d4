//! Telemetry of a server: access log, reverse DNS, metrics, live view and traces.
//!
//! # What it does
//! - An [`AccessRecord`] has all data about a finished request. [`Timings`] are the durations of its phases, and a
//!   [`ScriptContext`] has the id, the timestamps and the captured standard error of its script.
//! - An [`AccessLog`] writes a line for each record on a thread of its own, through the [`WorkerLog`] of each worker.
//!   [`ReverseDns`] looks up the names of clients for it.
//! - [`metrics`] counts requests by site, route and status. [`live`] sends events to subscribers whose filter matches.
//!   [`traces`] exports spans to a collector.
//! - [`redact`] removes secrets from what leaves the server.
//!
//! # Contract
//! Nothing here makes a worker wait, and no limit or resource of a request depends on it. Queues are bounded: what does not
//! fit is dropped and counted. [`AccessLog`], [`Metrics`](metrics::Metrics), [`LiveTap`](live::LiveTap),
//! [`Tracer`](traces::Tracer) and [`ReverseDns`] are shared by threads. A [`WorkerLog`], a [`TimeCache`] and
//! [`WorkerMetrics`](metrics::WorkerMetrics) belong to one worker, which calls
//! [`WorkerMetrics::publish`](metrics::WorkerMetrics::publish) once per tick, and [`WorkerLog::flush`] at least each 500 ms.
//!
//! # Example
//! ```
//! use std::time::Duration;
//!
//! use dunlin_http::Version;
//! use dunlin_http::semantics::Method;
//! use dunlin_net::address::Peer;
//! use dunlin_net::connections::STATES;
//! use dunlin_telemetry::Timings;
//! use dunlin_telemetry::metrics::{Finished, Key, Metrics, label};
//!
//! let metrics = Metrics::default();
//! let worker = metrics.for_worker();
//! let key = Key {
//!     label: label("example.org", "/*"),
//!     method: Method::Get,
//!     version: Version::Http11,
//!     encrypted: false,
//!     status: 200,
//! };
//! let (peer, duration) = (Peer::Ip([192, 0, 2, 1].into()), Duration::from_millis(1));
//! worker.count(&Finished { key, peer, duration, timings: Timings::default(), sent: 512 });
//! worker.publish(&metrics, [0; STATES]);
//! assert_eq!(metrics.sum().series[0].sizes.sum, 512);
//! ```
//!
//! # Tests
//! The feature `testing` adds an access log in memory.

mod access_log;
mod access_logs;
mod access_record;
mod escape;
mod format;
pub mod ids;
pub mod live;
mod log_queue;
mod log_writer;
pub mod metrics;
pub mod redact;
mod request_label;
mod reverse_dns;
mod script_context;
mod template;
mod time_cache;
mod timings;
pub mod traces;

pub use access_log::{AccessLog, AccessLogSettings, WorkerLog};
pub use access_logs::{AccessLogs, LogChoice, WorkerLogs};
pub use access_record::AccessRecord;
pub use request_label::RequestLabel;
pub use reverse_dns::{ReverseDns, ReverseDnsSettings};
pub use script_context::ScriptContext;
pub use time_cache::TimeCache;
pub use timings::{ConnectionStart, PHASES, ReadTimes, RouteTelemetry, Timings, nanos};
