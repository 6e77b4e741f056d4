//! The baselines of the benchmarks: the least processor time that a request, a process or a client can take.
//!
//! `baseline [--listen ADDR] [--size BYTES | --file PATH] [--copies COUNT]` is a bare epoll responder: one thread, one
//! buffer, one prepared response. Any processor time that a server takes beyond it is the server's own. `--copies` selects
//! each response at random from this number of copies, to measure the effect of the processor's caches.
//!
//! `baseline --spawn PROGRAM [--seconds N]` is the baseline for scripts that are started for each request: a loop that
//! starts the program by `posix_spawn`, reads its output and waits for its end. It prints the number of runs per second.
//!
//! `baseline --load URL [--connections N] [--pipeline N] [--seconds N]` is the baseline for a load generator: a client that
//! only counts the bytes of the responses. It prints the number of responses per second.

mod client;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags, acceptfrom_with, send, sockopt};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let (mut program, mut url, mut seconds) = (None, None, 1);
    let (mut connections, mut pipeline) = (32, 1);
    let (mut address, mut body) = ("127.0.0.1:0".to_owned(), vec![b'x'; 1024]);
    let mut copies = 1;
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or("the last option has no value")?;
        match name.as_str() {
            "--listen" => address = value,
            "--size" => body = vec![b'x'; value.parse()?],
            "--file" => body = std::fs::read(value)?,
            "--copies" => copies = value.parse::<usize>()?.max(1),
            "--spawn" => program = Some(value),
            "--load" => url = Some(value),
            "--connections" => connections = value.parse()?,
            "--pipeline" => pipeline = value.parse()?,
            "--seconds" => seconds = value.parse()?,
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    if let Some(program) = program {
        let rate = spawn(&program, Duration::from_secs(seconds))?;
        println!("{rate:.1}");
        return Ok(());
    }
    if let Some(url) = url {
        let time = Duration::from_secs(seconds);
        println!("{:.1}", client::load(&client::Plan { url, connections, pipeline, time })?);
        return Ok(());
    }
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    sockopt::set_tcp_nodelay(&listener, true)?;
    println!("http://{}/", listener.local_addr()?);
    std::io::stdout().flush()?;
    serve(&listener, &Responses::new(&response(&body), copies))
}

/// Starts the program repeatedly. Returns the number of runs per second.
fn spawn(program: &str, time: Duration) -> Result<f64, Failure> {
    let (began, mut count) = (Instant::now(), 0_u32);
    let mut output = Vec::new();
    while began.elapsed() < time {
        // The standard library uses posix_spawn, as there is nothing to do between fork and exec.
        let mut command = Command::new(program);
        let mut child = command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        output.clear();
        child.stdout.take().ok_or("the program has no output")?.read_to_end(&mut output)?;
        if !child.wait()?.success() || output.is_empty() {
            return Err(format!("{program} failed").into());
        }
        count += 1;
    }
    Ok(f64::from(count) / began.elapsed().as_secs_f64())
}

