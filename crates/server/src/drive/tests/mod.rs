//! The protocol adapters over connections in memory: what no client can produce from outside at will.

mod http1;
mod http2;
mod reload;
mod stop;
mod time;
