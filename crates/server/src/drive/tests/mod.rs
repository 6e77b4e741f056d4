//! The protocol adapters over connections in memory: cases that no external client can produce at will.

mod half_closed;
mod http1;
mod http2;
mod http3;
mod memory;
mod reload;
mod stop;
mod time;
mod tunnel;
