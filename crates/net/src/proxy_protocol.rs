//! The PROXY protocol, versions 1 and 2 (HAProxy's `proxy-protocol.txt`): a header with the client's address, which a
//! proxy sends before the client's data.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt};

/// The addresses of client and server; [`None`] when the connection is the proxy's own, such as a health check.
pub type Addresses = Option<(SocketAddr, SocketAddr)>;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Maximum length of a header of version 1, with CR LF.
const LONGEST_LINE: usize = 107;
/// Maximum length of a header of version 2, which may contain more than addresses.
const LONGEST_HEADER: usize = 16 + 4096;
/// Size of the buffer for each read: nearly all headers are shorter.
const READ: usize = 2048;

/// Reads the header, with one system call for each part in which it arrives. Returns the addresses and the data that
/// arrived after the header, which is the client's.
///
/// # Errors
/// When the connection ends before the end of the header, or does not begin with one.
pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<(Addresses, Vec<u8>)> {
    let mut bytes = Vec::with_capacity(READ);
    loop {
        match parse(&bytes) {
            Parsed::Whole(addresses, length) => return Ok((addresses, bytes[length..].to_vec())),
            Parsed::Malformed => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "no PROXY protocol"));
            }
            Parsed::More => {}
        }
        bytes.reserve(READ);
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// A line of text.
    One,
    /// A binary header.
    Two,
}

/// Whose connection it is that begins with a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// A client's; [`None`] if it has no address.
    Client(Addresses),
    /// The proxy's own, such as a health check.
    Proxy,
}

/// Returns the header of a connection.
#[must_use]
pub fn write(version: Version, sender: Sender) -> Vec<u8> {
    let addresses = match sender {
        Sender::Client(Some((client, server))) => {
            let (a, b) = (client.ip().to_canonical(), server.ip().to_canonical());
            // Both addresses are of one family.
            let (a, b) = match (a, b) {
                (IpAddr::V4(v4), IpAddr::V6(_)) => (v4.to_ipv6_mapped().into(), b),
                (IpAddr::V6(_), IpAddr::V4(v4)) => (a, v4.to_ipv6_mapped().into()),
                same => same,
            };
            Some((SocketAddr::new(a, client.port()), SocketAddr::new(b, server.port())))
        }
        Sender::Client(None) | Sender::Proxy => None,
    };
    match version {
        Version::One => write_line(addresses),
        Version::Two => write_binary(addresses, sender != Sender::Proxy),
    }
}

fn write_line(addresses: Addresses) -> Vec<u8> {
    let Some((client, server)) = addresses else { return b"PROXY UNKNOWN\r\n".to_vec() };
    let family = if client.is_ipv4() { "TCP4" } else { "TCP6" };
    let (a, b) = (client.ip(), server.ip());
    format!("PROXY {family} {a} {b} {} {}\r\n", client.port(), server.port()).into_bytes()
}

fn write_binary(addresses: Addresses, is_client: bool) -> Vec<u8> {
    let mut body = Vec::with_capacity(36);
    let mut family = 0;
    if let Some((client, server)) = addresses {
        family = if client.is_ipv4() { 0x11 } else { 0x21 };
        for address in [client.ip(), server.ip()] {
            match address {
                IpAddr::V4(address) => body.extend(address.octets()),
                IpAddr::V6(address) => body.extend(address.octets()),
            }
        }
        body.extend(client.port().to_be_bytes());
        body.extend(server.port().to_be_bytes());
    }
    let command = 0x20 | u8::from(is_client);
    let length = (body.len() as u16).to_be_bytes();
    [&SIGNATURE[..], &[command, family], &length, &body].concat()
}

#[derive(Debug, PartialEq, Eq)]
enum Parsed {
    /// The header is complete, with this length.
    Whole(Addresses, usize),
    More,
    Malformed,
}

