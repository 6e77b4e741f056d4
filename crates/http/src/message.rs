//! Heads of messages as a client handles them, the same for every version of HTTP.

use crate::FieldLines;
use crate::request::Version;
use crate::semantics::{host, is_field_value, is_token};

/// The head of a request that a client sends.
///
/// The engines write `Host` or `:authority` from [`RequestHead::authority`], and `Content-Length` or
/// `Transfer-Encoding` from the [`BodySize`]. [`RequestHead::fields`] must not contain these fields. Everything else,
/// the fields that concern one connection included, is the caller's choice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestHead {
    /// The method, a token. Case matters.
    pub method: Box<str>,
    /// The request-target as HTTP/1 sends it: a path with its query, or `*` for OPTIONS, or the authority for CONNECT.
    pub target: Box<str>,
    /// Host and port as the target URI has them; may be empty if the URI has none.
    pub authority: Box<str>,
    /// All other fields.
    pub fields: FieldLines,
    /// The protocol of an extended CONNECT (RFC 8441, RFC 9220), which HTTP/2 and HTTP/3 have; the target is a path then.
    pub protocol: Option<Box<str>>,
    /// The parts were parsed and need no check.
    is_parsed: bool,
}

/// The length of a message's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BodySize {
    /// There is no body.
    #[default]
    Empty,
    /// The body has this many bytes; may be 0.
    Known(u64),
    /// The sender learns the length only at the end.
    Unknown,
}

/// The head of a response that a client has received.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status code, 100 to 999.
    pub status: u16,
    /// The version of the message.
    pub version: Version,
    /// The fields in order of arrival, without pseudo-fields.
    pub fields: FieldLines,
}

impl ResponseHead {
    /// Returns `true` if a final response follows this one (RFC 9110 §15.2). 101 is final for HTTP: another protocol follows
    /// it.
    #[must_use]
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }
}

/// The interim responses to one request, which are bounded: a server may send any number of them.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct InterimResponses {
    count: u32,
    /// Bytes of their heads.
    size: usize,
}

impl InterimResponses {
    /// Most interim responses to one request.
    const MAX: u32 = 100;
    /// Most bytes of their heads together: as many as one head may have.
    const MAX_SIZE: usize = 64 * 1024;

    /// Counts one whose head has this `size`.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn add(&mut self, size: usize) -> Result<(), &'static str> {
        self.count += 1;
        self.size += size;
        match self.count > Self::MAX || self.size > Self::MAX_SIZE {
            true => Err("there are too many interim responses"),
            false => Ok(()),
        }
    }
}

/// A request that cannot be sent: the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidRequest(pub String);

impl std::fmt::Display for InvalidRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidRequest {}

/// Why a response is rejected whose body has another length than its head states.
pub(crate) const SHORTER: &str = "the body is shorter than announced";
pub(crate) const LONGER: &str = "the body is longer than announced";

/// Returns `true` if an engine has rejected a response for this reason because of the length of its body.
#[must_use]
pub fn is_wrong_length(reason: &str) -> bool {
    [SHORTER, LONGER].contains(&reason)
}

/// Fields that an engine writes itself.
const FRAMING_FIELDS: [&str; 3] = ["Host", "Content-Length", "Transfer-Encoding"];

impl RequestHead {
    /// Creates a request for `target` of `authority`, without other fields.
    #[must_use]
    pub fn new(method: &str, authority: &str, target: &str) -> Self {
        Self {
            method: method.into(),
            target: target.into(),
            authority: authority.into(),
            fields: FieldLines::default(),
            protocol: None,
            is_parsed: false,
        }
    }

    /// Returns the same request, to be sent without a check: all its parts come from a request that an engine has parsed, or
    /// are known to be valid.
    #[must_use]
    pub fn assume_parsed(mut self) -> Self {
        debug_assert_eq!(self.check(), Ok(()));
        self.is_parsed = true;
        self
    }

    /// Checks the request, and returns it to be sent without further checks.
    ///
    /// # Errors
    /// Some part of it is invalid.
    pub fn checked(mut self) -> Result<Self, InvalidRequest> {
        self.check()?;
        self.is_parsed = true;
        Ok(self)
    }

