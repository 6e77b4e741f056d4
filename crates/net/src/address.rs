//! Addresses of clients and connections.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The client of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A client that has an address.
    Ip(IpAddr),
    /// A process on this machine that connects by a Unix socket: it has no address.
    Unix,
}

impl Peer {
    /// Creates the client at `address`.
    #[inline]
    pub fn of(address: SocketAddr) -> Self {
        Self::Ip(address.ip().to_canonical())
    }

    /// Returns the key for limits per client: an IPv4 address, or the /64 network of an IPv6 address, since one client
    /// commonly has all addresses of such a network.
    #[inline]
    pub fn network(self) -> Self {
        match self {
            Self::Ip(IpAddr::V6(address)) => {
                let network = address.to_bits() >> 64 << 64;
                Self::Ip(IpAddr::V6(Ipv6Addr::from_bits(network)))
            }
            other => other,
        }
    }

    /// Returns the address, if the client has one.
    #[inline]
    pub fn ip(self) -> Option<IpAddr> {
        match self {
            Self::Ip(address) => Some(address),
            Self::Unix => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix => f.write_str(UNIX),
        }
    }
}

/// The text for the address of a client that has none, as in other servers.
pub const UNIX: &str = "unix:";

/// The two socket addresses of a TCP connection.
#[derive(Clone, Copy, Debug)]
pub struct SocketAddresses {
    /// The client's.
    pub remote: SocketAddr,
    /// The server's.
    pub local: SocketAddr,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_an_address_or_a_network_of_ipv6() {
        let same = |a: &str, b: &str| {
            let peer = |text: &str| Peer::of(SocketAddr::new(text.parse().unwrap(), 0)).network();
            peer(a) == peer(b)
        };
        assert!(same("2001:db8::1", "2001:db8::ffff:0:0:1"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(!same("192.0.2.1", "192.0.2.2"));
        assert!(same("192.0.2.1", "::ffff:192.0.2.1"));
    }
}
