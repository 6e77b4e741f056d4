//! Telemetry of requests: access log, reverse DNS, metrics, live view, traces.

mod access_log;
mod course;
mod escape;
mod exchange;
mod format;
pub(crate) mod live;
mod log_queue;
mod log_writer;
pub(crate) mod metrics;
pub(crate) mod redact;
mod reverse_dns;
mod template;
mod time_cache;
pub(crate) mod traces;
mod track;

pub(crate) use access_log::{AccessLog, AccessLogSettings, WorkerLog};
pub(crate) use course::{Course, push_hex, random, random_id};
pub(crate) use exchange::Exchange;
pub(crate) use format::{Format, ip};
pub(crate) use reverse_dns::{ReverseDns, ReverseDnsSettings};
pub(crate) use template::Template;
pub(crate) use time_cache::TimeCache;
pub use track::PHASES;
pub(crate) use track::{Arrival, Follow, Opening, Times, Track};
