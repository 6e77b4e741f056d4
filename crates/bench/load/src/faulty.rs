//! A server that is faulty on purpose, to test that the generator detects it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A fault of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    None,
    /// Once, after a number of responses, the server pauses.
    Pause {
        /// Responses before the pause.
        after: u64,
        /// Duration of the pause.
        lasting: Duration,
    },
    /// The server stops responding after a number of responses.
    Stall {
        /// Responses before the stall.
        after: u64,
    },
    /// The server pauses periodically, on all connections.
    Pauses {
        /// Period of the pauses.
        each: Duration,
        /// Duration of a pause.
        lasting: Duration,
    },
    /// The body is sent byte by byte.
    Drip,
    /// The connection is closed in the middle of the body.
    Truncated,
    /// One bit of the body is flipped.
    Corrupt,
    /// Pipelined responses are in the wrong order.
    Misordered,
    /// `Connection: close` is ignored.
    IgnoresClose,
    /// No response is sent.
    Silent,
    /// The connection is reset in the middle of the body.
    Reset,
    /// The status is 500.
    Status,
    /// Content-Length is larger than the body.
    TooShort,
    /// Content-Length is smaller than the body.
    TooLong,
    /// The response is not HTTP.
    Garbage,
    /// Head and body are sent in separate packets, with Nagle's algorithm enabled.
    TwoPackets,
    /// The connection is closed after each response, without `Connection: close`.
    ClosesUnsaid,
}

/// The server. Dropping it stops it.
pub struct FaultyServer {
    /// The address of the server.
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
}

struct Site {
    fault: Fault,
    stop: Arc<AtomicBool>,
    responses: AtomicU64,
    began: Instant,
    /// Bodies of `/0`, `/1` and so on.
    bodies: Vec<Vec<u8>>,
}

impl FaultyServer {
    /// Starts a server on a free port. `bodies` are those of `/0`, `/1` and so on.
    ///
    /// # Errors
    /// The socket or the thread cannot be created.
    pub fn start(fault: Fault, bodies: Vec<Vec<u8>>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let site = Arc::new(Site {
            fault,
            stop: Arc::clone(&stop),
            responses: AtomicU64::new(0),
            began: Instant::now(),
            bodies,
        });
        thread::Builder::new().name("faulty".to_owned()).spawn(move || {
            for stream in listener.incoming().flatten() {
                if site.stop.load(Ordering::Relaxed) {
                    break;
                }
                let site = Arc::clone(&site);
                let serve = move || {
                    // Errors of a client's connection do not matter.
                    let _ = site.serve(stream);
                };
                if thread::Builder::new().name("faulty".to_owned()).spawn(serve).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { address, stop })
    }
}

impl Drop for FaultyServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wake the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

impl Site {
    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(self.fault != Fault::TwoPackets)?;
        stream.set_read_timeout(Some(Duration::from_millis(200)))?;
        let (mut unread, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
        while !self.stop.load(Ordering::Relaxed) {
            let count = match stream.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            };
            unread.extend_from_slice(&buffer[..count]);
            let mut requests = requests(&mut unread);
            if self.fault == Fault::Misordered {
                requests.reverse();
            }
            let mut batch = Vec::new();
            for request in &requests {
                if !self.respond(request, &mut stream, &mut batch)? {
                    return Ok(());
                }
            }
            stream.write_all(&batch)?;
            if requests.iter().any(|request| request.closes) && self.fault != Fault::IgnoresClose {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Responds to a request. Returns false at the end of the connection.
    fn respond(
        &self,
        request: &Request,
        stream: &mut TcpStream,
        batch: &mut Vec<u8>,
    ) -> io::Result<bool> {
        let responses = self.responses.fetch_add(1, Ordering::Relaxed);
        let empty = Vec::new();
        let body = self.bodies.get(request.number).unwrap_or(&empty);
        let half = body.len() / 2;
        let head = |status: &str, length: usize| {
            format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n").into_bytes()
        };
        let right = head("200 OK", body.len());
        match self.fault {
            Fault::None | Fault::Misordered | Fault::IgnoresClose => {
                batch.extend_from_slice(&right);
                batch.extend_from_slice(body);
            }
            Fault::Pause { after, lasting } => {
                if responses == after {
                    thread::sleep(lasting);
                }
                batch.extend_from_slice(&right);
                batch.extend_from_slice(body);
            }
            Fault::Stall { after } => {
                if responses < after {
                    batch.extend_from_slice(&right);
                    batch.extend_from_slice(body);
                }
            }
            Fault::Pauses { each, lasting } => {
                let within = self.began.elapsed().as_nanos() % each.as_nanos().max(1);
                let from = each.saturating_sub(lasting).as_nanos();
                if within >= from {
                    let rest = each.as_nanos() - within;
                    thread::sleep(Duration::from_nanos(rest as u64));
                }
                batch.extend_from_slice(&right);
                batch.extend_from_slice(body);
            }
            Fault::Drip => {
                stream.write_all(&right)?;
                for byte in body {
                    stream.write_all(&[*byte])?;
                    thread::sleep(Duration::from_millis(1));
                }
            }
            Fault::Truncated => {
                stream.write_all(&[&right, &body[..half]].concat())?;
                return Ok(false);
            }
            Fault::Reset => {
                stream.write_all(&[&right, &body[..half]].concat())?;
                rustix::net::sockopt::set_socket_linger(&*stream, Some(Duration::ZERO))?;
                return Ok(false);
            }
            Fault::Corrupt => {
                batch.extend_from_slice(&right);
                batch.extend_from_slice(body);
                if let Some(last) = batch.last_mut() {
                    *last ^= 1;
                }
            }
            Fault::Silent => {}
            Fault::Status => {
                batch.extend_from_slice(&head("500 Internal Server Error", body.len()));
                batch.extend_from_slice(body);
            }
            Fault::TooShort => {
                batch.extend_from_slice(&head("200 OK", body.len() + 7));
                batch.extend_from_slice(body);
            }
            Fault::TooLong => {
                batch.extend_from_slice(&head("200 OK", half));
                batch.extend_from_slice(body);
            }
            Fault::Garbage => batch.extend_from_slice(b"\x16\x03\x01 this is no response\r\n\r\n"),
            Fault::TwoPackets => {
                stream.write_all(&right)?;
                stream.write_all(body)?;
            }
            Fault::ClosesUnsaid => {
                stream.write_all(&[&right, body.as_slice()].concat())?;
                return Ok(false);
            }
        }
        Ok(true)
    }
}

struct Request {
    /// The number in the path.
    number: usize,
    closes: bool,
}

/// Takes all complete requests, which have no bodies, from `unread`.
fn requests(unread: &mut Vec<u8>) -> Vec<Request> {
    let mut requests = Vec::new();
    while let Some(end) = unread.windows(4).position(|window| window == b"\r\n\r\n") {
        let head = String::from_utf8_lossy(&unread[..end]).to_ascii_lowercase();
        let path = head.split(' ').nth(1).unwrap_or("/");
        requests.push(Request {
            number: path.trim_start_matches('/').parse().unwrap_or(0),
            closes: head.contains("\r\nconnection: close"),
        });
        unread.drain(..end + 4);
    }
    requests
}
