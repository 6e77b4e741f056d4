//! A bare client: what a generator's requests cost when nothing is done with the answers but counting their bytes.

use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::Failure;

/// What is to be sent.
pub(crate) struct Plan {
    /// `http://ADDRESS:PORT/PATH`.
    pub(crate) url: String,
    pub(crate) connections: usize,
    /// Requests that leave together on a connection once those before them are answered.
    pub(crate) pipeline: usize,
    pub(crate) time: Duration,
}

struct Connection {
    socket: TcpStream,
    /// Bytes of the answers that have not come yet.
    missing: usize,
}

/// Sends for the plan's time, and says how many requests a second were answered. All answers have to be of the
/// first one's length.
pub(crate) fn load(plan: &Plan) -> Result<f64, Failure> {
    let rest = plan.url.strip_prefix("http://").ok_or("the URL is not of http")?;
    let (host, path) = rest.split_once('/').ok_or("the URL has no path")?;
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes();
    let address: SocketAddr = host.parse()?;
    let batch = request.repeat(plan.pipeline);
    let expected = length(&address, &request)? * plan.pipeline;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut connections = Vec::new();
    for index in 0..plan.connections {
        let mut socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.write_all(&batch)?;
        socket.set_nonblocking(true)?;
        let data = EventData::new_u64(index as u64);
        epoll::add(&poll, &socket, data, EventFlags::IN | EventFlags::ET)?;
        connections.push(Connection { socket, missing: expected });
    }
    let mut events = [MaybeUninit::uninit(); 256];
    let mut input = vec![0; 1 << 20];
    let (began, mut batches) = (Instant::now(), 0_usize);
    while began.elapsed() < plan.time {
        let (ready, _) = epoll::wait(&poll, &mut events, None)?;
        for event in ready.iter() {
            let connection = &mut connections[event.data.u64() as usize];
            let count = match recv(&connection.socket, &mut input[..], RecvFlags::empty()) {
                Ok((0, _)) => return Err("the server has closed a connection".into()),
                Ok((_, count)) => count,
                Err(Errno::AGAIN) => continue,
                Err(error) => return Err(error.into()),
            };
            connection.missing = match connection.missing.checked_sub(count) {
                None => return Err("an answer is longer than the first".into()),
                Some(0) => {
                    batches += 1;
                    if send(&connection.socket, &batch, SendFlags::NOSIGNAL)? < batch.len() {
                        return Err("the requests do not fit into the socket".into());
                    }
                    expected
                }
                Some(missing) => missing,
            };
        }
    }
    Ok((batches * plan.pipeline) as f64 / began.elapsed().as_secs_f64())
}

/// Bytes of the answer to the request.
fn length(address: &SocketAddr, request: &[u8]) -> Result<usize, Failure> {
    let mut socket = TcpStream::connect(address)?;
    socket.write_all(request)?;
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while !answer.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte)?;
        answer.push(byte[0]);
    }
    let head = String::from_utf8(answer)?.to_ascii_lowercase();
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    let (_, body) = fields.find(|(name, _)| *name == "content-length").ok_or("no length")?;
    Ok(head.len() + body.trim().parse::<usize>()?)
}
