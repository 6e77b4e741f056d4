//! Dunlin's server. Data flows one way: listen, transport, engine, route, gate, handler, record.

mod cache;
mod clock;
pub mod config;
mod connections;
mod control;
mod drive;
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

pub use handler::script::cold_programs;
pub use server::{Origin, Server, StartError};
