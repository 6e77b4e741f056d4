//! What is done with a finished exchange: access log, reverse DNS.

mod access_log;
mod escape;
mod exchange;
mod format;
mod reverse_dns;

pub(crate) use access_log::{AccessLog, LoopLog};
pub(crate) use exchange::Exchange;
pub(crate) use format::Format;
pub(crate) use reverse_dns::ReverseDns;
