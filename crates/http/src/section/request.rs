//! Validation of a field section and conversion to a request's head (RFC 9113 §8.2, §8.3; RFC 9114 §4.2, §4.3).

use std::ops::Range;

use super::{DecodedField, Kind};
use crate::Priority;
use crate::field::FieldName;
use crate::request::{Head, Request, Span, Version};
use crate::semantics::{Method, host, is_token};
use crate::{Limits, RequestError};

/// Builds a head from the decoded fields of a section.
pub(crate) struct Reader<'a> {
    head: &'a mut Head,
    limits: &'a Limits,
    /// Size as RFC 9113 §6.5.2 defines it.
    size: usize,
    method: Option<Range<usize>>,
    scheme: Option<Range<usize>>,
    path: Option<Range<usize>>,
    protocol: Option<Range<usize>>,
    has_authority: bool,
    has_host: bool,
    /// The scheme is well-formed, but neither http nor https.
    has_other_scheme: bool,
    has_fields: bool,
    malformed: Option<&'static str>,
    is_too_large: bool,
}

/// Properties of a request beside its head.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Metadata {
    pub(crate) length: Option<u64>,
    pub(crate) priority: Priority,
}

/// Result of a section.
pub(crate) enum SectionOutcome {
    Valid(Metadata),
    /// A malformed request, which is a stream error (RFC 9113 §8.1.1). The head has what could be read of it.
    Malformed(&'static str),
    /// A request that gets an error response.
    Rejected(RequestError),
}

/// Size of an entry beside its text (RFC 9113 §6.5.2).
const OVERHEAD: usize = 32;
const HOST: &[u8] = b"host";

impl<'a> Reader<'a> {
    pub(crate) fn new(head: &'a mut Head, limits: &'a Limits, version: Version) -> Self {
        head.clear();
        head.version = version;
        Self {
            head,
            limits,
            size: 0,
            method: None,
            scheme: None,
            path: None,
            protocol: None,
            has_authority: false,
            has_host: false,
            has_other_scheme: false,
            has_fields: false,
            malformed: None,
            is_too_large: false,
        }
    }

    /// Adds a field, whose text is at the end of `text`.
    #[inline]
    pub(crate) fn add(&mut self, text: &mut Vec<u8>, field: DecodedField) {
        self.size += field.value.end - field.name.start + OVERHEAD;
        self.is_too_large |= self.size > self.limits.head_size
            || self.head.len() >= self.limits.fields.min(Head::MAX_FIELDS);
        if self.is_too_large || self.malformed.is_some() {
            // The rest is decoded for the sake of the table of HPACK only.
            text.truncate(field.name.start);
            return;
        }
        let DecodedField { kind, name, value } = field;
        if let Kind::Field(id) = kind {
            self.has_fields = true;
            return self.field(text, id, &name, value);
        }
        if self.has_fields
            && matches!(
                kind,
                Kind::Method | Kind::Scheme | Kind::Authority | Kind::Path | Kind::Protocol
            )
        {
            return self.fail("a pseudo-header field follows a regular field");
        }
        let place = match kind {
            Kind::Method => &mut self.method,
            Kind::Scheme => &mut self.scheme,
            Kind::Path => &mut self.path,
            Kind::Protocol => &mut self.protocol,
            Kind::Authority if self.has_authority => {
                return self.fail("a pseudo-header field is repeated");
            }
            Kind::Authority => {
                self.has_authority = true;
                // Handlers read the authority from Host, as in HTTP/1.
                text[name.start..name.start + HOST.len()].copy_from_slice(HOST);
                let name = Span::new(name.start..name.start + HOST.len());
                return self.head.push(FieldName::Host, name, Span::new(value));
            }
            Kind::OtherPseudo => return self.fail("a pseudo-header field is unknown"),
            Kind::ConnectionSpecific => return self.fail("a field is connection-specific"),
            Kind::Malformed | Kind::Field(_) => return self.fail("a field is malformed"),
        };
        if place.replace(value).is_some() {
            self.fail("a pseudo-header field is repeated");
        }
    }

    #[inline]
    fn field(&mut self, text: &[u8], id: FieldName, name: &Range<usize>, value: Range<usize>) {
        match id {
            FieldName::Host => {
                if std::mem::replace(&mut self.has_host, true) {
                    return self.fail("there is more than one Host");
                }
                let authority = Request::new(text, self.head).field(FieldName::Host);
                match authority {
                    Some(authority) if authority != &text[value.clone()] => {
                        return self.fail("Host and :authority differ");
                    }
                    // `:authority` is stored as Host.
                    Some(_) => return,
                    None => {}
                }
            }
            FieldName::Te if !text[value.clone()].eq_ignore_ascii_case(b"trailers") => {
                return self.fail("TE has another value than trailers");
            }
            _ => {}
        }
        self.head.push(id, Span::new(name.clone()), Span::new(value));
    }

    fn fail(&mut self, reason: &'static str) {
        self.malformed.get_or_insert(reason);
    }

