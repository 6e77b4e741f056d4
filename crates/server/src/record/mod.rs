//! What is done with a finished exchange: access log, reverse DNS.

mod access_log;
mod course;
mod escape;
mod exchange;
mod format;
mod log_queue;
mod log_writer;
mod reverse_dns;
mod template;
mod time_cache;
mod track;

pub(crate) use access_log::{AccessLog, AccessLogSettings, LoopLog};
pub(crate) use course::{Course, random, random_id};
pub(crate) use exchange::Exchange;
pub(crate) use format::Format;
pub(crate) use reverse_dns::{ReverseDns, ReverseDnsSettings};
pub(crate) use template::Template;
pub(crate) use time_cache::TimeCache;
pub(crate) use track::Track;
