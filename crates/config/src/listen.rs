//! Addresses to listen on.

use super::address::Address;

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The address.
    pub address: Address,
    /// Permissions of a Unix socket.
    pub mode: u32,
    /// Length of the queue of connections that are not accepted yet.
    pub backlog: i32,
    /// Connections use TLS.
    pub tls: bool,
    /// Clients may use HTTP/2.
    pub http2: bool,
    /// Clients may use HTTP/3, on the UDP port with the same number.
    pub http3: Http3,
    /// Requests are commands to the server, not requests for its sites.
    pub admin: bool,
    /// Connections begin with the PROXY protocol.
    pub proxy_protocol: bool,
    /// The number by which sites know its connections. It follows from the address, so that a reload keeps it.
    pub number: u64,
}

/// Whether a listener has HTTP/3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Http3 {
    /// It has none.
    Off,
    /// It has HTTP/3 if its UDP port can be opened.
    IfPossible,
    /// The server does not start without its UDP port.
    Required,
}

impl Http3 {
    /// Returns `true` unless it is switched off.
    pub fn is_wanted(self) -> bool {
        self != Self::Off
    }
}

impl Listen {
    /// Returns `true` if a reload keeps this socket for `other`.
    pub fn is_same_socket(&self, other: &Self) -> bool {
        self.address == other.address && self.admin == other.admin
    }

    pub(crate) fn changes(&self, now: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        let mut report = |key: &str, then: &dyn ToString, now: &dyn ToString| {
            let (then, now) = (then.to_string(), now.to_string());
            if then != now {
                changes.push(format!("{key} {then} -> {now}"));
            }
        };
        report("mode", &format!("{:04o}", self.mode), &format!("{:04o}", now.mode));
        report("backlog", &self.backlog, &now.backlog);
        report("tls", &self.tls, &now.tls);
        report("http2", &self.http2, &now.http2);
        report("http3", &self.http3.is_wanted(), &now.http3.is_wanted());
        report("proxy_protocol", &self.proxy_protocol, &now.proxy_protocol);
        changes
    }
}
