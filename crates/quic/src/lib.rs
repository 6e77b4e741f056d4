//! QUIC (RFC 9000) on the workers of a server, and of a load generator. This crate knows no HTTP.
//!
//! quinn-proto is the state machine of the transport. [`Endpoint`] moves datagrams between it and a UDP socket of the worker, and
//! keeps the timers; [`Connection`] is what a protocol adapter holds. All datagrams that have arrived are processed before the
//! tasks of their connections run, so that each task runs once, and sends all that it has with few system calls.
//!
//! # Contract
//! A connection belongs to one task. The task calls [`Connection::register`], handles the events of
//! [`Connection::state`], writes to its streams, and calls [`Connection::flush`] before it returns. A task that drops the
//! connection has closed it; the endpoint completes the closing.
//!
//! # Workers and processes
//! Each worker has a socket for each address. [`Keys`] are those of all of them. A connection ID names the worker
//! ([`Place`]): a filter of the kernel gives datagrams to the socket of their worker ([`steer`]), and those that arrive at that of
//! another are passed on through their [`Group`].
//!
//! A new process gets the sockets of the old one and reads them; see the module `relay`. The ID of a connection names its process, too.

mod congestion;
mod connection;
mod connection_id;
pub mod crypto;
mod endpoint;
mod group;
mod inbox;
mod keys;
#[cfg(feature = "testing")]
mod memory;
mod qlog;
mod relay;
mod socket;
mod steering;
mod streams;
mod timers;
mod transport;

pub use quinn_proto::{
    self as proto, ConnectionError, Dir, ReadError, StreamEvent, StreamId, VarInt, WriteError,
};

pub use self::congestion::Congestion;
pub use self::connection::{Connection, Flushed};
pub use self::connection_id::Place;
pub use self::endpoint::{Accept, Attempt, Decision, Endpoint};
pub use self::group::Group;
pub use self::keys::{Keys, SECRET};
pub use self::qlog::QlogDirectory;
pub use self::relay::{Predecessor, Relay, relay};
pub use self::socket::{Sockets, bind, bind_alone, probe};
pub use self::steering::steer;
pub use self::streams::ReadEnd;
pub use self::transport::{TransportSettings, client_config, server_config};
