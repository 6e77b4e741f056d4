//! Telemetry: access log, reverse DNS, metrics, live view, traces.

mod access_log;
mod access_record;
mod escape;
mod format;
mod ids;
pub(crate) mod live;
mod log_queue;
mod log_writer;
pub(crate) mod metrics;
pub(crate) mod redact;
mod reverse_dns;
mod script_context;
mod template;
mod time_cache;
mod timings;
pub(crate) mod traces;

pub(crate) use access_log::{AccessLog, AccessLogSettings, WorkerLog};
pub(crate) use access_record::AccessRecord;
pub(crate) use format::ip;
pub(crate) use ids::{push_hex, random, random_id};
pub(crate) use reverse_dns::{ReverseDns, ReverseDnsSettings};
pub(crate) use script_context::ScriptContext;
pub(crate) use time_cache::TimeCache;
pub use timings::PHASES;
pub(crate) use timings::{ConnectionStart, ReadTimes, RouteTelemetry, Timings, nanos};
