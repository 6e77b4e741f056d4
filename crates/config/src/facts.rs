//! What conditions, maps and templates see of a request.

use std::borrow::Cow;
use std::net::IpAddr;

use dunlin_http::semantics::host;
use dunlin_http::{FieldName, Request};
use percent_encoding::percent_decode;

/// What conditions, maps and templates see of a request.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'r> {
    /// The head of the request.
    pub request: Request<'r>,
    /// The decoded path, in which encoded slashes are NULs.
    pub path: &'r [u8],
    /// The query of the request, encoded.
    pub query: Option<&'r [u8]>,
    /// The address of the client, behind trusted proxies; `None` on a Unix socket.
    pub client: Option<IpAddr>,
    /// The client uses TLS.
    pub encrypted: bool,
    /// Fields in which authentication has what handlers get of a client, in lower case, with `-` in place of `_` and `.`. Those of
    /// the client are not seen.
    pub hidden: &'r [String],
}

impl<'r> Facts<'r> {
    /// Returns the host in lower case, without port; empty if the request has none.
    pub(super) fn host(&self) -> Vec<u8> {
        let field = self.request.field(FieldName::Host).unwrap_or_default();
        host::parse(field).map_or_else(Vec::new, |host| host.name.to_ascii_lowercase())
    }

    /// Returns the values of a field.
    pub(super) fn field_values(&self, name: &str) -> impl Iterator<Item = &'r [u8]> {
        let plain = name.to_ascii_lowercase().replace(['_', '.'], "-");
        let is_hidden = self.hidden.contains(&plain);
        let fields = self.request.fields().filter(move |_| !is_hidden);
        let named = fields.filter(move |(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
        named.map(|(_, value)| value)
    }

    /// Returns the decoded values of a parameter of the query.
    pub(super) fn parameters(&self, name: &str) -> impl Iterator<Item = Cow<'r, [u8]>> {
        let parameters = self.query.unwrap_or_default().split(|&byte| byte == b'&');
        parameters.filter(|parameter| !parameter.is_empty()).filter_map(move |parameter| {
            let end = memchr::memchr(b'=', parameter).unwrap_or(parameter.len());
            let is_named = form_decoded(&parameter[..end]).as_ref() == name.as_bytes();
            is_named.then(|| form_decoded(parameter.get(end + 1..).unwrap_or_default()))
        })
    }

    /// Returns the values of a cookie (RFC 6265 §4.2.1), without double quotes.
    pub(super) fn cookies(&self, name: &str) -> Vec<Vec<u8>> {
        let cookies = self.request.cookies().unwrap_or_default();
        let pairs = cookies.split(|&byte| byte == b';').filter_map(|pair| {
            let pair = pair.trim_ascii();
            let sign = memchr::memchr(b'=', pair)?;
            let value = &pair[sign + 1..];
            let bare = value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\""));
            let is_named = &pair[..sign] == name.as_bytes();
            is_named.then(|| bare.unwrap_or(value).to_vec())
        });
        pairs.collect()
    }
}

/// Decodes `application/x-www-form-urlencoded`. A `%` without two digits stands for itself.
fn form_decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr2(b'%', b'+', text).is_none() {
        return Cow::Borrowed(text);
    }
    let spaced: Vec<u8> = text.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
    Cow::Owned(percent_decode(&spaced).collect())
}
