//! The byte streams and addresses of connections.

pub(crate) use dunlin_net::address::{Ends, Peer, UNIX};
pub(crate) use dunlin_tls::Transport;
