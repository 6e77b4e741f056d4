//! The key `forwarded_field`: the field in which trusted proxies name the client of a request.
//!
//! There are many such fields. Most proxies set one of them and forward the others as the client sent them.
//! The configuration therefore names the one field that the trusted proxies set. The server ignores all
//! others and does not pass them to scripts.

use std::borrow::Cow;

use super::file::ServerTable;
use super::report::Report;

/// The field that trusted proxies set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardedField {
    /// In lower case.
    name: String,
    kind: ForwardedKind,
}

/// The format of the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardedKind {
    /// `X-Forwarded-For`, together with all other `X-Forwarded-*` fields.
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// A field that contains only addresses. `X-Forwarded-Proto` states the scheme.
    Addresses,
}

/// Fields besides `X-Forwarded-*` in which proxies name the client or its original request. Sorted.
const FORWARDING: [&str; 35] = [
    "ali-cdn-real-ip",
    "cdn-src-ip",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "cf-connecting-o2o",
    "cf-pseudo-ipv4",
    "client-ip",
    "cluster-client-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "forwarded",
    "forwarded-for",
    "front-end-https",
    "http-client-ip",
    "incap-client-ip",
    "proxy-client-ip",
    "true-client-ip",
    "wl-proxy-client-ip",
    "x-appengine-user-ip",
    "x-azure-clientip",
    "x-azure-socketip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-nf-client-connection-ip",
    "x-original-for",
    "x-original-forwarded-for",
    "x-original-host",
    "x-original-proto",
    "x-originating-ip",
    "x-proxyuser-ip",
    "x-real-ip",
    "x-remote-addr",
    "x-remote-ip",
    "x-true-client-ip",
];

/// Returns `true` for fields in which proxies name the client. `name` is in lower case.
pub(crate) fn is_forwarding(name: &[u8]) -> bool {
    name.starts_with(b"x-forwarded")
        || FORWARDING.binary_search_by(|known| known.as_bytes().cmp(name)).is_ok()
}

impl Default for ForwardedField {
    fn default() -> Self {
        Self { name: "x-forwarded-for".into(), kind: ForwardedKind::XForwardedFor }
    }
}

impl ForwardedField {
    /// Parses a field name, ignoring case.
    ///
    /// # Errors
    /// The reason why the name cannot be used.
    pub fn parse(name: &str) -> Result<Self, String> {
        if !is_plain_name(name.as_bytes()) {
            return Err(format!(
                "{name:?} is not a field such as \"X-Forwarded-For\", \"Forwarded\" or \"X-Real-IP\""
            ));
        }
        let name = name.to_ascii_lowercase();
        let kind = match &*name {
            "x-forwarded-for" => ForwardedKind::XForwardedFor,
            "forwarded" => ForwardedKind::Forwarded,
            _ => ForwardedKind::Addresses,
        };
        Ok(Self { name, kind })
    }

    /// Returns `true` if trusted proxies set the field of that name. `name` is in lower case.
    fn covers(&self, name: &[u8]) -> bool {
        match self.kind {
            ForwardedKind::XForwardedFor => name.starts_with(b"x-forwarded-"),
            ForwardedKind::Forwarded | ForwardedKind::Addresses => name == self.name.as_bytes(),
        }
    }

    /// Returns `true` if a request has the field of that name from its client: only proxies may set it, and no trusted
    /// one has. `via_proxy` is set for requests of trusted proxies. They set plain names, and pass other spellings on as the
    /// client sent them. `name` is in lower case.
    pub fn is_spoofed(&self, name: &[u8], via_proxy: bool) -> bool {
        let read = as_read(name);
        let is_of_proxies = self.covers(&read);
        let is_plain = matches!(read, Cow::Borrowed(_));
        (is_of_proxies || is_forwarding(&read)) && !(via_proxy && is_of_proxies && is_plain)
    }

    /// Returns the name, in lower case.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the format.
    pub fn kind(&self) -> ForwardedKind {
        self.kind
    }