fn response(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// The prepared response, in one or more copies.
struct Responses {
    copies: Vec<Vec<u8>>,
    random: Cell<u64>,
    /// Responses to pipelined requests, by the number of requests.
    batches: RefCell<HashMap<usize, Rc<[u8]>>>,
}

impl Responses {
    fn new(response: &[u8], copies: usize) -> Self {
        let copies = vec![response.to_vec(); copies];
        Self { copies, random: Cell::new(0x9e37_79b9_7f4a_7c15), batches: RefCell::default() }
    }

    fn one(&self) -> &[u8] {
        if let [only] = &*self.copies {
            return only;
        }
        // Xorshift. Any of its bits will do.
        let mut random = self.random.get();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.set(random);
        &self.copies[(random >> 16) as usize % self.copies.len()]
    }

    fn batch(&self, requests: usize) -> Rc<[u8]> {
        let mut batches = self.batches.borrow_mut();
        let batch =
            batches.entry(requests).or_insert_with(|| self.copies[0].repeat(requests).into());
        Rc::clone(batch)
    }
}

/// A connection, and the bytes that did not fit into the socket.
struct Connection {
    socket: OwnedFd,
    unsent: Vec<u8>,
    at: usize,
    /// The connection closes after the current response.
    ends: bool,
}

fn serve(listener: &TcpListener, responses: &Responses) -> Result<(), Failure> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let listening = listener.as_raw_fd() as u64;
    epoll::add(&poll, listener, epoll::EventData::new_u64(listening), epoll::EventFlags::IN)?;
    // Indexed by descriptor, which the kernel keeps small.
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut events = [MaybeUninit::uninit(); 256];
    let mut input = vec![0; 64 * 1024];
    loop {
        let ready = match epoll::wait(&poll, &mut events, None) {
            Ok((ready, _)) => ready,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        for event in ready.iter() {
            let key = event.data.u64();
            if key == listening {
                accept(listener, &poll, &mut connections)?;
                continue;
            }
            let Some(slot) = connections.get_mut(key as usize) else { continue };
            let Some(connection) = slot else { continue };
            if !serve_ready(connection, &poll, &mut input, responses)? {
                *slot = None;
            }
        }
    }
}

fn accept(
    listener: &TcpListener,
    poll: &OwnedFd,
    connections: &mut Vec<Option<Connection>>,
) -> Result<(), Failure> {
    loop {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = match acceptfrom_with(listener, flags) {
            Ok((socket, _)) => socket,
            Err(Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let key = socket.as_raw_fd() as usize;
        epoll::add(poll, &socket, epoll::EventData::new_u64(key as u64), epoll::EventFlags::IN)?;
        if connections.len() <= key {
            connections.resize_with(key + 1, || None);
        }
        connections[key] = Some(Connection { socket, unsent: Vec::new(), at: 0, ends: false });
    }
}

/// Reads requests and writes their responses. Returns whether the connection stays open.
fn serve_ready(
    connection: &mut Connection,
    poll: &OwnedFd,
    input: &mut [u8],
    responses: &Responses,
) -> Result<bool, Failure> {
    if connection.at < connection.unsent.len() {
        return flush(connection, poll);
    }
    let count = match rustix::io::read(&connection.socket, &mut *input) {
        Ok(0) | Err(Errno::CONNRESET) => return Ok(false),
        Ok(count) => count,
        Err(Errno::AGAIN) => return Ok(true),
        Err(error) => return Err(error.into()),
    };
    let input = &input[..count];
    let requests = input.windows(4).filter(|end| end == b"\r\n\r\n").count();
    let batch;
    let output = match requests {
        0 => return Ok(true),
        1 => responses.one(),
        _ => {
            batch = responses.batch(requests);
            &*batch
        }
    };
    let sent = match send(&connection.socket, output, SendFlags::NOSIGNAL) {
        Ok(sent) => sent,
        Err(Errno::AGAIN) => 0,
        Err(_) => return Ok(false),
    };
    let last = b"Connection: close";
    connection.ends = requests == 1 && input.windows(last.len()).any(|part| part == last);
    if sent < output.len() {
        connection.unsent = output[sent..].to_vec();
        connection.at = 0;
        let key = epoll::EventData::new_u64(connection.socket.as_raw_fd() as u64);
        epoll::modify(poll, &connection.socket, key, epoll::EventFlags::OUT)?;
        return Ok(true);
    }
    Ok(!connection.ends)
}

fn flush(connection: &mut Connection, poll: &OwnedFd) -> Result<bool, Failure> {
    match send(&connection.socket, &connection.unsent[connection.at..], SendFlags::NOSIGNAL) {
        Ok(sent) => connection.at += sent,
        Err(Errno::AGAIN) => return Ok(true),
        Err(_) => return Ok(false),
    }
    if connection.at == connection.unsent.len() {
        if connection.ends {
            return Ok(false);
        }
        let key = epoll::EventData::new_u64(connection.socket.as_raw_fd() as u64);
        epoll::modify(poll, &connection.socket, key, epoll::EventFlags::IN)?;
    }
    Ok(true)
}
