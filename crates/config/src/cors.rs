//! The key `cors`: access of scripts of other origins (the CORS protocol of the Fetch standard).

use std::fmt;

use dunlin_http::semantics::is_token;

use super::file::{Cors, CorsTable, Route};
use super::methods::MethodRules;
use super::report::Report;
use super::spanned::{Span, Spanned};

/// The rules by which scripts of other origins have access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorsRules {
    /// The origins; `None` for every origin.
    origins: Option<Vec<OriginPattern>>,
    /// Scripts may send credentials.
    pub credentials: bool,
    /// Value of `Access-Control-Expose-Headers`; empty for none.
    pub expose: String,
    /// Fields of the response to a preflight, besides those of every response.
    pub preflight: Vec<(&'static str, String)>,
}

/// Origins: one, or those of all names below a domain or of all ports.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OriginPattern {
    /// In lower case, up to the host.
    scheme: String,
    /// The host, or what follows its first label.
    host: String,
    is_wildcard: bool,
    /// With its colon; empty for the default port.
    port: String,
    has_any_port: bool,
}

impl CorsRules {
    /// Checks the key `cors` of a route, which allows `methods`; `None` if it is absent or `false`.
    pub(crate) fn read(
        route: &Route,
        methods: Option<&MethodRules>,
        report: Report<'_>,
    ) -> Option<Self> {
        let at = route.cors.as_ref()?;
        let none = CorsTable {
            origins: None,
            methods: None,
            headers: None,
            expose: None,
            credentials: None,
            max_age: None,
        };
        let table = match &at.value {
            Cors::Switch(false) => return None,
            Cors::Switch(true) => &none,
            Cors::Table(table) => table,
        };
        let credentials = table.credentials.as_ref().is_some_and(|at| at.value);
        let origins = origins(table, report);
        if origins.is_none() && credentials {
            let place = table.credentials.as_ref().map_or(&at.span, |at| &at.span);
            let what = "cors: with `credentials`, `origins` has to list the origins: any page could read what its visitors may";
            report(place, what.into());
        }
        let mut list = |key: &str, names: &Option<Spanned<Vec<Spanned<String>>>>| {
            names.as_ref().map(|names| joined(key, names, credentials, report))
        };
        let of_route = methods.map_or(DEFAULT_METHODS, |methods| methods.allow());
        let methods = list("methods", &table.methods).unwrap_or_else(|| of_route.into());
        let headers = list("headers", &table.headers).unwrap_or_default();
        let expose = list("expose", &table.expose).unwrap_or_default();
        let mut preflight = vec![("Access-Control-Allow-Methods", methods)];
        if !headers.is_empty() {
            preflight.push(("Access-Control-Allow-Headers", headers));
        }
        if let Some(time) = &table.max_age {
            preflight.push(("Access-Control-Max-Age", time.value.0.as_secs().to_string()));
        }
        Some(Self { origins, credentials, expose, preflight })
    }

    /// Returns `true` if responses depend on the origin of the request.
    pub fn depends_on_origin(&self) -> bool {
        self.origins.is_some()
    }

    /// Returns the value of `Access-Control-Allow-Origin` for a request of `origin`; `None` if it has no access.
    pub fn allowed<'o>(&self, origin: Option<&'o [u8]>) -> Option<&'o [u8]> {
        match &self.origins {
            None => Some(b"*"),
            Some(list) => {
                origin.filter(|origin| list.iter().any(|pattern| pattern.matches(origin)))
            }
        }
    }

    /// Describes the rules.
    pub(crate) fn describe(&self) -> String {
        let origins = self.origins.as_ref().map_or("*".into(), |list| {
            list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        });
        let mut text = format!("origins {origins}");
        for (name, value) in &self.preflight {
            let name = name.trim_start_matches("Access-Control-Allow-");
            let name = name.trim_start_matches("Access-Control-").to_ascii_lowercase();
            text.push_str(&format!("; {} {value}", name.replace('-', "_")));
        }
        if !self.expose.is_empty() {
            text.push_str(&format!("; expose {}", self.expose));
        }
        text.push_str(if self.credentials { "; with credentials" } else { "" });
        text
    }
}

/// Methods of scripts unless the file names others.
const DEFAULT_METHODS: &str = "GET, HEAD, POST";

/// Every origin, or every name.
const ANY: &str = "*";

/// Returns the origins of a table; `None` for every origin.
fn origins(table: &CorsTable, report: Report<'_>) -> Option<Vec<OriginPattern>> {
    let named = table.origins.as_ref()?;
    if named.value.0.is_empty() {
        report(&named.span, "cors: the list of `origins` is empty".into());
    }
    if let [only] = &named.value.0[..]
        && only.value == ANY
    {
        return None;
    }
    let mut list = Vec::new();
    for text in &named.value.0 {
        match OriginPattern::parse(text) {
            Ok(pattern) => list.push(pattern),
            Err(what) => {
                let place: Span = text.span.clone().or_else(|| named.span.clone());
                report(&place, format!("cors: origins: {what}"));
            }
        }
    }
    Some(list)
}

/// Checks a list of names, and joins them.
fn joined(
    key: &str,
    names: &Spanned<Vec<Spanned<String>>>,
    credentials: bool,
    report: Report<'_>,
) -> String {
    for name in &names.value {
        if !is_token(name.as_bytes()) {
            report(&name.span, format!("cors: {key}: {:?} is not a name", name.value));
        } else if name.value == ANY && credentials {
            let what =
                format!("cors: {key}: \"*\" has no effect with `credentials`; list the names");
            report(&name.span, what);
        } else if key == "methods" && name.bytes().any(|byte| byte.is_ascii_lowercase()) {
            let upper = name.to_ascii_uppercase();
            report(&name.span, format!("cors: methods: {:?} is not {upper:?}", name.value));
        }
    }
    names.value.iter().map(|name| name.value.as_str()).collect::<Vec<_>>().join(", ")
}