    /// Checks the key `forwarded_field`.
    pub(crate) fn read(server: &ServerTable, report: Report<'_>) -> Self {
        let Some(name) = &server.forwarded_field else { return Self::default() };
        if server.trusted_proxies.as_ref().is_none_or(Vec::is_empty) {
            report(&name.span, "forwarded_field does nothing without `trusted_proxies`".into());
        }
        Self::parse(name).unwrap_or_else(|what| {
            report(&name.span, format!("forwarded_field: {what}"));
            Self::default()
        })
    }
}

/// Returns the name of a field as programs may read it, which take `_`, `.` and other characters for `-`; borrowed if it is
/// plain.
pub fn as_read(name: &[u8]) -> Cow<'_, [u8]> {
    if is_plain_name(name) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(name.iter().copied().map(byte_as_read).collect())
}

fn byte_as_read(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() { byte } else { b'-' }
}

/// Returns `true` for two names that are not the same, and that programs may take for the same.
pub fn is_other_spelling(name: &[u8], other: &[u8]) -> bool {
    !name.eq_ignore_ascii_case(other) && is_read_as(name, other)
}

/// Returns `true` for two names that are the same, or that programs may take for the same.
pub fn is_read_as(name: &[u8], other: &[u8]) -> bool {
    let is_same = |(&a, &b): (&u8, &u8)| byte_as_read(a).eq_ignore_ascii_case(&byte_as_read(b));
    name.len() == other.len() && name.iter().zip(other).all(is_same)
}

/// Returns `true` if scripts and other servers cannot confuse the name with another: some treat `_` and `.` as `-`.
pub(crate) fn is_plain_name(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_spellings_are_those_that_programs_take_for_the_same() {
        for (name, other, expected) in [
            ("x-lang", "X_Lang", true),
            ("X_LANG", "x-lang", true),
            ("x.lang", "x_lang", true),
            ("x-lang", "X-Lang", false),
            ("x-lang", "x-long", false),
            ("x-lang", "x--lang", false),
            ("cookie", "Cookie", false),
        ] {
            assert_eq!(is_other_spelling(name.as_bytes(), other.as_bytes()), expected, "{other}");
        }
    }

    #[test]
    fn the_table_of_fields_is_sorted_and_in_lower_case() {
        assert!(FORWARDING.is_sorted());
        assert!(FORWARDING.iter().all(|name| is_forwarding(name.as_bytes())));
        assert!(FORWARDING.iter().all(|name| *name == name.to_ascii_lowercase()));
        for name in ["x-forwarded-for", "x-forwarded-anything", "x-forwarded"] {
            assert!(is_forwarding(name.as_bytes()), "{name}");
        }
        for name in ["host", "x-requested-with", "x-request-id", "via", "cookie"] {
            assert!(!is_forwarding(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn only_plain_names_are_those_of_trusted_proxies() {
        let real = ForwardedField::parse("X-Real-IP").unwrap();
        let forwarded = ForwardedField::parse("Forwarded").unwrap();
        for (field, set, not_set) in [
            (&ForwardedField::default(), "x-forwarded-for", "x-real-ip"),
            (&ForwardedField::default(), "x-forwarded-port", "forwarded"),
            (&real, "x-real-ip", "x-forwarded-for"),
            (&forwarded, "forwarded", "x-forwarded-proto"),
        ] {
            assert!(!field.is_spoofed(set.as_bytes(), true), "{set}");
            assert!(field.is_spoofed(set.as_bytes(), false), "{set}");
            assert!(field.is_spoofed(not_set.as_bytes(), true), "{not_set}");
            for separator in ["_", ".", "~", "!"] {
                for name in [set, not_set].map(|name| name.replacen('-', separator, 1)) {
                    let is_other = name.contains(separator);
                    assert!(!is_other || field.is_spoofed(name.as_bytes(), true), "{name}");
                }
            }
            assert!(!field.is_spoofed(b"x_customer", true) && !field.is_spoofed(b"accept", false));
        }
    }

    #[test]
    fn ambiguous_field_names_are_rejected() {
        for name in ["", "X_Real_IP", "X.Real.IP", "X Real", "X-Real-IP:"] {
            assert!(ForwardedField::parse(name).is_err(), "{name}");
        }
    }
}