fn parse(bytes: &[u8]) -> Parsed {
    let known = bytes.len().min(SIGNATURE.len());
    if bytes[..known] == SIGNATURE[..known] && !bytes.is_empty() {
        return binary(bytes);
    }
    let name = b"PROXY ";
    let known = bytes.len().min(name.len());
    if bytes[..known] != name[..known] {
        return Parsed::Malformed;
    }
    let start = &bytes[..bytes.len().min(LONGEST_LINE)];
    match memchr::memchr(b'\n', start) {
        Some(end) if start[..end].ends_with(b"\r") => line(&start[..end - 1]),
        Some(_) => Parsed::Malformed,
        None if start.len() < LONGEST_LINE => Parsed::More,
        None => Parsed::Malformed,
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
    let length = line.len() + "\r\n".len();
    addresses().map_or(Parsed::Malformed, |addresses| Parsed::Whole(addresses, length))
}

/// Version 2.
fn binary(bytes: &[u8]) -> Parsed {
    let Some(&[version, family, high, low]) = bytes.get(12..16) else {
        return Parsed::More;
    };
    let length = 16 + usize::from(u16::from_be_bytes([high, low]));
    if version >> 4 != 2 || length > LONGEST_HEADER {
        return Parsed::Malformed;
    }
    if bytes.len() < length {
        return Parsed::More;
    }
    let body = &bytes[16..length];
    let (both, least) = match (version & 15, family) {
        (1, 0x11) => (pair::<4>(body, |octets| Ipv4Addr::from(octets).into()), 12),
        (1, 0x21) => (pair::<16>(body, |octets| Ipv6Addr::from(octets).into()), 36),
        // Datagrams and Unix sockets, which mean nothing here, count as an unspecified address (§2.2).
        (1, 0x12) => (None, 12),
        (1, 0x22) => (None, 36),
        (1, 0x31 | 0x32) => (None, 216),
        // LOCAL, or an unspecified address.
        (0, _) | (1, 0) => (None, 0),
        _ => return Parsed::Malformed,
    };
    if body.len() < least { Parsed::Malformed } else { Parsed::Whole(both, length) }
}

/// Returns the addresses of client and server.
fn pair<const N: usize>(
    body: &[u8],
    address: fn([u8; N]) -> IpAddr,
) -> Option<(SocketAddr, SocketAddr)> {
    let (client, rest) = body.split_first_chunk::<N>()?;
    let (server, rest) = rest.split_first_chunk::<N>()?;
    let &[a, b, c, d, ..] = rest else { return None };
    let client = SocketAddr::new(address(*client), u16::from_be_bytes([a, b]));
    Some((client, SocketAddr::new(address(*server), u16::from_be_bytes([c, d]))))
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::ReadBuf;

    use super::*;

    /// Parses a message as a whole and cut at each byte. Returns the addresses and the number of bytes after the header.
    fn feed(message: &[u8]) -> Option<(Addresses, usize)> {
        let whole = parse(message);
        for cut in 0..message.len() {
            match (parse(&message[..cut]), &whole) {
                (Parsed::More, _) => {}
                (part, whole) => assert_eq!(part, *whole, "cut at {cut}"),
            }
        }
        match whole {
            Parsed::Whole(addresses, length) => Some((addresses, message.len() - length)),
            Parsed::Malformed => None,
            Parsed::More => panic!("more is expected"),
        }
    }

    fn both(client: &str, server: &str) -> Addresses {
        Some((client.parse().unwrap(), server.parse().unwrap()))
    }

    #[test]
    fn lines_are_read_to_their_end_and_no_further() {
        let line = b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nGET";
        assert_eq!(feed(line), Some((both("192.0.2.1:1", "192.0.2.2:2"), 3)));
        let line = b"PROXY TCP6 2001:db8::1 ::1 65535 443\r\n";
        assert_eq!(feed(line), Some((both("[2001:db8::1]:65535", "[::1]:443"), 0)));
        assert_eq!(feed(b"PROXY UNKNOWN ffff 1\r\nx"), Some((None, 1)));
        assert_eq!(feed(b"PROXY UNKNOWN\r\n\r\n"), Some((None, 2)));
        for wrong in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"PROXY TCP4 ::1 ::1 1 2\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n",
            b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n",
            b"PROXY TCP4 1.2.3.4\n",
            &[&b"PROXY UNKNOWN "[..], &[b'x'; 200], b"\r\n"].concat(),
        ] {
            assert_eq!(feed(wrong), None, "{}", String::from_utf8_lossy(wrong));
        }
    }

    #[test]
    fn headers_are_read_to_their_end_and_no_further() {
        let header = |version: u8, family: u8, body: &[u8]| {
            let length = (body.len() as u16).to_be_bytes();
            [SIGNATURE, &[version, family][..], &length, body, b"rest"].concat()
        };
        let v4 = [192, 0, 2, 1, 192, 0, 2, 2, 0, 80, 1, 187];
        let addresses = both("192.0.2.1:80", "192.0.2.2:443");
        assert_eq!(feed(&header(0x21, 0x11, &v4)), Some((addresses, 4)));
        let longer = [&v4[..], &[3, 0, 4, 1, 2, 3, 4]].concat();
        assert_eq!(feed(&header(0x21, 0x11, &longer)), Some((addresses, 4)));
        assert_eq!(feed(&header(0x20, 0, &[])), Some((None, 4)));
        assert_eq!(feed(&header(0x21, 0x11, &v4[..11])), None);
        assert_eq!(feed(&header(0x11, 0x11, &v4)), None);
        assert_eq!(feed(&header(0x21, 0x11, &[0; 5000])), None);
        // Other families have no address of a client, but the length that belongs to them.
        for (family, length) in [(0x12, 12), (0x22, 36), (0x31, 216), (0x32, 216)] {
            assert_eq!(
                feed(&header(0x21, family, &vec![0; length])),
                Some((None, 4)),
                "{family:x}"
            );
            assert_eq!(feed(&header(0x21, family, &vec![1; length + 5])), Some((None, 4)));
            assert_eq!(feed(&header(0x21, family, &vec![0; length - 1])), None);
        }
        for family in [0x01, 0x10, 0x13, 0x41] {
            assert_eq!(feed(&header(0x21, family, &[0; 216])), None, "{family:x}");
        }
        assert_eq!(feed(&header(0x22, 0x11, &v4)), None, "neither LOCAL nor PROXY");
    }

    #[test]
    fn written_headers_are_read_as_they_were_meant() {
        for (client, server) in [
            ("192.0.2.1:80", "192.0.2.2:443"),
            ("[2001:db8::1]:65535", "[::1]:1"),
            ("[::ffff:192.0.2.1]:80", "192.0.2.2:443"),
            ("192.0.2.1:0", "[::1]:1"),
            ("[::1]:1", "192.0.2.1:0"),
        ] {
            let sent = both(client, server);
            let canonical =
                |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
            for version in [Version::One, Version::Two] {
                let (read, rest) = feed(&write(version, Sender::Client(sent))).unwrap();
                let plain = |both: Addresses| both.map(|(a, b)| (canonical(a), canonical(b)));
                assert_eq!((plain(read), rest), (plain(sent), 0), "{client} {version:?}");
            }
        }
        for sender in [Sender::Client(None), Sender::Proxy] {
            for version in [Version::One, Version::Two] {
                assert_eq!(feed(&write(version, sender)), Some((None, 0)));
            }
        }
        assert_eq!(write(Version::Two, Sender::Proxy)[12], 0x20);
        assert_eq!(write(Version::Two, Sender::Client(None))[12], 0x21);
    }

    /// A stream that counts its reads.
    struct Counting<'a> {
        message: &'a [u8],
        reads: usize,
    }

    impl AsyncRead for Counting<'_> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.reads += 1;
            Pin::new(&mut self.message).poll_read(cx, buffer)
        }
    }

    #[tokio::test]
    async fn a_header_that_has_arrived_takes_one_read() {
        let message = b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nGET / HTTP/1.1\r\n";
        let mut stream = Counting { message, reads: 0 };
        let (addresses, rest) = read(&mut stream).await.unwrap();
        assert_eq!(addresses, both("192.0.2.1:1", "192.0.2.2:2"));
        assert_eq!((&*rest, stream.reads), (&b"GET / HTTP/1.1\r\n"[..], 1));
        assert!(read(&mut &message[..20]).await.is_err(), "it ends too early");
    }
}
