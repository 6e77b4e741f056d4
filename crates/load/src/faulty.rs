//! A server that answers wrongly on purpose, so that the generator can be seen to notice.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What the server does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Once, after so many answers, nobody is answered for a while.
    Pause {
        /// Answers before it.
        after: u64,
        /// How long it lasts.
        lasting: Duration,
    },
    /// After so many responses, none comes any more.
    Stall {
        /// Responses before it.
        after: u64,
    },
    /// Again and again no response leaves for a while, on any connection.
    Pauses {
        /// From the beginning of one to that of the next.
        each: Duration,
        /// How long one lasts.
        lasting: Duration,
    },
    /// The body leaves byte by byte.
    Drip,
    /// The connection is closed in the middle of the body.
    Truncated,
    /// One bit of the body is another.
    Corrupt,
    /// Of two requests that arrive together, the second is answered first.
    Misordered,
    /// `Connection: close` is not followed.
    IgnoresClose,
    /// No answer comes.
    Silent,
    /// The connection is reset in the middle of the body.
    Reset,
    /// The status is 500.
    Status,
    /// More bytes are announced than come.
    TooShort,
    /// Fewer bytes are announced than come.
    TooLong,
    /// The answer is not HTTP.
    Garbage,
    /// Head and body leave in packets of their own, with Nagle's algorithm on.
    TwoPackets,
    /// The connection is closed after each answer, which does not say so.
    ClosesUnsaid,
}

/// The server; it ends when it is dropped.
pub struct FaultyServer {
    /// Where it listens.
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
}

struct Site {
    fault: Fault,
    stop: Arc<AtomicBool>,
    answers: AtomicU64,
    began: Instant,
    /// What `/0`, `/1` and so on have as their bodies.
    bodies: Vec<Vec<u8>>,
}

impl FaultyServer {
    /// Starts it on a free port. `bodies`: those of `/0`, `/1` and so on.
    ///
    /// # Errors
    /// What the system reports of the socket or the thread.
    pub fn start(fault: Fault, bodies: Vec<Vec<u8>>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let site = Arc::new(Site {
            fault,
            stop: Arc::clone(&stop),
            answers: AtomicU64::new(0),
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
                    // How a client ends its connection does not matter here.
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
        // Wakes the thread that accepts.
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
                if !self.answer(request, &mut stream, &mut batch)? {
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

    /// Answers one request; false when the connection is over.
    fn answer(
        &self,
        request: &Request,
        stream: &mut TcpStream,
        batch: &mut Vec<u8>,
    ) -> io::Result<bool> {
        let answers = self.answers.fetch_add(1, Ordering::Relaxed);
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
                if answers == after {
                    thread::sleep(lasting);
                }
                batch.extend_from_slice(&right);
                batch.extend_from_slice(body);
            }
            Fault::Stall { after } => {
                if answers < after {
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
            Fault::Garbage => batch.extend_from_slice(b"\x16\x03\x01 this is no answer\r\n\r\n"),
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
    /// Of `/0`, `/1` and so on.
    number: usize,
    closes: bool,
}

/// Takes the requests that are complete from `unread`; they have no bodies.
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
