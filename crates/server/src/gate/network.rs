//! Networks of addresses, and the address that proxies tell of.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use dunlin_http::Request;

/// An address with the number of bits of it that count: `192.0.2.0/24`, `2001:db8::/32`, `::1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    bits: u128,
    /// Of 128: an IPv4 network is one of addresses mapped to IPv6.
    prefix: u8,
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn mask(prefix: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0)
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hint = || {
            format!("{text:?} is no network such as \"192.0.2.0/24\", \"2001:db8::/32\" or \"::1\"")
        };
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| hint())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let length: u8 = match length {
            Some(length) => {
                length.parse().ok().filter(|length| *length <= most).ok_or_else(hint)?
            }
            None => most,
        };
        let prefix = length + (128 - most);
        Ok(Self { bits: bits(address) & mask(prefix), prefix })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = Ipv6Addr::from_bits(self.bits);
        match address.to_ipv4_mapped() {
            Some(address) if self.prefix >= 96 => write!(f, "{address}/{}", self.prefix - 96),
            _ => write!(f, "{address}/{}", self.prefix),
        }
    }
}

impl Network {
    /// How many of 128 bits count.
    pub(crate) fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether the address is one of it.
    #[inline]
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        bits(address) & mask(self.prefix) == self.bits
    }
}

/// The client's address behind proxies, and whether it spoke TLS with the first of them, when the
/// proxies are trusted. Every proxy adds the address that it saw at the end of the list, so that
/// the last one that is not of a trusted proxy is the client's; whatever stands before it may be
/// the client's invention. `Forwarded` (RFC 7239) counts before `X-Forwarded-For`.
pub(crate) fn forwarded_address(
    request: &Request<'_>,
    trusted: &[Network],
) -> Option<(IpAddr, Option<bool>)> {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    let field = |name: &'static str| {
        request
            .fields()
            .filter(move |(other, _)| other.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
            .collect::<Vec<&[u8]>>()
    };
    let standard = field("forwarded");
    let mut last = None;
    if standard.is_empty() {
        let protocols = field("x-forwarded-proto");
        let protocol =
            protocols.last().and_then(|value| value.split(|&byte| byte == b',').next_back());
        let encrypted = protocol.map(|name| name.trim_ascii().eq_ignore_ascii_case(b"https"));
        let list = field("x-forwarded-for");
        for entry in list.iter().rev().flat_map(|value| value.rsplit(|&byte| byte == b',')) {
            let address = parse_node(entry)?;
            last = Some((address, encrypted));
            if !is_trusted(address) {
                break;
            }
        }
        return last;
    }
    for element in standard.iter().rev().flat_map(|value| value.rsplit(|&byte| byte == b',')) {
        let pair = |name: &[u8]| {
            element.split(|&byte| byte == b';').find_map(|pair| {
                let equals = pair.iter().position(|&byte| byte == b'=')?;
                let is = pair[..equals].trim_ascii().eq_ignore_ascii_case(name);
                is.then(|| pair[equals + 1..].trim_ascii())
            })
        };
        let Some(address) = pair(b"for").and_then(parse_node) else { break };
        let encrypted = pair(b"proto").map(|name| unquoted(name).eq_ignore_ascii_case(b"https"));
        last = Some((address, encrypted));
        if !is_trusted(address) {
            break;
        }
    }
    last
}

fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value)
}

/// An address with or without a port, in quotes and brackets or not.
fn parse_node(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(unquoted(text.trim_ascii())).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().ok().or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use dunlin_http::Head;
    use dunlin_http::http1::{Connection, Limits};

    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_is_in_its_network_and_in_no_other() {
        for (text, inside, outside) in [
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("192.0.2.77/24", "192.0.2.1", "191.0.2.1"),
            ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
            ("2001:db8::/32", "2001:db8:ffff::", "2001:db9::"),
            ("::1", "::1", "::2"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
        ] {
            assert_eq!(network(&network(text).to_string()), network(text));
            assert!(network(text).contains(inside.parse().unwrap()), "{text} {inside}");
            assert!(!network(text).contains(outside.parse().unwrap()), "{text} {outside}");
        }
        assert!(network("::/0").contains("192.0.2.1".parse().unwrap()));
        for text in ["", "x", "1.2.3.4/33", "::/129", "1.2.3/8", "1.2.3.4/", "/8"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }

    fn behind(fields: &str) -> Option<(String, Option<bool>)> {
        let bytes = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let mut head = Head::default();
        Connection::default().head(bytes.as_bytes(), &Limits::default(), &mut head).unwrap();
        let request = Request::new(bytes.as_bytes(), &head);
        let trusted = [network("10.0.0.0/8")];
        forwarded_address(&request, &trusted).map(|(address, tls)| (address.to_string(), tls))
    }

    #[test]
    fn the_last_address_that_is_not_trusted_is_the_clients() {
        let found = |address: &str, tls| Some((address.to_owned(), tls));
        let for_ = "X-Forwarded-For: ";
        assert_eq!(
            behind(&format!("{for_}6.6.6.6, 1.2.3.4, 10.1.1.1\r\n")),
            found("1.2.3.4", None)
        );
        assert_eq!(
            behind(&format!("{for_}6.6.6.6\r\n{for_}1.2.3.4:80\r\nX-Forwarded-Proto: https\r\n")),
            found("1.2.3.4", Some(true))
        );
        assert_eq!(behind(&format!("{for_}10.1.1.1\r\n")), found("10.1.1.1", None));
        assert_eq!(behind(&format!("{for_}nonsense\r\n")), None);
        let forwarded =
            "Forwarded: for=6.6.6.6, for=\"[2001:db8::7]:4711\";proto=https, for=10.0.0.1\r\n";
        assert_eq!(behind(forwarded), found("2001:db8::7", Some(true)));
        assert_eq!(behind("Forwarded: for=_hidden\r\n"), None);
        assert_eq!(behind(""), None);
    }
}
