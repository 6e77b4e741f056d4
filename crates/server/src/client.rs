//! A small client of HTTP/1.1 for the server's own needs: the commands that speak to its admin
//! socket, and the export of traces. Each request has a connection of its own, and blocks.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dunlin_http::http1::client::{HeadCache, ResponseEvent, ResponseReader};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

/// Where requests go.
#[derive(Debug, Clone)]
pub struct Client {
    place: Place,
    /// What stands before every path; without a slash at its end.
    prefix: String,
    timeout: Option<Duration>,
}

#[derive(Debug, Clone)]
enum Place {
    Socket(PathBuf),
    /// Host and port.
    Authority(String),
    /// The same by TLS.
    Secure(String, Secure),
}

/// What a connection by TLS begins with.
#[derive(Debug, Clone)]
struct Secure {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// An answer, whose body is read as it comes.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    stream: Stream,
    reader: ResponseReader,
    last: HeadCache,
    /// Bytes that have come; those before `at` were used.
    bytes: Vec<u8>,
    at: usize,
    is_over: bool,
}

#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// A head that is larger is no head.
const MOST_HEAD: usize = 64 * 1024;
const READ: usize = 16 * 1024;

impl Client {
    /// A client of the socket at a path, or of an `http://` URL, beneath whose path all others are.
    ///
    /// # Errors
    /// When it is a URL of another kind or has no host.
    pub fn new(place: &str) -> Result<Self, String> {
        let timeout = Some(Duration::from_secs(10));
        let Some((scheme, rest)) = place.split_once("://") else {
            return Ok(Self { place: Place::Socket(place.into()), prefix: String::new(), timeout });
        };
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(format!("{place:?}: only http:// is spoken"));
        }
        let (authority, prefix) = parts(place, rest, 80)?;
        Ok(Self { place: Place::Authority(authority), prefix, timeout })
    }

    /// A client of an `https://` URL, whose server has to be trusted by `config`; of others as
    /// [`Client::new`].
    ///
    /// # Errors
    /// When it is a URL of another kind or has no host.
    pub(crate) fn secure(
        place: &str,
        config: impl FnOnce() -> Result<Arc<ClientConfig>, String>,
    ) -> Result<Self, String> {
        let Some(rest) = secure_rest(place) else { return Self::new(place) };
        let (authority, prefix) = parts(place, rest, 443)?;
        let host = authority.rsplit_once(':').map_or(&*authority, |(host, _)| host);
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
            .map_err(|error| format!("{place:?}: {error}"))?;
        let place = Place::Secure(authority, Secure { config: config()?, name });
        Ok(Self { place, prefix, timeout: Some(Duration::from_secs(10)) })
    }

    /// With another limit of how long one reading or writing may take; `None` for no limit.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.timeout = timeout;
        self
    }

    /// Whether it is one of a URL, and not of a socket's path.
    pub(crate) fn is_of_network(place: &str) -> bool {
        place.contains("://")
    }

    /// Whether there can be a client of that URL.
    ///
    /// # Errors
    /// Why there cannot.
    pub(crate) fn check(place: &str) -> Result<(), String> {
        match secure_rest(place) {
            Some(rest) => parts(place, rest, 443).map(drop),
            None => Self::new(place).map(drop),
        }
    }

    /// Asks for `path`, which begins with a slash.
    ///
    /// # Errors
    /// When the server cannot be reached or does not speak HTTP.
    pub fn get(&self, path: &str) -> io::Result<Answer> {
        self.request("GET", path, "", None)
    }

    /// Sends `body` to `path`, which begins with a slash or, when the URL's own path is meant, is
    /// empty.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn post(&self, path: &str, media_type: &str, body: &[u8]) -> io::Result<Answer> {
        let fields = format!("Content-Type: {media_type}\r\nContent-Length: {}\r\n", body.len());
        self.request("POST", path, &fields, Some(body))
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        fields: &str,
        body: Option<&[u8]>,
    ) -> io::Result<Answer> {
        let (mut stream, host) = self.connect()?;
        let prefix = &self.prefix;
        let slash = if prefix.is_empty() && path.is_empty() { "/" } else { "" };
        let mut message = format!(
            "{method} {prefix}{path}{slash} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
             User-Agent: dunlin\r\n{fields}\r\n"
        )
        .into_bytes();
        message.extend_from_slice(body.unwrap_or_default());
        stream.write_all(&message)?;
        stream.flush()?;
        Answer::read(stream)
    }

    fn connect_to(&self, authority: &str) -> io::Result<TcpStream> {
        let stream = connect_to_any(authority, self.timeout)?;
        stream.set_read_timeout(self.timeout)?;
        stream.set_write_timeout(self.timeout)?;
        Ok(stream)
    }

    fn connect(&self) -> io::Result<(Stream, &str)> {
        let explain = |error: io::Error, place: &dyn std::fmt::Display| {
            io::Error::new(error.kind(), format!("{place}: {error}"))
        };
        match &self.place {
            Place::Socket(path) => {
                let stream =
                    UnixStream::connect(path).map_err(|error| explain(error, &path.display()))?;
                stream.set_read_timeout(self.timeout)?;
                stream.set_write_timeout(self.timeout)?;
                Ok((Stream::Unix(stream), "localhost"))
            }
            Place::Authority(authority) => {
                let stream = self.connect_to(authority);
                Ok((Stream::Tcp(stream.map_err(|error| explain(error, authority))?), authority))
            }
            Place::Secure(authority, Secure { config, name }) => {
                let stream = self.connect_to(authority);
                let stream = stream.map_err(|error| explain(error, authority))?;
                let session = ClientConnection::new(Arc::clone(config), name.clone());
                let session = session.map_err(io::Error::other)?;
                Ok((Stream::Tls(Box::new(StreamOwned::new(session, stream))), authority))
            }
        }
    }
}

