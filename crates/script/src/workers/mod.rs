//! Workers: processes that outlive a request, for every kind that has workers.
//!
//! Each route has one [`Pool`] for all workers of the server; the [`Registry`] holds them. A request on any thread takes a [`Checkout`] under one short
//! lock and returns it. A separate supervisor thread starts, watches and ends the processes. `schedule` decides without a clock or
//! a lock; the pool carries the decisions out.

mod acquire;
mod backoff;
mod checkout;
mod code;
mod command;
mod connection;
mod lifecycle;
mod maintain;
mod pool;
mod registry;
mod replace;
mod schedule;
mod settings;
mod start;
mod state;
mod supervisor;
mod worker;

pub(super) use self::checkout::Checkout;
pub(super) use self::connection::PooledConnection;
pub(super) use self::pool::Pool;
pub(super) use self::registry::Registry;
pub use self::replace::Renewal;
pub(super) use self::schedule::Capacity;
pub(super) use self::worker::Worker;
