//! A bare epoll responder: what a request costs when next to nothing is done for it.
//!
//! One thread, one buffer, one prepared answer. It is the yardstick for processor time: whatever a
//! server takes beyond it is the server's own.
//!
//! With `--copies` it answers from so many copies of the body, chosen at random: what the processor's
//! caches make of that is nobody's fault.
//!
//! `floor [--listen ADDR] [--size BYTES | --file PATH] [--copies COUNT]`
//!
//! `floor --spawn PROGRAM [--seconds N]` is the yardstick for scripts that are started for each request: a
//! loop that starts the program by `posix_spawn`, reads what it writes and waits for its end. It prints how
//! often that could be done in a second.
//!
//! `floor --load URL [--connections N] [--pipeline N] [--seconds N]` is the yardstick for a load generator: a client that
//! only counts the bytes of the answers. It prints how many requests were answered in a second.

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
        let value = arguments.next().ok_or("an option without its value")?;
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
            _ => return Err(format!("there is no option {name}").into()),
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
    serve(&listener, &Answers::new(&answer(&body), copies))
}

/// Starts the program over and over, and says how often in a second.
fn spawn(program: &str, time: Duration) -> Result<f64, Failure> {
    let (began, mut count) = (Instant::now(), 0_u32);
    let mut output = Vec::new();
    while began.elapsed() < time {
        // Without anything to be done between fork and exec, the standard library uses posix_spawn.
        let mut command = Command::new(program);
        let mut child = command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        output.clear();
        child.stdout.take().ok_or("no output")?.read_to_end(&mut output)?;
        if !child.wait()?.success() || output.is_empty() {
            return Err(format!("{program} fails").into());
        }
        count += 1;
    }
    Ok(f64::from(count) / began.elapsed().as_secs_f64())
}

fn answer(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// The prepared answer, in as many copies as were asked for.
struct Answers {
    copies: Vec<Vec<u8>>,
    random: Cell<u64>,
    /// For pipelined requests, by their number.
    batches: RefCell<HashMap<usize, Rc<[u8]>>>,
}

impl Answers {
    fn new(answer: &[u8], copies: usize) -> Self {
        let copies = vec![answer.to_vec(); copies];
        Self { copies, random: Cell::new(0x9e37_79b9_7f4a_7c15), batches: RefCell::default() }
    }

    fn one(&self) -> &[u8] {
        if let [only] = &*self.copies {
            return only;
        }
        // Xorshift, of which any bits will do.
        let mut random = self.random.get();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.set(random);
        &self.copies[(random >> 16) as usize % self.copies.len()]
    }

    fn batch(&self, requests: usize) -> Rc<[u8]> {
        let mut batches = self.batches.borrow_mut();
        let made =
            batches.entry(requests).or_insert_with(|| self.copies[0].repeat(requests).into());
        Rc::clone(made)
    }
}

/// A connection, with what the socket had no room for.
struct Connection {
    socket: OwnedFd,
    unsent: Vec<u8>,
    at: usize,
    /// The client wants no more answers than this one.
    ends: bool,
}

fn serve(listener: &TcpListener, answers: &Answers) -> Result<(), Failure> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let listening = listener.as_raw_fd() as u64;
    epoll::add(&poll, listener, epoll::EventData::new_u64(listening), epoll::EventFlags::IN)?;
    // By descriptor, which the kernel keeps small: an index would do, a map costs little more.
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
            if !turn(connection, &poll, &mut input, answers)? {
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

/// Reads, answers what was asked, and says whether the connection goes on.
fn turn(
    connection: &mut Connection,
    poll: &OwnedFd,
    input: &mut [u8],
    answers: &Answers,
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
        1 => answers.one(),
        _ => {
            batch = answers.batch(requests);
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
