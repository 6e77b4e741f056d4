//! The forwarding field, in which trusted proxies name the client of a request.
//!
//! There are many such fields. Most proxies set one of them and forward the others as the client sent them.
//! The configuration therefore names the one field that the trusted proxies set. The server ignores all
//! others and does not pass them to scripts.

use std::net::{IpAddr, SocketAddr};

use dunlin_config::{ForwardedField, ForwardedKind, Network};
use dunlin_http::Request;
use dunlin_http::semantics::forwarded;

/// The client, as trusted proxies state it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Forwarded {
    /// The address of the client; `None` if they do not name it, or not as an address.
    pub(crate) address: Option<IpAddr>,
    /// It used TLS to the first trusted proxy, if known.
    pub(crate) encrypted: Option<bool>,
}

/// Returns the client that the trusted proxies name. Every proxy appends the address that it sees, so the
/// last address that is not a trusted proxy's is the client's; the client may have sent anything before it.
/// If the part that is read is malformed, it names no address.
pub(crate) fn client(
    field: &ForwardedField,
    request: &Request<'_>,
    trusted: &[Network],
) -> Forwarded {
    let mut client = Forwarded::default();
    for hop in hops(field, request) {
        client = hop;
        let is_trusted = |address| trusted.iter().any(|network| network.contains(address));
        if !client.address.is_some_and(is_trusted) {
            break;
        }
    }
    if field.kind() != ForwardedKind::Forwarded {
        client.encrypted = last_scheme(request);
    }
    client
}

/// Returns the entries of all proxies, nearest first. A malformed entry states nothing.
fn hops<'r>(
    field: &'r ForwardedField,
    request: &'r Request<'r>,
) -> Box<dyn Iterator<Item = Forwarded> + 'r> {
    let lines = values(request, field.name());
    let lines = lines.into_iter().rev();
    if field.kind() == ForwardedKind::Forwarded {
        return Box::new(lines.flat_map(forwarded::from_last).map(|element| {
            let element = element.unwrap_or_default();
            let address = element.node.and_then(parse_node);
            Forwarded { address, encrypted: element.proto.and_then(is_encrypted) }
        }));
    }
    let entries = lines.flat_map(|line| line.rsplit(|&byte| byte == b','));
    let entries = entries.map(<[u8]>::trim_ascii).filter(|entry| !entry.is_empty());
    Box::new(entries.map(|entry| Forwarded { address: parse_node(entry), encrypted: None }))
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

/// Returns whether a scheme has TLS. Some proxies name that of a WebSocket.
fn is_encrypted(scheme: &[u8]) -> Option<bool> {
    match scheme.to_ascii_lowercase().as_slice() {
        b"https" | b"wss" => Some(true),
        b"http" | b"ws" => Some(false),
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
    use dunlin_http::http1::Http1Connection;
    use dunlin_http::{Head, Limits};

    use super::*;

    fn found(field: &str, lines: &[&str]) -> Forwarded {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        let mut head = Head::default();
        Http1Connection::default().head(bytes.as_bytes(), &Limits::default(), &mut head).unwrap();
        let request = Request::new(bytes.as_bytes(), &head);
        let trusted = ["10.0.0.0/8".parse().unwrap(), "2001:db8:f::/48".parse().unwrap()];
        let field = ForwardedField::parse(field).unwrap();
        super::client(&field, &request, &trusted)
    }

    fn read(field: &str, lines: &[&str]) -> Option<(String, Option<bool>)> {
        let found = found(field, lines);
        found.address.map(|address| (address.to_string(), found.encrypted))
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
        let given = |field: &str, lines: &[&str]| found(field, lines).encrypted;
        let scheme = |value: &str| given("X-Forwarded-For", &["X-Forwarded-For: 1.2.3.4", value]);
        for (value, encrypted) in [
            ("https", Some(true)),
            ("HTTPS, http", Some(false)),
            ("http, HTTPS", Some(true)),
            ("wss", Some(true)),
            ("WSS", Some(true)),
            ("ws", Some(false)),
            ("Ws", Some(false)),
            ("ftp", None),
            ("", None),
        ] {
            assert_eq!(scheme(&format!("X-Forwarded-Proto: {value}")), encrypted, "{value}");
        }
        assert_eq!(scheme("Forwarded: proto=https"), None);
        assert_eq!(scheme("X_Forwarded_Proto: https"), None);
        let real = ["X-Real-IP: 1.2.3.4", "X-Forwarded-Proto: https"];
        assert_eq!(given("X-Real-IP", &real), Some(true));
        let forwarded = ["Forwarded: for=1.2.3.4;proto=\"wss\"", "X-Forwarded-Proto: http"];
        assert_eq!(given("Forwarded", &forwarded), Some(true));
        assert_eq!(given("Forwarded", &["X-Forwarded-Proto: https"]), None);
    }

    #[test]
    fn the_scheme_counts_without_an_address() {
        for lines in [
            &["X-Forwarded-Proto: https"][..],
            &["X-Forwarded-For: unknown", "X-Forwarded-Proto: https"],
            &["X-Forwarded-For: 1.2.3.4, unknown", "X-Forwarded-Proto: https"],
            &["X-Forwarded-For:", "X-Forwarded-Proto: https"],
        ] {
            let expected = Forwarded { address: None, encrypted: Some(true) };
            assert_eq!(found("X-Forwarded-For", lines), expected, "{lines:?}");
            assert_eq!(found("X-Real-IP", lines), expected, "{lines:?}");
        }
        for (value, encrypted) in [
            ("proto=https", Some(true)),
            ("for=unknown;proto=https", Some(true)),
            ("for=_hidden;proto=https, for=10.0.0.1;proto=http", Some(true)),
            ("for=1.2.3.4;proto=http;proto=https", None),
        ] {
            let expected = Forwarded { address: None, encrypted };
            assert_eq!(found("Forwarded", &[&format!("Forwarded: {value}")]), expected, "{value}");
        }
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