    /// Checks that the request has one meaning only, whatever reads it.
    pub(crate) fn check(&self) -> Result<(), InvalidRequest> {
        let invalid = |reason: String| Err(InvalidRequest(reason));
        if self.is_parsed {
            return Ok(());
        }
        if !is_token(self.method.as_bytes()) {
            return invalid(format!("the method {:?} is not a token", self.method));
        }
        if let Some(protocol) = &self.protocol
            && (!is_token(protocol.as_bytes()) || &*self.method != "CONNECT")
        {
            return invalid(format!("the protocol {protocol:?} is not a token, or not in CONNECT"));
        }
        let is_target_byte = |byte: u8| byte > b' ' && byte != 0x7f;
        if self.target.is_empty() || !self.target.bytes().all(is_target_byte) {
            let target = &self.target;
            return invalid(format!("the request-target {target:?} is empty or has a space"));
        }
        if !self.authority.is_empty() && host::parse(self.authority.as_bytes()).is_none() {
            return invalid(format!("the authority {:?} is malformed", self.authority));
        }
        for (name, value) in self.fields.iter() {
            check_field(name, value)?;
        }
        Ok(())
    }

    /// Returns `true` if the body waits for a 100 response (RFC 9110 §10.1.1).
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        self.lists("Expect", "100-continue")
    }

    /// Returns `true` if some field of that name lists `option`.
    pub(crate) fn lists(&self, name: &str, option: &str) -> bool {
        let is_it = |(other, value): (&[u8], &[u8])| {
            other.eq_ignore_ascii_case(name.as_bytes()) && list_has(value, option)
        };
        self.fields.iter().any(is_it)
    }
}

fn check_field(name: &[u8], value: &[u8]) -> Result<(), InvalidRequest> {
    let text = String::from_utf8_lossy(name);
    if !is_token(name) {
        return Err(InvalidRequest(format!("the field name {text:?} is not a token")));
    }
    if !is_field_value(value) {
        return Err(InvalidRequest(format!("the value of {text} has a control character")));
    }
    if FRAMING_FIELDS.iter().any(|field| field.eq_ignore_ascii_case(&text)) {
        return Err(InvalidRequest(format!("{text} is written by the client itself")));
    }
    Ok(())
}

/// Returns `true` if the comma-separated list `value` has the member `option`, in any case of letters.
pub(crate) fn list_has(value: &[u8], option: &str) -> bool {
    value
        .split(|&byte| byte == b',')
        .any(|member| member.trim_ascii().eq_ignore_ascii_case(option.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ambiguous_request_is_invalid() {
        let valid = RequestHead::new("GET", "a.example:81", "/x?y");
        assert_eq!(valid.check(), Ok(()));
        assert_eq!(RequestHead::new("GET", "", "*").check(), Ok(()));
        for wrong in [
            RequestHead::new("GE T", "a", "/"),
            RequestHead::new("", "a", "/"),
            RequestHead::new("GET", "a", "/a b"),
            RequestHead::new("GET", "a", "/\r\nX: y"),
            RequestHead::new("GET", "a", ""),
            RequestHead::new("GET", "a\r\nX: y", "/"),
            RequestHead::new("GET", "u@a", "/"),
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
        for (name, value) in [
            ("Host", "b"),
            ("content-length", "3"),
            ("Transfer-Encoding", "chunked"),
            ("A B", "c"),
            ("", "c"),
            ("A", "\x01"),
        ] {
            let mut wrong = valid.clone();
            wrong.fields.push(name, value);
            assert!(wrong.check().is_err(), "{name}: {value:?}");
        }
    }

    #[test]
    fn options_are_found_in_lists() {
        let mut head = RequestHead::new("GET", "a", "/");
        head.fields.push("connection", "keep-alive, Upgrade");
        assert!(head.lists("Connection", "upgrade"));
        assert!(!head.lists("Connection", "up"));
        assert!(!head.lists("Upgrade", "upgrade"));
    }
}