/// What stands behind `https://`, if that is how it begins.
fn secure_rest(place: &str) -> Option<&str> {
    let (scheme, rest) = place.split_once("://")?;
    scheme.eq_ignore_ascii_case("https").then_some(rest)
}

/// Host with port, and path, of what stands behind the scheme of `place`.
fn parts(place: &str, rest: &str, port: u16) -> Result<(String, String), String> {
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let legal = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if authority.is_empty() || authority.contains('@') || !legal(rest) {
        return Err(format!("{place:?} is not a URL such as \"http://127.0.0.1:8080/\""));
    }
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let authority = if has_port { authority.to_owned() } else { format!("{authority}:{port}") };
    let path = path.trim_end_matches('/');
    Ok((authority, if path.is_empty() { String::new() } else { format!("/{path}") }))
}

fn connect_to_any(authority: &str, timeout: Option<Duration>) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in authority.to_socket_addrs()? {
        let attempt = match timeout {
            Some(timeout) => TcpStream::connect_timeout(&address, timeout),
            None => TcpStream::connect(address),
        };
        match attempt {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

impl Answer {
    fn read(stream: Stream) -> io::Result<Self> {
        let (reader, last) = (ResponseReader::default(), HeadCache::default());
        let mut answer =
            Self { status: 0, stream, reader, last, bytes: Vec::new(), at: 0, is_over: false };
        while answer.status == 0 {
            let event = answer.reader.next(&answer.bytes[answer.at..], false, &mut answer.last);
            let (used, event) = event.map_err(malformed)?;
            match event {
                ResponseEvent::Head { status, .. } => answer.status = status,
                _ if answer.bytes.len() > MOST_HEAD => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "the head has no end"));
                }
                _ if used == 0 => answer.receive()?,
                _ => {}
            }
            answer.at += used;
        }
        Ok(answer)
    }

    /// Reads more; the end of the connection within a response is an error.
    fn receive(&mut self) -> io::Result<()> {
        self.bytes.drain(..self.at);
        self.at = 0;
        let before = self.bytes.len();
        self.bytes.resize(before + READ, 0);
        let count = loop {
            let room = &mut self.bytes[before..];
            let result = match &mut self.stream {
                Stream::Unix(stream) => stream.read(room),
                Stream::Tcp(stream) => stream.read(room),
                Stream::Tls(stream) => stream.read(room),
            };
            match result {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result,
            }
        };
        self.bytes.truncate(before + *count.as_ref().unwrap_or(&0));
        if count? > 0 {
            return Ok(());
        }
        if self.reader.ends_at_close() {
            self.is_over = true;
            return Ok(());
        }
        let what = "the server has closed the connection";
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, what))
    }

    /// The whole body as text.
    ///
    /// # Errors
    /// When it is broken off or is longer than 64 MB.
    pub fn text(self) -> io::Result<String> {
        let mut body = Vec::new();
        self.take(64 << 20).read_to_end(&mut body)?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}

impl Read for Answer {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while !self.is_over && !out.is_empty() {
            let unread = &self.bytes[self.at..];
            // No more than there is room for, so that nothing has to be kept.
            let unread = &unread[..unread.len().min(out.len())];
            let (used, event) =
                self.reader.next(unread, false, &mut self.last).map_err(malformed)?;
            self.at += used;
            match event {
                ResponseEvent::Data(data) if !data.is_empty() => {
                    out[..data.len()].copy_from_slice(data);
                    return Ok(data.len());
                }
                ResponseEvent::End { .. } => self.is_over = true,
                _ if used == 0 && self.at + unread.len() < self.bytes.len() => {
                    // The stretch was too short to be read: a chunk's head, say.
                    let what = "a piece of the answer has no end";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
                _ if used == 0 => self.receive()?,
                _ => {}
            }
        }
        Ok(0)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tls(stream) => stream.flush(),
            _ => Ok(()),
        }
    }
}

fn malformed(error: dunlin_http::http1::client::Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.0)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn answer(response: &'static str) -> io::Result<Answer> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/a/", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                head.extend_from_slice(&byte);
            }
            stream.write_all(response.as_bytes()).unwrap();
            String::from_utf8(head).unwrap()
        });
        let answer = Client::new(&url).unwrap().get("/b");
        assert!(server.join().unwrap().starts_with("GET /a/b HTTP/1.1\r\n"));
        answer
    }

    #[test]
    fn bodies_are_read_however_they_are_framed() {
        for response in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\nhello",
        ] {
            let mut body = answer(response).unwrap();
            let mut text = String::new();
            // Byte by byte, as a reader may.
            let mut byte = [0];
            while body.read(&mut byte).unwrap() > 0 {
                text.push(byte[0].into());
            }
            assert_eq!(text, "hello", "{response}");
        }
    }

    #[test]
    fn a_cut_answer_is_an_error() {
        let cut = answer("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello").unwrap();
        assert!(cut.text().is_err());
        assert!(answer("HTTP/1.1 200 OK\r\n").is_err());
        assert!(answer("nonsense\r\n\r\n").is_err());
    }

    #[test]
    fn places_are_paths_and_plain_urls() {
        assert!(Client::new("/run/x.sock").is_ok());
        assert!(Client::new("http://[::1]:80/x/").is_ok());
        for wrong in ["https://x/", "http://", "http://u:p@h/", "http://h/a b"] {
            assert!(Client::new(wrong).is_err(), "{wrong}");
        }
    }
}
