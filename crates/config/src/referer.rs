//! The condition `referer`: the page that has linked to what is requested, as nginx's `valid_referers` has it.

use std::fmt;

use dunlin_http::semantics::host;
use dunlin_http::{FieldName, Request};

use super::glob::Glob;

/// One of the values of the condition.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Referer {
    /// There is no `Referer`.
    None,
    /// It is no URL of http or https: a proxy has changed it.
    Blocked,
    /// A page of the site, by its hosts or by the host of the request.
    ServerNames(Vec<Glob>),
    /// A page of such a host whose path begins so.
    Page(Glob, Box<str>),
}

impl Referer {
    /// Parses `none`, `blocked`, `server_names`, or a host with an optional path. `hosts` are those of the site.
    ///
    /// # Errors
    /// The text is not one of them.
    pub(super) fn parse(text: &str, hosts: &[String]) -> Result<Self, String> {
        match text {
            "none" => return Ok(Self::None),
            "blocked" => return Ok(Self::Blocked),
            "server_names" => {
                return Ok(Self::ServerNames(hosts.iter().map(|host| Glob::new(host)).collect()));
            }
            _ => {}
        }
        let (host, path) = text.find('/').map_or((text, ""), |slash| text.split_at(slash));
        let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._*[]:".contains(&byte);
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        if host.is_empty() || !host.bytes().all(is_of_host) || has_port {
            return Err(format!(
                "{text:?} is neither \"none\", \"blocked\" or \"server_names\" nor a host such as \"example.com\", \
                 \"*.example.com\" or \"example.com/gallery/\", without a scheme and a port"
            ));
        }
        Ok(Self::Page(Glob::new(host), path.into()))
    }

    /// Returns `true` if it applies to the request.
    pub(super) fn holds(&self, request: &Request<'_>) -> bool {
        let is_it = |(name, _): &(&[u8], &[u8])| name.eq_ignore_ascii_case(b"referer");
        let value = request.fields().find(is_it).map(|(_, value)| value);
        let Some(value) = value else { return *self == Self::None };
        let Some(rest) = without_scheme(value) else { return *self == Self::Blocked };
        let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        // A name before an `@` is not that of the host.
        let authority =
            memchr::memrchr(b'@', authority).map_or(authority, |at| &authority[at + 1..]);
        let Some(name) = host::parse(authority).map(|host| host.name) else { return false };
        match self {
            Self::None | Self::Blocked => false,
            Self::ServerNames(hosts) => {
                let own = request.field(FieldName::Host).and_then(host::parse);
                own.is_some_and(|own| own.name.eq_ignore_ascii_case(name))
                    || hosts.iter().any(|host| host.matches_any_case(name))
            }
            Self::Page(host, start) => {
                host.matches_any_case(name) && path.starts_with(start.as_bytes())
            }
        }
    }
}

fn without_scheme(value: &[u8]) -> Option<&[u8]> {
    ["http://", "https://"].iter().find_map(|scheme| {
        let (start, rest) = value.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme.as_bytes()).then_some(rest)
    })
}

impl fmt::Display for Referer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Blocked => f.write_str("blocked"),
            Self::ServerNames(_) => f.write_str("server_names"),
            Self::Page(host, path) => write!(f, "{host}{path}"),
        }
    }
}
