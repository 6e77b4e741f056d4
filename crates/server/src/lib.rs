//! Dunlin's server. Data flows one way: listen, transport, engine, route, gate, handler, record.

mod cache;
mod clock;
pub mod config;
mod connection_limits;
mod connections;
mod control;
mod drive;
mod early_hints;
mod event_loop;
mod gate;
mod handler;
mod listen;
pub mod password;
mod record;
mod response;
mod route;
mod server;
mod stream;
mod tls;
mod transport;

pub use handler::script::{LAUNCH, cold_programs, launch};
pub use server::{Origin, Server, StartError};
