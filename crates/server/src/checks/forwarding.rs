//! The forwarding field, in which trusted proxies name the client of a request.
//!
//! There are many such fields. Most proxies set one of them and forward the others as the client sent them.
//! The configuration therefore names the one field that the trusted proxies set. The server ignores all
//! others and does not pass them to scripts.

use std::net::{IpAddr, SocketAddr};

use dunlin_config::{ForwardedField, ForwardedKind, Network};
use dunlin_http::Request;
use dunlin_http::semantics::forwarded;

/// The client as a trusted proxy names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forwarded {
    pub(crate) address: IpAddr,
    /// Whether the client used TLS to the first trusted proxy, if known.
    pub(crate) encrypted: Option<bool>,
}

/// Returns the client that the trusted proxies name. Every proxy appends the address that it sees, so the
/// last address that is not a trusted proxy's is the client's; the client may have sent anything before it.
/// If the part that is read is malformed, the field is ignored.
pub(crate) fn client(
    field: &ForwardedField,
    request: &Request<'_>,
    trusted: &[Network],
) -> Option<Forwarded> {
    let mut last = None;
    for hop in hops(field, request) {
        let hop = hop?;
        last = Some(hop);
        if !trusted.iter().any(|network| network.contains(hop.address)) {
            break;
        }
    }
    let mut client = last?;
    if field.kind() == ForwardedKind::XForwardedFor {
        client.encrypted = last_scheme(request);
    }
    Some(client)
}

/// Returns the entries of all proxies, nearest first. `None` for a malformed entry.
fn hops<'r>(
    field: &'r ForwardedField,
    request: &'r Request<'r>,
) -> Box<dyn Iterator<Item = Option<Forwarded>> + 'r> {
    let lines = values(request, field.name());
    let lines = lines.into_iter().rev();
    if field.kind() == ForwardedKind::Forwarded {
        return Box::new(lines.flat_map(forwarded::from_last).map(|element| {
            let element = element?;
            let address = parse_node(element.node?)?;
            let encrypted = element.proto.and_then(is_encrypted);
            Some(Forwarded { address, encrypted })
        }));
    }
    let entries = lines.flat_map(|line| line.rsplit(|&byte| byte == b','));
    let entries = entries.map(<[u8]>::trim_ascii).filter(|entry| !entry.is_empty());
    Box::new(entries.map(|entry| {
        let address = parse_node(entry)?;
        Some(Forwarded { address, encrypted: None })
    }))
}

fn values<'r>(request: &Request<'r>, name: &str) -> Vec<&'r [u8]> {
    let is_it = |other: &[u8]| other.eq_ignore_ascii_case(name.as_bytes());
    request.fields().filter(|(other, _)| is_it(other)).map(|(_, value)| value).collect()
}

/// Returns whether the client used TLS, as the nearest proxy reports in `X-Forwarded-Proto`.
fn last_scheme(request: &Request<'_>) -> Option<bool> {
    let lines = values(request, "x-forwarded-proto");
    let last = lines.last()?.rsplit(|&byte| byte == b',').next()?;
    is_encrypted(last.trim_ascii())
}

fn is_encrypted(scheme: &[u8]) -> Option<bool> {
    match scheme.to_ascii_lowercase().as_slice() {
        b"https" => Some(true),
        b"http" => Some(false),
        _ => None,
    }
}

