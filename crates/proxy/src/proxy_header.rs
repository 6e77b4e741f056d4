//! The header of the PROXY protocol with which connections to upstreams begin.

use std::net::SocketAddr;

use dunlin_config::{Proxy, ProxyProtocol};
use dunlin_exchange::Incoming;
use dunlin_net::address::SocketAddresses;
use dunlin_net::proxy_protocol::{self, Sender, Version};

use crate::call::Call;

/// Returns the header for a request: the client, resolved through trusted proxies, and the address that it has connected to.
/// Empty if the upstream gets none.
pub(crate) fn of(call: &Call<'_>, incoming: &Incoming) -> Vec<u8> {
    let Some(version) = version(call.group.rules()) else { return Vec::new() };
    let pair = call.client.address.ip().zip(incoming.ends);
    let pair = pair.map(|(client, SocketAddresses { remote, local })| {
        // The port of a client behind other proxies is unknown.
        let is_remote = remote.ip().to_canonical() == client;
        (SocketAddr::new(client, if is_remote { remote.port() } else { 0 }), local)
    });
    proxy_protocol::write(version, Sender::Client(pair))
}

/// Returns the header of a connection that the server makes by itself, for a health check.
pub(crate) fn own(rules: &Proxy) -> Vec<u8> {
    version(rules).map_or(Vec::new(), |version| proxy_protocol::write(version, Sender::Proxy))
}

fn version(rules: &Proxy) -> Option<Version> {
    rules.proxy_protocol.map(|version| match version {
        ProxyProtocol::V1 => Version::One,
        ProxyProtocol::V2 => Version::Two,
    })
}
