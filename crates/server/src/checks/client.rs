//! The client behind trusted proxies.

use dunlin_config::Server;
use dunlin_exchange::Client;
use dunlin_http::Request;
use dunlin_net::address::Peer;

use super::forwarding::{self, Forwarded};

/// Resolves the client behind trusted proxies. Does nothing when it is resolved already.
pub(crate) fn resolve_client(client: Client, request: &Request<'_>, server: &Server) -> Client {
    let trusted = &server.trusted_proxies;
    let is_trusted = match client.address {
        _ if client.via_proxy || client.is_subrequest => false,
        Peer::Ip(address) => trusted.iter().any(|network| network.contains(address)),
        // The permissions of the socket file decide which processes can connect.
        Peer::Unix => !trusted.is_empty(),
    };
    if !is_trusted {
        return client;
    }
    let Forwarded { address, encrypted } =
        forwarding::client(&server.forwarded_field, request, trusted);
    Client {
        address: address.map_or(client.address, Peer::Ip),
        encrypted: encrypted.unwrap_or(client.encrypted),
        via_proxy: true,
        ..client
    }
}