    /// Completes the section of a request.
    pub(crate) fn finish(mut self, text: &[u8]) -> SectionOutcome {
        if let Some(reason) = self.malformed {
            self.describe(text);
            return SectionOutcome::Malformed(reason);
        }
        if self.is_too_large {
            self.describe(text);
            return SectionOutcome::Rejected(RequestError::new(
                431,
                "the head is larger than the limit",
            ));
        }
        let metadata = match self.complete(text) {
            Ok(metadata) => metadata,
            Err(reason) => {
                self.describe(text);
                return SectionOutcome::Malformed(reason);
            }
        };
        if self.has_other_scheme {
            return SectionOutcome::Rejected(RequestError::bad(
                ":scheme is neither http nor https",
            ));
        }
        if self.path.is_some_and(|path| path.len() > self.limits.target_size) {
            // As in HTTP/1.1, where such a line need not be complete, it is not recorded.
            self.head.clear();
            let reason = "the request-target is larger than the limit";
            return SectionOutcome::Rejected(RequestError::new(414, reason));
        }
        SectionOutcome::Valid(metadata)
    }

    /// Completes the head of a malformed request as far as possible, for its record.
    fn describe(&mut self, text: &[u8]) {
        if let Some(method) = self.method.clone().filter(|method| is_token(&text[method.clone()])) {
            self.head.method = Method::from_bytes(&text[method.clone()]);
            self.head.method_text = Span::new(method);
        }
        if let Some(path) = self.path.clone() {
            self.head.target = Span::new(path);
        }
    }

    /// Checks the pseudo-header fields (RFC 9113 §8.3.1).
    fn complete(&mut self, text: &[u8]) -> Result<Metadata, &'static str> {
        let method = self.method.clone().ok_or(":method is missing")?;
        if !is_token(&text[method.clone()]) {
            return Err(":method is malformed");
        }
        self.head.method = Method::from_bytes(&text[method.clone()]);
        self.head.method_text = Span::new(method);
        if let Some(protocol) = self.protocol.clone() {
            self.protocol(text, protocol)?;
        }
        if self.head.method == Method::Connect {
            self.connect()?;
        } else {
            let path = self.path.clone().ok_or(":path is missing")?;
            self.has_other_scheme = match &text[self.scheme.clone().ok_or(":scheme is missing")?] {
                b"https" | b"http" => false,
                scheme if !is_scheme(scheme) => return Err(":scheme is malformed"),
                scheme => {
                    let is = |known: &[u8]| scheme.eq_ignore_ascii_case(known);
                    !is(b"https") && !is(b"http")
                }
            };
            match (&text[path.clone()], self.head.method) {
                ([b'/', ..], _) | (b"*", Method::Options) => {}
                _ => return Err(":path is malformed"),
            }
            self.head.target = Span::new(path);
        }
        let request = Request::new(text, self.head);
        match request.field(FieldName::Host) {
            None => return Err("both :authority and Host are missing"),
            Some(authority) if host::is_authority(authority) => {}
            Some(b"") => return Err(":authority is empty"),
            Some(_) => return Err(":authority is malformed"),
        }
        if self.head.method == Method::ExtendedConnect && request.has(FieldName::ContentLength) {
            return Err("CONNECT with :protocol has Content-Length");
        }
        let priority = request.field(FieldName::Priority).map(Priority::parse);
        Ok(Metadata { length: stated_length(&request)?, priority: priority.unwrap_or_default() })
    }

    /// Checks `:protocol`, which only CONNECT may have (RFC 8441 §4).
    fn protocol(&mut self, text: &[u8], protocol: Range<usize>) -> Result<(), &'static str> {
        if self.head.method != Method::Connect {
            return Err(":protocol is in a request other than CONNECT");
        }
        if !is_token(&text[protocol.clone()]) {
            return Err(":protocol is malformed");
        }
        self.head.method = Method::ExtendedConnect;
        self.head.protocol = Span::new(protocol);
        Ok(())
    }

    /// Checks a CONNECT request (RFC 9113 §8.5).
    fn connect(&mut self) -> Result<(), &'static str> {
        if self.path.is_some() || self.scheme.is_some() || !self.has_authority {
            return Err("CONNECT has :path or :scheme, or no :authority");
        }
        self.head.target = self.head.first_value(FieldName::Host).unwrap_or_default();
        Ok(())
    }

    /// Completes the section of trailers, which are checked (RFC 9113 §8.1).
    pub(crate) fn finish_trailers(self) -> Option<&'static str> {
        let has_target = self.scheme.is_some() || self.path.is_some() || self.has_authority;
        if self.method.is_some() || self.protocol.is_some() || has_target {
            return Some("trailers contain a pseudo-header field");
        }
        self.malformed
    }

    pub(crate) fn is_too_large(&self) -> bool {
        self.is_too_large
    }
}

/// `scheme = ALPHA *( ALPHA / DIGIT / "+" / "-" / "." )` (RFC 3986 §3.1).
fn is_scheme(text: &[u8]) -> bool {
    let is_next = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    text.first().is_some_and(u8::is_ascii_alphabetic) && text.iter().all(is_next)
}

/// Returns the value of Content-Length. Repeated equal values are permitted (RFC 9110 §8.6).
fn stated_length(request: &Request<'_>) -> Result<Option<u64>, &'static str> {
    let mut stated = None;
    if !request.has(FieldName::ContentLength) {
        return Ok(None);
    }
    for value in request.values(FieldName::ContentLength) {
        let digits = !value.is_empty() && value.len() <= 19 && value.iter().all(u8::is_ascii_digit);
        if !digits {
            return Err("Content-Length is malformed");
        }
        let length = value.iter().fold(0, |sum: u64, digit| sum * 10 + u64::from(digit - b'0'));
        if stated.replace(length).is_some_and(|other| other != length) {
            return Err("Content-Length has different values");
        }
    }
    Ok(stated)
}
