//! Addresses to listen on.

use super::address::Address;

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// The address.
    pub address: Address,
    /// Permissions of a Unix socket.
    pub mode: u32,
    /// Connections that wait to be accepted.
    pub backlog: i32,
    /// Whether it speaks TLS.
    pub tls: bool,
    /// Whether HTTP/2 is spoken with clients that begin with it.
    pub http2: bool,
    /// Whether what comes there are commands to the server rather than requests for its sites.
    pub admin: bool,
    /// Whether connections begin with the PROXY protocol.
    pub proxy_protocol: bool,
}

impl Listen {
    /// Whether a reload keeps the socket of this one for `other`.
    pub fn is_same_socket(&self, other: &Self) -> bool {
        self.address == other.address && self.admin == other.admin
    }

    pub(crate) fn changes(&self, now: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        let mut tell = |key: &str, then: &dyn ToString, now: &dyn ToString| {
            let (then, now) = (then.to_string(), now.to_string());
            if then != now {
                changes.push(format!("{key} {then} -> {now}"));
            }
        };
        tell("mode", &format!("{:04o}", self.mode), &format!("{:04o}", now.mode));
        tell("backlog", &self.backlog, &now.backlog);
        tell("tls", &self.tls, &now.tls);
        tell("http2", &self.http2, &now.http2);
        tell("proxy_protocol", &self.proxy_protocol, &now.proxy_protocol);
        changes
    }
}
