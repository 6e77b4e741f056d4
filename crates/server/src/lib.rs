//! Dunlin's server. Data flows one way: listen, transport, engine, route, gate, handler, record.

pub mod config;
pub mod handler;
pub mod record;