/// Parses an address with optional port, quotes and brackets.
fn parse_node(text: &[u8]) -> Option<IpAddr> {
    let unquoted = text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\""));
    let text = std::str::from_utf8(unquoted.unwrap_or(text)).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().ok().or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use dunlin_http::http1::Connection;
    use dunlin_http::{Head, Limits};

    use super::*;

    fn read(field: &str, lines: &[&str]) -> Option<(String, Option<bool>)> {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        let mut head = Head::default();
        Connection::default().head(bytes.as_bytes(), &Limits::default(), &mut head).unwrap();
        let request = Request::new(bytes.as_bytes(), &head);
        let trusted = ["10.0.0.0/8".parse().unwrap(), "2001:db8:f::/48".parse().unwrap()];
        let field = ForwardedField::parse(field).unwrap();
        let found = super::client(&field, &request, &trusted);
        found.map(|client| (client.address.to_string(), client.encrypted))
    }

    fn client(address: &str, encrypted: Option<bool>) -> Option<(String, Option<bool>)> {
        Some((address.to_owned(), encrypted))
    }

    #[test]
    fn the_last_untrusted_address_is_the_client() {
        let read = |lines: &[&str]| read("X-Forwarded-For", lines);
        assert_eq!(read(&["X-Forwarded-For: 6.6.6.6, 1.2.3.4, 10.1.1.1"]), client("1.2.3.4", None));
        let lines = ["x-forwarded-for: 6.6.6.6", "X-Forwarded-For: 1.2.3.4:80"];
        assert_eq!(read(&lines), client("1.2.3.4", None));
        assert_eq!(read(&["X-Forwarded-For: [2001:db8::7]:80"]), client("2001:db8::7", None));
        assert_eq!(read(&["X-Forwarded-For: 2001:db8::7"]), client("2001:db8::7", None));
        assert_eq!(read(&["X-Forwarded-For: ::ffff:1.2.3.4"]), client("1.2.3.4", None));
        assert_eq!(read(&["X-Forwarded-For: 10.1.1.1"]), client("10.1.1.1", None));
        assert_eq!(read(&["X-Forwarded-For: 1.2.3.4, , 10.1.1.1,"]), client("1.2.3.4", None));
        // A client cannot invalidate the entry that a proxy appends.
        assert_eq!(read(&["X-Forwarded-For: x, \", 1.2.3.4"]), client("1.2.3.4", None));
        for malformed in ["nonsense", "1.2.3.4, unknown", "1.2.3.4, x, 10.1.1.1", "", ","] {
            assert_eq!(read(&[&format!("X-Forwarded-For: {malformed}")]), None, "{malformed}");
        }
        assert_eq!(read(&["X_Forwarded_For: 1.2.3.4", "X.Forwarded.For: 1.2.3.4"]), None);
    }

    #[test]
    fn the_scheme_is_read_from_the_same_family_of_fields() {
        let given = |field: &str, lines: &[&str]| read(field, lines).and_then(|(_, tls)| tls);
        let address = "X-Forwarded-For: 1.2.3.4";
        let scheme = |value: &str| {
            given("X-Forwarded-For", &[address, &format!("X-Forwarded-Proto: {value}")])
        };
        assert_eq!(scheme("https"), Some(true));
        assert_eq!(scheme("HTTPS, http"), Some(false));
        assert_eq!(scheme("wss"), None);
        assert_eq!(given("X-Forwarded-For", &[address, "Forwarded: proto=https"]), None);
        assert_eq!(given("X-Real-IP", &["X-Real-IP: 1.2.3.4", "X-Forwarded-Proto: https"]), None);
        let forwarded = ["Forwarded: for=1.2.3.4;proto=\"https\"", "X-Forwarded-Proto: http"];
        assert_eq!(given("Forwarded", &forwarded), Some(true));
    }

    #[test]
    fn only_the_named_field_counts() {
        let all = ["Forwarded: for=1.1.1.1", "X-Forwarded-For: 2.2.2.2", "X-Real-IP: 3.3.3.3"];
        assert_eq!(read("forwarded", &all), client("1.1.1.1", None));
        assert_eq!(read("X-FORWARDED-FOR", &all), client("2.2.2.2", None));
        assert_eq!(read("X-Real-IP", &all), client("3.3.3.3", None));
        assert_eq!(read("CF-Connecting-IP", &all), None);
    }

    #[test]
    fn forwarded_is_read_backwards_to_the_first_untrusted_address() {
        let read = |value: &str| read("Forwarded", &[&format!("Forwarded: {value}")]);
        let chain = "for=6.6.6.6, for=\"[2001:db8::7]:4711\";proto=https, for=10.0.0.1;proto=http";
        assert_eq!(read(chain), client("2001:db8::7", Some(true)));
        assert_eq!(
            read("for=\"[2001:db8:f::1]\";by=x, For=10.0.0.1"),
            client("2001:db8:f::1", None)
        );
        for malformed in [
            "for=_hidden",
            "for=unknown",
            "proto=https",
            "for=1.2.3.4;for=6.6.6.6",
            "for=1.2.3.4, for=10.0.0.1;for=6.6.6.6",
            "for=1.2.3.4;for=1.2.3.4, for=10.0.0.1",
            "for=1.2.3.4;proto=http;proto=https",
            "for=\"1.2.3.4",
        ] {
            assert_eq!(read(malformed), None, "{malformed}");
        }
        // Anything that the client sends before the proxy's entry is ignored.
        for sent in ["for=6.6.6.6;for=7.7.7.7", "for=\"", "nonsense", "for=10.0.0.1"] {
            assert_eq!(read(&format!("{sent}, for=1.2.3.4")), client("1.2.3.4", None), "{sent}");
        }
    }
}
