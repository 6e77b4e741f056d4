//! One request and its answer, as the log sees them.

use std::net::IpAddr;

/// A finished exchange. Texts are as the client sent them: whoever writes them out escapes them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exchange<'a> {
    pub(crate) peer: IpAddr,
    pub(crate) peer_name: Option<&'a str>,
    /// When the head was complete, in seconds since 1970.
    pub(crate) started_secs: u64,
    pub(crate) started_nanos: u32,
    pub(crate) duration_ns: u64,
    /// Empty when the request could not be read, as is the target.
    pub(crate) method: &'a [u8],
    pub(crate) target: &'a [u8],
    pub(crate) version: &'static str,
    pub(crate) status: u16,
    /// Bytes of the body that were sent.
    pub(crate) body_bytes: u64,
    pub(crate) referer: Option<&'a [u8]>,
    pub(crate) user_agent: Option<&'a [u8]>,
    pub(crate) host: Option<&'a [u8]>,
    pub(crate) site: &'a str,
    /// "hit", "miss", "off" or "-".
    pub(crate) cache: &'static str,
    /// The content coding, or "-".
    pub(crate) coding: &'static str,
    /// Serial number of the connection.
    pub(crate) connection: u64,
}
