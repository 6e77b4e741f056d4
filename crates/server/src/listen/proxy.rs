//! The PROXY protocol: what a proxy says of the client before the client's own bytes (HAProxy's
//! `proxy-protocol.txt`, versions 1 and 2).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt};

/// The addresses of client and server as the proxy saw them; `None` when it speaks for itself, as in
/// its own checks.
pub(crate) type Addresses = Option<(SocketAddr, SocketAddr)>;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The longest line of version 1, CR LF included.
const LONGEST_LINE: usize = 107;
/// Version 2's header may carry more than addresses, up to this many bytes.
const LONGEST_HEADER: usize = 16 + 4096;

/// Reads what the proxy says, and not a byte more.
///
/// # Errors
/// When the connection ends first, or does not begin with the protocol.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Addresses> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "no PROXY protocol");
    let mut bytes = Vec::with_capacity(LONGEST_LINE);
    loop {
        let wanted = match parse(&bytes) {
            Parsed::Whole(addresses) => return Ok(addresses),
            Parsed::Malformed => return Err(malformed()),
            Parsed::More(wanted) => wanted,
        };
        let start = bytes.len();
        bytes.resize(start + wanted, 0);
        stream.read_exact(&mut bytes[start..]).await?;
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Parsed {
    Whole(Addresses),
    /// At least so many bytes are missing.
    More(usize),
    Malformed,
}

fn parse(bytes: &[u8]) -> Parsed {
    let known = bytes.len().min(SIGNATURE.len());
    if bytes[..known] == SIGNATURE[..known] && !bytes.is_empty() {
        return binary(bytes);
    }
    let name = b"PROXY ";
    let known = bytes.len().min(name.len());
    if bytes[..known] != name[..known] || bytes.len() > LONGEST_LINE {
        return Parsed::Malformed;
    }
    match bytes {
        [.., b'\r', b'\n'] => line(&bytes[..bytes.len() - 2]),
        // The shortest line is `PROXY UNKNOWN`; how much longer it is, its end tells.
        _ if bytes.len() < 8 => Parsed::More(8 - bytes.len()),
        [.., b'\r'] => Parsed::More(1),
        [.., b'\n'] => Parsed::Malformed,
        _ => Parsed::More(1),
    }
}

/// Version 1.
fn line(line: &[u8]) -> Parsed {
    let addresses = || -> Option<Addresses> {
        let line = std::str::from_utf8(line).ok()?;
        let mut words = line.split(' ').skip(1);
        let v4 = match words.next()? {
            "UNKNOWN" => return Some(None),
            "TCP4" => true,
            "TCP6" => false,
            _ => return None,
        };
        let mut address = || words.next()?.parse().ok().filter(|ip: &IpAddr| ip.is_ipv4() == v4);
        let (client, server) = (address()?, address()?);
        let mut port = || words.next()?.parse().ok();
        let (client_port, server_port) = (port()?, port()?);
        let pair = (SocketAddr::new(client, client_port), SocketAddr::new(server, server_port));
        words.next().is_none().then_some(Some(pair))
    };
    addresses().map_or(Parsed::Malformed, Parsed::Whole)
}

/// Version 2.
fn binary(bytes: &[u8]) -> Parsed {
    let Some(&[version, family, high, low]) = bytes.get(12..16) else {
        return Parsed::More(16 - bytes.len());
    };
    let length = 16 + usize::from(u16::from_be_bytes([high, low]));
    if version >> 4 != 2 || length > LONGEST_HEADER {
        return Parsed::Malformed;
    }
    if bytes.len() < length {
        return Parsed::More(length - bytes.len());
    }
    let body = &bytes[16..];
    match (version & 15, family) {
        // LOCAL, or no address that concerns us.
        (0, _) | (1, 0) => Parsed::Whole(None),
        (1, 0x11) => pair::<4>(body, |octets| Ipv4Addr::from(octets).into()),
        (1, 0x21) => pair::<16>(body, |octets| Ipv6Addr::from(octets).into()),
        _ => Parsed::Malformed,
    }
}

fn pair<const N: usize>(body: &[u8], address: fn([u8; N]) -> IpAddr) -> Parsed {
    let both = || {
        let (client, rest) = body.split_first_chunk::<N>()?;
        let (server, rest) = rest.split_first_chunk::<N>()?;
        let &[a, b, c, d, ..] = rest else { return None };
        let client = SocketAddr::new(address(*client), u16::from_be_bytes([a, b]));
        Some((client, SocketAddr::new(address(*server), u16::from_be_bytes([c, d]))))
    };
    both().map_or(Parsed::Malformed, |both| Parsed::Whole(Some(both)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds a message in the pieces that are asked for; the rest that was not touched.
    fn feed(message: &[u8]) -> (Parsed, usize) {
        let mut taken = 0;
        loop {
            match parse(&message[..taken]) {
                Parsed::More(wanted) if taken + wanted <= message.len() => taken += wanted,
                parsed => return (parsed, message.len() - taken),
            }
        }
    }

    fn both(client: &str, server: &str) -> Parsed {
        Parsed::Whole(Some((client.parse().unwrap(), server.parse().unwrap())))
    }

    #[test]
    fn lines_are_read_to_their_end_and_no_further() {
        let line = b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nGET";
        assert_eq!(feed(line), (both("192.0.2.1:1", "192.0.2.2:2"), 3));
        let line = b"PROXY TCP6 2001:db8::1 ::1 65535 443\r\n";
        assert_eq!(feed(line), (both("[2001:db8::1]:65535", "[::1]:443"), 0));
        assert_eq!(feed(b"PROXY UNKNOWN ffff 1\r\nx"), (Parsed::Whole(None), 1));
        for wrong in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"PROXY TCP4 ::1 ::1 1 2\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n",
            b"PROXY TCP4 1.2.3.4\n",
            &[&b"PROXY UNKNOWN "[..], &[b'x'; 200], b"\r\n"].concat(),
        ] {
            assert_eq!(feed(wrong).0, Parsed::Malformed, "{}", String::from_utf8_lossy(wrong));
        }
    }

    #[test]
    fn headers_are_read_to_their_end_and_no_further() {
        let header = |version: u8, family: u8, body: &[u8]| {
            let length = (body.len() as u16).to_be_bytes();
            [SIGNATURE, &[version, family][..], &length, body, b"rest"].concat()
        };
        let v4 = [192, 0, 2, 1, 192, 0, 2, 2, 0, 80, 1, 187];
        assert_eq!(feed(&header(0x21, 0x11, &v4)), (both("192.0.2.1:80", "192.0.2.2:443"), 4));
        let longer = [&v4[..], &[3, 0, 4, 1, 2, 3, 4]].concat();
        assert_eq!(feed(&header(0x21, 0x11, &longer)).1, 4);
        assert_eq!(feed(&header(0x20, 0, &[])), (Parsed::Whole(None), 4));
        assert_eq!(feed(&header(0x21, 0x11, &v4[..11])).0, Parsed::Malformed);
        assert_eq!(feed(&header(0x11, 0x11, &v4)).0, Parsed::Malformed);
        assert_eq!(feed(&header(0x21, 0x11, &[0; 5000])).0, Parsed::Malformed);
        assert_eq!(feed(&header(0x21, 0x31, &[0; 216])).0, Parsed::Malformed);
    }
}