impl OriginPattern {
    /// Parses `https://a.example`, `https://*.a.example` or `http://localhost:*`.
    fn parse(text: &str) -> Result<Self, String> {
        if text == ANY {
            return Err("\"*\" stands for every origin and cannot be combined with others".into());
        }
        let wrong = || {
            format!(
                "{text:?} is not an origin such as \"https://app.example.com\", \"https://*.example.com\" or \
                 \"http://localhost:*\", without a path"
            )
        };
        let lower = text.to_ascii_lowercase();
        let (scheme, rest) = lower.split_once("://").ok_or_else(wrong)?;
        let is_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
        let (whole, port) = match rest.rfind(':') {
            Some(colon) if !rest.ends_with(']') => rest.split_at(colon),
            _ => (rest, ""),
        };
        let (is_wildcard, host) =
            whole.strip_prefix("*.").map_or((false, whole), |host| (true, host));
        let has_any_port = port == ":*";
        let is_port = has_any_port
            || port.is_empty()
            || port[1..].parse::<u16>().is_ok_and(|number| number.to_string() == port[1..]);
        let is_address = host.starts_with('[') && host.ends_with(']') && !is_wildcard;
        let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_of_address = |byte: u8| byte.is_ascii_hexdigit() || b"[]:.".contains(&byte);
        let is_host = !host.is_empty()
            && (host.bytes().all(is_of_host) || is_address && host.bytes().all(is_of_address));
        if scheme.is_empty() || !scheme.bytes().all(is_scheme) || !is_host || !is_port {
            return Err(wrong());
        }
        // Browsers leave the default port out.
        let is_default = matches!((scheme, port), ("http", ":80") | ("https", ":443"));
        let port = if is_default || has_any_port { "" } else { port };
        let (scheme, host, port) = (scheme.into(), host.into(), port.into());
        Ok(Self { scheme, host, is_wildcard, port, has_any_port })
    }

    /// Returns `true` if the value of `Origin` is one of the origins. Browsers send it in lower case (Fetch §3.1).
    fn matches(&self, origin: &[u8]) -> bool {
        let rest = origin.strip_prefix(self.scheme.as_bytes());
        let Some(rest) = rest.and_then(|rest| rest.strip_prefix(b"://")) else { return false };
        let host = match self.has_any_port {
            false => rest.strip_suffix(self.port.as_bytes()),
            true => match memchr::memrchr(b':', rest) {
                Some(colon) if rest[colon + 1..].iter().all(u8::is_ascii_digit) => {
                    Some(&rest[..colon])
                }
                _ => Some(rest),
            },
        };
        let Some(host) = host else { return false };
        if !self.is_wildcard {
            return host == self.host.as_bytes();
        }
        let label = host.strip_suffix(self.host.as_bytes()).and_then(|it| it.strip_suffix(b"."));
        let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._".contains(byte);
        label.is_some_and(|label| !label.is_empty() && label.iter().all(is_of_name))
    }
}

impl fmt::Display for OriginPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheme, host, is_wildcard, port, has_any_port } = self;
        let star = if *is_wildcard { "*." } else { "" };
        write!(f, "{scheme}://{star}{host}{port}{}", if *has_any_port { ":*" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_their_origins_and_no_others() {
        for (pattern, origin, expected) in [
            ("https://a.test", "https://a.test", true),
            ("https://A.test:443", "https://a.test", true),
            ("https://a.test", "http://a.test", false),
            ("https://a.test", "https://a.test:8443", false),
            ("https://a.test", "https://a.test.evil", false),
            ("https://a.test", "https://aa.test", false),
            ("https://a.test", "null", false),
            ("https://*.b.test", "https://x.b.test", true),
            ("https://*.b.test", "https://x.y.b.test", true),
            ("https://*.b.test", "https://b.test", false),
            ("https://*.b.test", "https://xb.test", false),
            ("https://*.b.test", "https://.b.test", false),
            ("https://*.b.test", "https://evil.test/x.b.test", false),
            ("https://*.b.test", "https://evil.test:1.b.test", false),
            ("https://*.b.test:8443", "https://x.b.test:8443", true),
            ("http://localhost:*", "http://localhost:3000", true),
            ("http://localhost:*", "http://localhost", true),
            ("http://localhost:*", "http://localhost:", true),
            ("http://localhost:*", "http://localhost:x", false),
            ("http://[::1]:3000", "http://[::1]:3000", true),
            ("http://[::1]:*", "http://[::1]:1", true),
            ("http://[::1]:*", "http://[::1]", true),
        ] {
            let parsed = OriginPattern::parse(pattern).unwrap();
            assert_eq!(parsed.matches(origin.as_bytes()), expected, "{pattern} {origin}");
        }
        for wrong in [
            "a.test",
            "https://",
            "https://a.test/",
            "https://a.test/x",
            "https://*",
            "https://a*.test",
            "https://a.*.test",
            "https://a.test:x",
            "https://a.test:080",
            "*",
            "null",
            "https://a b",
            "https://u@a.test",
        ] {
            assert!(OriginPattern::parse(wrong).is_err(), "{wrong}");
        }
    }
}
