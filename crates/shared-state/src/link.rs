//! A connection to one server of the store, by TCP, TLS or a Unix socket. Requests and replies have a time for the whole, and
//! replies a bound (see `reply`).

use std::cell::{Cell, RefCell};
use std::io::{self, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::cluster::Connect;
use redis::{
    ConnectionAddr, ConnectionInfo, ConnectionLike, IntoConnectionInfo, RedisResult, Value, cmd,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::reply;

/// A connection.
pub(crate) struct Link {
    stream: BufReader<Box<dyn Stream>>,
    timeout: Cell<Duration>,
    db: i64,
    is_open: bool,
}

/// The bytes of a connection.
trait Stream: Read + Write + Send {
    fn socket(&mut self) -> &mut Socket;
}

/// A socket whose reads and writes end at a time.
struct Socket {
    kind: Kind,
    deadline: Instant,
}

enum Kind {
    Tcp(TcpStream),
    Unix(UnixStream),
}

thread_local! {
    /// The configuration of TLS for the connections that a cluster's client makes by itself: it passes on nothing but an address.
    static OF_CLUSTER: RefCell<Option<Arc<ClientConfig>>> = const { RefCell::new(None) };
}

/// Sets the configuration of TLS for the nodes of a cluster.
pub(crate) fn set_tls_of_cluster(tls: &Arc<ClientConfig>) {
    OF_CLUSTER.set(Some(Arc::clone(tls)));
}

impl Link {
    /// Connects and authenticates, within `timeout` for each step.
    ///
    /// # Errors
    /// When the server does not respond, or does not accept the credentials.
    pub(crate) fn open(
        info: &ConnectionInfo,
        tls: Option<&Arc<ClientConfig>>,
        timeout: Duration,
    ) -> RedisResult<Self> {
        let deadline = Instant::now() + timeout;
        let tcp = |host: &str, port| -> io::Result<Socket> {
            Ok(Socket { kind: Kind::Tcp(connect(host, port, deadline)?), deadline })
        };
        let stream: Box<dyn Stream> = match info.addr() {
            ConnectionAddr::Tcp(host, port) => Box::new(tcp(host, *port)?),
            ConnectionAddr::TcpTls { host, port, insecure: false, .. } => {
                let tls = tls.ok_or_else(|| unsupported("TLS is not configured"))?;
                let name = ServerName::try_from(host.clone())
                    .map_err(|_| unsupported("its host is no name of a certificate"))?;
                let connection = ClientConnection::new(Arc::clone(tls), name)?;
                Box::new(StreamOwned::new(connection, tcp(host, *port)?))
            }
            ConnectionAddr::TcpTls { .. } => {
                return Err(unsupported("its certificate has to be verified").into());
            }
            ConnectionAddr::Unix(path) => {
                Box::new(Socket { kind: Kind::Unix(UnixStream::connect(path)?), deadline })
            }
            _ => return Err(unsupported("the kind of its address is unknown").into()),
        };
        let settings = info.redis_settings();
        let mut link = Self {
            stream: BufReader::new(stream),
            timeout: Cell::new(timeout),
            db: settings.db(),
            is_open: true,
        };
        if let Some(password) = settings.password() {
            let mut command = cmd("AUTH");
            if let Some(user) = settings.username() {
                command.arg(user);
            }
            command.arg(password).exec(&mut link)?;
        }
        if link.db != 0 {
            cmd("SELECT").arg(link.db).exec(&mut link)?;
        }
        Ok(link)
    }

    fn send(&mut self, command: &[u8]) -> RedisResult<()> {
        self.begin();
        let stream = self.stream.get_mut();
        let sent = stream.write_all(command).and_then(|()| stream.flush());
        self.is_open &= sent.is_ok();
        Ok(sent?)
    }

    fn receive(&mut self) -> RedisResult<Value> {
        self.begin();
        let received = reply::read(&mut self.stream);
        self.is_open &= received.is_ok();
        received
    }

    fn begin(&mut self) {
        let deadline = Instant::now() + self.timeout.get();
        self.stream.get_mut().socket().deadline = deadline;
    }
}

fn connect(host: &str, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "its host has no address");
    for address in (host, port).to_socket_addrs()? {
        let connected = left(deadline).and_then(|left| TcpStream::connect_timeout(&address, left));
        match connected {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns the time until the deadline.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn unsupported(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, why)
}

impl Stream for Socket {
    fn socket(&mut self) -> &mut Socket {
        self
    }
}

impl Stream for StreamOwned<ClientConnection, Socket> {
    fn socket(&mut self) -> &mut Socket {
        &mut self.sock
    }
}

impl Read for Socket {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let left = Some(left(self.deadline)?);
        match &mut self.kind {
            Kind::Tcp(stream) => {
                stream.set_read_timeout(left)?;
                stream.read(to)
            }
            Kind::Unix(stream) => {
                stream.set_read_timeout(left)?;
                stream.read(to)
            }
        }
    }
}

impl Write for Socket {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        let left = Some(left(self.deadline)?);
        match &mut self.kind {
            Kind::Tcp(stream) => {
                stream.set_write_timeout(left)?;
                stream.write(from)
            }
            Kind::Unix(stream) => {
                stream.set_write_timeout(left)?;
                stream.write(from)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ConnectionLike for Link {
    fn req_packed_command(&mut self, command: &[u8]) -> RedisResult<Value> {
        self.send(command)?;
        self.receive()
    }

    fn req_packed_commands(
        &mut self,
        commands: &[u8],
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        self.send(commands)?;
        let replies = (0..offset + count).map(|_| self.receive());
        let replies: Vec<Value> = replies.collect::<RedisResult<_>>()?;
        Ok(replies.into_iter().skip(offset).collect())
    }

    fn get_db(&self) -> i64 {
        self.db
    }

    fn check_connection(&mut self) -> bool {
        cmd("PING").exec(self).is_ok()
    }

    fn is_open(&self) -> bool {
        self.is_open
    }
}

impl Connect for Link {
    fn connect<T: IntoConnectionInfo>(info: T, timeout: Option<Duration>) -> RedisResult<Self> {
        let tls = OF_CLUSTER.with_borrow(Option::clone);
        Self::open(&info.into_connection_info()?, tls.as_ref(), timeout.unwrap_or(DEFAULT))
    }

    fn send_packed_command(&mut self, command: &[u8]) -> RedisResult<()> {
        self.send(command)
    }

    fn set_write_timeout(&self, time: Option<Duration>) -> RedisResult<()> {
        self.set_read_timeout(time)
    }

    fn set_read_timeout(&self, time: Option<Duration>) -> RedisResult<()> {
        self.timeout.set(time.unwrap_or(DEFAULT));
        Ok(())
    }

    fn recv_response(&mut self) -> RedisResult<Value> {
        self.receive()
    }
}

/// The time for a response where the client of a cluster has none.
const DEFAULT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Returns a store that responds to each connection with these bytes, one after the other.
    fn dribbling(reply: &'static [u8], pause: Duration) -> ConnectionInfo {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut sent = reply.iter().cycle();
                while stream.write_all(&[*sent.next().unwrap()]).is_ok() {
                    thread::sleep(pause);
                }
            }
        });
        format!("redis://{address}").into_connection_info().unwrap()
    }

    #[test]
    fn a_reply_that_comes_slowly_has_the_time_of_a_response() {
        let time = Duration::from_millis(200);
        let info = dribbling(b"+PO", Duration::from_millis(20));
        let mut link = Link::open(&info, None, time).unwrap();
        let began = Instant::now();
        let error = cmd("PING").query::<String>(&mut link).unwrap_err();
        assert!(error.is_timeout() && !link.is_open(), "{error}");
        assert!(began.elapsed() < 20 * time);
    }
}
