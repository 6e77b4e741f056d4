//! Addresses: an IP address with a port, or the path of a Unix socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// An address to listen on or to connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A socket in the file system.
    Unix(PathBuf),
    /// An address and port.
    Tcp(SocketAddr),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

/// Parses the addresses that the text stands for; none if it is not an address.
pub(crate) fn parse_address(text: &str) -> Vec<Address> {
    if let Some(path) = text.strip_prefix("unix:") {
        return vec![Address::Unix(path.into())];
    }
    if let Some(port) = text.strip_prefix(':').and_then(|port| port.parse().ok()) {
        return [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)]
            .map(|address| Address::Tcp(SocketAddr::new(address, port)))
            .into();
    }
    if let Some(port) = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
        return vec![Address::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))];
    }
    text.parse().into_iter().map(Address::Tcp).collect()
}

pub(crate) fn not_an_address(text: &str) -> String {
    // The number of an interface is known to the kernel alone, and changes with the interface.
    if text.starts_with('[') && text.contains('%') {
        return format!(
            "{text:?} names an interface, which has to be a number; `ip link` shows it: \"[fe80::1%2]:8080\""
        );
    }
    let hint = match text.parse::<u16>() {
        Ok(port) => format!("; did you mean \":{port}\"?"),
        Err(_) => String::new(),
    };
    format!(
        "{text:?} is not an address such as \"127.0.0.1:8080\", \":8080\" or \"unix:/run/site.sock\"{hint}"
    )
}
