//! The response that a connection is reading, and the checks of complete ones.

use std::io;

use rustix::io::Errno;

use super::job::Job;
use crate::outcome::{ErrorKind, TLS_RECORD};
use crate::verify::Digest;

/// Bytes of a body that are kept to report a failure.
const REPORTED_BODY: usize = 2000;

/// A response that is being read.
#[derive(Default)]
pub(super) struct PartialResponse {
    pub(super) status: u16,
    /// Bytes of the body so far.
    pub(super) body: u64,
    /// Time of the first byte, in nanoseconds since the start.
    pub(super) first_byte: u64,
    digest: Option<Box<Digest>>,
    /// Hash of a body that arrived in one read.
    hash: Option<u64>,
    /// Start of the body, kept for the report of an unexpected status.
    text: Option<Vec<u8>>,
    /// The body, kept to be decoded.
    coded: Option<Vec<u8>>,
}

/// A longer body is not decoded, in bytes.
const MAX_CODED: usize = 16 << 20;

impl PartialResponse {
    /// Creates a response whose head arrived at `now`. The start of the body is kept if it is to be reported, and the body if it is to
    /// be decoded.
    #[inline]
    pub(super) fn new(status: u16, now: u64, is_reported: bool, is_decoded: bool) -> Self {
        let (text, coded) = (is_reported.then(Vec::new), is_decoded.then(Vec::new));
        Self { status, first_byte: now, text, coded, ..Self::default() }
    }

    /// Returns the body if it is to be decoded, or its beginning if it is too long.
    pub(super) fn coded(&self) -> &[u8] {
        self.coded.as_deref().unwrap_or_default()
    }

    /// Adds a part of the body. `last` states that a body of known length ends with it.
    #[inline]
    pub(super) fn add(&mut self, data: &[u8], last: bool, verify: bool) {
        let first = self.body == 0;
        self.body += data.len() as u64;
        if let Some(text) = &mut self.text {
            text.extend_from_slice(
                &data[..data.len().min(REPORTED_BODY.saturating_sub(text.len()))],
            );
        }
        if let Some(coded) = &mut self.coded {
            coded.extend_from_slice(&data[..data.len().min(MAX_CODED - coded.len())]);
        }
        if !verify {
            return;
        }
        if first && last {
            self.hash = Some(Digest::of(data));
        } else {
            self.digest.get_or_insert_default().update(data);
        }
    }

    pub(super) fn hash(&self) -> u64 {
        match (&self.hash, &self.digest) {
            (Some(hash), _) => *hash,
            (None, Some(digest)) => digest.finish(),
            (None, None) => Digest::of(b""),
        }
    }
}

/// Returns the URL with that index.
pub(super) fn url_of(job: &Job, url: u32) -> &str {
    job.plan.urls.get(url as usize).map_or("", String::as_str)
}

/// Description of an error in a response: the URL, and the start of an unexpected body.
pub(super) fn describe_error(
    job: &Job,
    url: u32,
    kind: ErrorKind,
    response: &PartialResponse,
) -> String {
    let url = url_of(job, url);
    match (kind, &response.text) {
        (ErrorKind::Status, Some(text)) if !text.is_empty() => {
            format!("{url}: status {}, {}", response.status, excerpt(text))
        }
        (ErrorKind::Status, _) => format!("{url}: status {}", response.status),
        (ErrorKind::Length, _) => format!("{url}: {} bytes", response.body),
        _ => url.to_owned(),
    }
}

/// Returns the start of what a server sent, on one line.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    const CHARACTERS: usize = 80;
    // An alert or a handshake record of TLS (RFC 8446 §5.1).
    if let [21 | 22, 3, ..] = bytes {
        return TLS_RECORD.to_owned();
    }
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(REPORTED_BODY)]);
    let words: Vec<&str> = title(&text).unwrap_or(&text).split_ascii_whitespace().collect();
    let text: String =
        words.join(" ").chars().filter(|c| !c.is_control()).take(CHARACTERS).collect();
    format!("the server sent \"{text}\"")
}

/// Returns the title of an HTML page.
fn title(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("<title>")?;
    Some(rest.split_once("</title>")?.0)
}

impl ErrorKind {
    /// Classifies a system error; `otherwise` if it has no kind of its own.
    pub(super) fn of(error: &io::Error, otherwise: Self) -> Self {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        if cause.is_some() {
            return Self::Tls;
        }
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::CONNREFUSED) => Self::Refused,
            Some(Errno::CONNRESET | Errno::PIPE) => Self::Reset,
            Some(Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH) => Self::Timeout,
            Some(Errno::ADDRNOTAVAIL | Errno::ADDRINUSE) => Self::NoAddress,
            Some(Errno::MFILE | Errno::NFILE) => Self::NoDescriptor,
            None if error.kind() == io::ErrorKind::ConnectionReset => Self::Reset,
            _ => otherwise,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_of_a_failure_is_found_in_what_the_server_sent() {
        let sent = |text: &str| format!("the server sent \"{text}\"");
        assert_eq!(excerpt(b"no\n such\x1b page"), sent("no such page"));
        let page = b"<!doctype html>\n<head><title>404 Not Found</title></head><body>much more";
        assert_eq!(excerpt(page), sent("404 Not Found"));
        assert_eq!(excerpt(b"\x15\x03\x03\x00\x02\x02\x46"), TLS_RECORD);
        assert_eq!(excerpt("ä".repeat(3000).as_bytes()), sent(&"ä".repeat(80)));
    }
}
