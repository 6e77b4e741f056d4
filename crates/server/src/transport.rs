//! The byte streams and addresses of connections.

pub(crate) use dunlin_net::address::{Ends, Peer};
pub(crate) use dunlin_tls::Transport;
