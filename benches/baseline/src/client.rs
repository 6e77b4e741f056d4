//! A bare client: the cost of a generator's requests if it only counts the bytes of the responses.

use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::Failure;

/// The requests to send.
pub(crate) struct Plan {
    /// `http://ADDRESS:PORT/PATH`.
    pub(crate) url: String,
    pub(crate) connections: usize,
    /// Requests that a connection sends at once, when the responses to the previous ones are complete.
    pub(crate) pipeline: usize,
    pub(crate) time: Duration,
}

struct Connection {
    socket: TcpStream,
    /// Bytes of the responses that have not arrived.
    missing: usize,
}

/// Sends requests for the time of the plan. Returns the number of responses per second. All responses must have the
/// length of the first one.
pub(crate) fn load(plan: &Plan) -> Result<f64, Failure> {
    let rest = plan.url.strip_prefix("http://").ok_or("the URL has another scheme than http")?;
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
                Ok((0, _)) => return Err("the server closed a connection".into()),
                Ok((_, count)) => count,
                Err(Errno::AGAIN) => continue,
                Err(error) => return Err(error.into()),
            };
            connection.missing = match connection.missing.checked_sub(count) {
                None => return Err("a response is longer than the first one".into()),
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

/// Length of the response to the request, head and body.
fn length(address: &SocketAddr, request: &[u8]) -> Result<usize, Failure> {
    let mut socket = TcpStream::connect(address)?;
    socket.write_all(request)?;
    let (mut response, mut byte) = (Vec::new(), [0]);
    while !response.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte)?;
        response.push(byte[0]);
    }
    let head = String::from_utf8(response)?.to_ascii_lowercase();
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    let (_, body) =
        fields.find(|(name, _)| *name == "content-length").ok_or("the response has no length")?;
    Ok(head.len() + body.trim().parse::<usize>()?)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Sends `response(number)` for each request of a batch.
    fn serve(response: impl Fn(usize) -> &'static str + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/x", listener.local_addr().unwrap());
        thread::spawn(move || {
            let mut number = 0;
            let mut input = vec![0; 65536];
            for socket in listener.incoming() {
                let mut socket = socket.unwrap();
                while let Ok(count @ 1..) = socket.read(&mut input) {
                    let requests =
                        input[..count].windows(4).filter(|end| end == b"\r\n\r\n").count();
                    // The client may have closed the connection.
                    let _ = socket.write_all(response(number).repeat(requests).as_bytes());
                    number += 1;
                }
            }
        });
        url
    }

    #[test]
    fn responses_are_counted_and_a_longer_one_is_an_error() {
        let short = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        let long = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok!";
        let plan = |url| Plan { url, connections: 1, pipeline: 4, time: Duration::from_millis(20) };
        assert!(load(&plan(serve(move |_| short))).unwrap() > 0.0);
        let error = load(&plan(serve(move |number| if number < 3 { short } else { long })));
        assert_eq!(error.unwrap_err().to_string(), "a response is longer than the first one");
    }
}
