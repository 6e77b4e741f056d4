//! The endpoint of a worker for one address: datagrams, connections and timers.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

use bytes::BytesMut;
use dunlin_net::clock;
use quinn_proto::{
    ClientConfig, ConnectError, ConnectionHandle, DatagramEvent, EndpointConfig, Incoming,
    ServerConfig, Transmit,
};
use tokio::sync::Notify;

use crate::connection::{Connection, Shared};
use crate::connection_id::{Generator, Place};
use crate::group::Group;
use crate::inbox::{Datagram, Inbox};
use crate::keys::Keys;
use crate::qlog::{Qlog, QlogDirectory};
use crate::socket::{Buffers, Received, Socket, Sockets};
use crate::timers::Timers;

/// What an endpoint does with new connections.
pub trait Accept {
    /// Decides about an attempt to connect.
    fn decide(&self, attempt: &Attempt) -> Decision;

    /// Takes a connection whose handshake has begun.
    fn begin(&self, connection: Connection);

    /// Returns the directory of records of new connections.
    fn records(&self) -> Option<Arc<QlogDirectory>> {
        None
    }
}

/// An attempt to connect.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    /// The address of the client.
    pub remote: SocketAddr,
    /// The client has shown by a token that it receives what is sent to its address.
    pub is_validated: bool,
}

/// The decision about an attempt to connect.
#[derive(Debug)]
pub enum Decision {
    /// Begin the handshake.
    Accept(Arc<ServerConfig>),
    /// Have the client show that it receives what is sent to its address (RFC 9000 §8.1.2). An attempt that is validated is
    /// rejected instead.
    Retry,
    /// Close the connection, so that the client can use another protocol at once.
    Reject,
    /// Send nothing.
    Ignore,
}

/// The endpoint of a worker for one address.
pub struct Endpoint {
    pub(crate) socket: Socket,
    /// Another worker reads the socket.
    is_borrowed: bool,
    /// Further sockets that are read.
    left: Vec<Socket>,
    state: RefCell<quinn_proto::Endpoint>,
    /// By the number of their handle.
    connections: RefCell<Vec<Option<Rc<Shared>>>>,
    open: Cell<usize>,
    timers: Timers,
    /// The tasks that wait for room in the socket.
    waiting: RefCell<Vec<Waker>>,
    /// A task waits for room, or the endpoint is closed.
    pub(crate) changed: Notify,
    is_closed: Cell<bool>,
    buffer: Cell<Vec<u8>>,
    place: Place,
    keys: Keys,
    group: Arc<Group>,
    pub(crate) inbox: Arc<Inbox>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Calls for datagrams after which tasks get their turn.
const ROUNDS: usize = 4;

/// Datagrams in one system call at most, which hold at most 64 KB.
const MAX_SEGMENTS: usize = 40;

impl Endpoint {
    /// Creates the endpoint of a worker. It accepts connections if it has a configuration for them. Has to be called within a
    /// runtime, and [`Endpoint::run`] has to be called in its thread.
    ///
    /// # Errors
    /// When the system has no descriptors, or the socket cannot have the options that QUIC needs.
    pub fn new(
        sockets: impl Into<Sockets>,
        place: Place,
        keys: &Keys,
        server: Option<Arc<ServerConfig>>,
        group: &Arc<Group>,
    ) -> io::Result<Rc<Self>> {
        let Sockets { own, is_borrowed, left } = sockets.into();
        let socket = Socket::new(own)?;
        let left = left.into_iter().map(Socket::new).collect::<io::Result<_>>()?;
        Self::with(socket, (is_borrowed, left), place, keys, server, group)
    }

    pub(crate) fn with(
        socket: Socket,
        (is_borrowed, left): (bool, Vec<Socket>),
        place: Place,
        keys: &Keys,
        server: Option<Arc<ServerConfig>>,
        group: &Arc<Group>,
    ) -> io::Result<Rc<Self>> {
        let mut config = EndpointConfig::new(Arc::new(keys.clone()));
        let factory = Generator::factory(place, keys);
        config.cid_generator(move || factory()).supported_versions(vec![1]);
        let allows_mtu_discovery = !socket.may_fragment();
        let state =
            quinn_proto::Endpoint::new(Arc::new(config), server, allows_mtu_discovery, None);
        Ok(Rc::new(Self {
            socket,
            is_borrowed,
            left,
            state: RefCell::new(state),
            connections: RefCell::default(),
            open: Cell::new(0),
            timers: Timers::new()?,
            waiting: RefCell::default(),
            changed: Notify::new(),
            is_closed: Cell::new(false),
            buffer: Cell::default(),
            place,
            keys: keys.clone(),
            inbox: group.join(place.worker),
            group: Arc::clone(group),
        }))
    }

    /// Returns the address of the socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }

    /// Returns the number of connections, with those that are closing.
    pub fn open(&self) -> usize {
        self.open.get()
    }

    /// Has [`Endpoint::run`] end when all connections have ended. No further connections are accepted.
    pub fn close(&self) {
        self.is_closed.set(true);
        self.changed.notify_one();
    }

    /// Connects to a server.
    ///
    /// # Errors
    /// When the address or the name is none that can be connected to.
    pub fn connect(
        self: &Rc<Self>,
        config: ClientConfig,
        remote: SocketAddr,
        name: &str,
    ) -> Result<Connection, ConnectError> {
        let (handle, state) =
            self.state.borrow_mut().connect(clock::now(), config, remote, name)?;
        Ok(self.add(handle, state, None))
    }

    /// Moves datagrams between the socket and the connections, until the endpoint is closed and has no connections.
    ///
    /// # Errors
    /// When the socket or the timer fails.
    pub async fn run(self: Rc<Self>, acceptor: impl Accept) -> io::Result<()> {
        loop {
            let reads = self.group.reads();
            self.group.set_reading(&self.inbox, reads);
            tokio::select! {
                ready = self.readable(), if reads => {
                    let socket = ready?;
                    let mut buffers = Buffers::take();
                    self.receive(socket, &mut buffers, &acceptor);
                    buffers.give();
                }
                () = self.inbox.arrival() => {
                    let now = clock::now();
                    let waiting = self.inbox.take();
                    let touched = &mut Vec::new();
                    for datagram in waiting {
                        self.process(datagram, now, &acceptor, touched);
                    }
                    self.wake(touched);
                }
                passed = self.timers.passed() => passed?,
                ready = self.socket.writable(), if self.has_waiting() => {
                    ready?;
                    self.waiting.take().into_iter().for_each(Waker::wake);
                }
                () = self.changed.notified() => {}
            }
            self.expire(clock::now());
            if self.is_closed.get() && self.open.get() == 0 {
                return Ok(());
            }
        }
    }

    fn has_waiting(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// Resolves to a socket that may have datagrams.
    async fn readable(&self) -> io::Result<&Socket> {
        poll_fn(|cx| {
            let own = (!self.is_borrowed).then_some(&self.socket);
            for socket in own.into_iter().chain(&self.left) {
                if let Poll::Ready(ready) = socket.poll_readable(cx) {
                    return Poll::Ready(ready.map(|()| socket));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Processes the datagrams that have arrived at a socket.
    fn receive(self: &Rc<Self>, socket: &Socket, buffers: &mut Buffers, acceptor: &impl Accept) {
        let touched = &mut Vec::new();
        for _ in 0..ROUNDS {
            let count = match socket.receive(buffers) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // An ICMP message about a datagram that was sent: the next call has the next datagrams.
                Err(_) => continue,
            };
            let now = clock::now();
            for received in buffers.received(count) {
                if self.belongs_to_predecessor(&received) {
                    continue;
                }
                let mut bytes = BytesMut::from(received.bytes);
                while !bytes.is_empty() {
                    let datagram = Datagram {
                        remote: received.remote,
                        local: received.local,
                        ecn: received.ecn,
                        bytes: bytes.split_to(received.stride.min(bytes.len())),
                    };
                    if !self.pass_on(&datagram) {
                        self.process(datagram, now, acceptor, touched);
                    }
                }
            }
        }
        self.wake(touched);
    }

    /// Forwards datagrams to an older process if all belong to its connections. The kernel joins those of one client only,
    /// so that nearly always all belong to one.
    fn belongs_to_predecessor(&self, received: &Received<'_>) -> bool {
        if !self.group.has_predecessors() {
            return false;
        }
        let Some(place) = self.keys.place_of(received.bytes) else { return false };
        let is_same = |datagram: &[u8]| {
            self.keys.place_of(datagram).is_some_and(|other| other.generation == place.generation)
        };
        place.generation != self.place.generation
            && received.bytes.chunks(received.stride).all(is_same)
            && self.group.forward(place.generation, received)
    }

    /// Passes a datagram to the worker of its connection. Returns `false` if that is this one, or if no other has it.
    fn pass_on(&self, datagram: &Datagram) -> bool {
        let Datagram { remote, local, ecn, bytes } = datagram;
        let Some(place) = self.keys.place_of(bytes) else {
            let worker = self.group.worker_of(*remote);
            let worker = worker.filter(|worker| *worker != self.place.worker);
            return worker.is_some_and(|worker| self.group.pass(worker, datagram));
        };
        if place == self.place {
            return false;
        }
        if place.generation == self.place.generation {
            return self.group.pass(place.worker, datagram);
        }
        let (remote, local, ecn) = (*remote, *local, *ecn);
        let received = Received { remote, local, ecn, bytes, stride: bytes.len().max(1) };
        self.group.forward(place.generation, &received)
    }

    /// Processes a datagram of this worker. Adds its connection to `touched`.
    fn process(
        self: &Rc<Self>,
        datagram: Datagram,
        now: Instant,
        acceptor: &impl Accept,
        touched: &mut Vec<Rc<Shared>>,
    ) {
        let Datagram { remote, local, ecn, bytes } = datagram;
        let length = bytes.len();
        let mut response = self.take_buffer();
        let event = self.state.borrow_mut().handle(now, remote, local, ecn, bytes, &mut response);
        match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(shared) = self.find(handle.0) {
                    if let Some(qlog) = &shared.qlog {
                        qlog.borrow_mut().received(now, length);
                    }
                    shared.state.borrow_mut().handle_event(event);
                    if shared.touch() {
                        touched.push(shared);
                    }
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                self.admit(incoming, now, acceptor, &mut response);
            }
            Some(DatagramEvent::Response(transmit)) => self.respond(&transmit, &response),
            None => {}
        }
        self.give_buffer(response);
    }

    /// Decides about a new connection.
    fn admit(
        self: &Rc<Self>,
        incoming: Incoming,
        now: Instant,
        acceptor: &impl Accept,
        response: &mut Vec<u8>,
    ) {
        let attempt = Attempt {
            remote: incoming.remote_address(),
            is_validated: incoming.remote_address_validated(),
        };
        let decision = match self.is_closed.get() {
            true => Decision::Reject,
            false => acceptor.decide(&attempt),
        };
        let mut state = self.state.borrow_mut();
        response.clear();
        let transmit = match decision {
            Decision::Accept(config) => match state.accept(incoming, now, response, Some(config)) {
                Ok((handle, connection)) => {
                    drop(state);
                    let qlog = acceptor.records().and_then(|all| all.begin(attempt.remote));
                    return acceptor.begin(self.add(handle, connection, qlog));
                }
                Err(error) => {
                    tracing::debug!(remote = %attempt.remote, "QUIC handshake: {}", error.cause);
                    error.response
                }
            },
            Decision::Retry if incoming.may_retry() => state.retry(incoming, response).ok(),
            Decision::Retry | Decision::Reject => Some(state.refuse(incoming, response)),
            Decision::Ignore => {
                state.ignore(incoming);
                None
            }
        };
        drop(state);
        if let Some(transmit) = transmit {
            self.respond(&transmit, response);
        }
    }

    /// Sends a datagram that belongs to no connection. It is lost if the socket has no room for it.
    fn respond(&self, transmit: &Transmit, bytes: &[u8]) {
        if let Err(error) = self.send(transmit, &bytes[..transmit.size.min(bytes.len())]) {
            tracing::trace!(remote = %transmit.destination, "QUIC: a datagram was not sent: {error}");
        }
    }

    fn add(
        self: &Rc<Self>,
        handle: ConnectionHandle,
        state: quinn_proto::Connection,
        qlog: Option<Box<Qlog>>,
    ) -> Connection {
        let shared = Shared::new(handle, state, qlog);
        let mut connections = self.connections.borrow_mut();
        if connections.len() <= handle.0 {
            connections.resize(handle.0 + 1, None);
        }
        connections[handle.0] = Some(Rc::clone(&shared));
        self.open.set(self.open.get() + 1);
        Connection::new(Rc::clone(self), shared)
    }

    fn find(&self, number: usize) -> Option<Rc<Shared>> {
        self.connections.borrow().get(number)?.clone()
    }

    /// Wakes the tasks of connections, or does the work of tasks that have ended.
    fn wake(&self, touched: &mut Vec<Rc<Shared>>) {
        for shared in touched.drain(..) {
            shared.wake();
            if shared.is_orphan.get() {
                shared.flush(self, clock::now());
            }
        }
    }

    /// Handles the deadlines that have passed.
    fn expire(&self, now: Instant) {
        while let Some((at, number)) = self.timers.take(now) {
            let Some(shared) = self.find(number) else { continue };
            if shared.scheduled.get() != Some(at) {
                continue;
            }
            shared.scheduled.set(None);
            if shared.deadline.get().is_none_or(|deadline| deadline > now) {
                self.schedule(&shared);
                continue;
            }
            shared.state.borrow_mut().handle_timeout(now);
            self.wake(&mut vec![shared]);
        }
        self.timers.rearm();
    }

    /// Adds an entry for the deadline of a connection, unless there is an earlier one.
    pub(crate) fn schedule(&self, shared: &Shared) {
        if let Some(deadline) = shared.deadline.get()
            && shared.scheduled.get().is_none_or(|scheduled| deadline < scheduled)
        {
            shared.scheduled.set(Some(deadline));
            self.timers.add(deadline, shared.handle.0);
        }
    }

    /// Passes the events of a connection to the state of the endpoint. Returns `true` if that has changed the connection.
    pub(crate) fn pass_events(
        &self,
        handle: ConnectionHandle,
        connection: &mut quinn_proto::Connection,
    ) -> bool {
        let mut has_changed = false;
        while let Some(event) = connection.poll_endpoint_events() {
            let is_drained = event.is_drained();
            if let Some(event) = self.state.borrow_mut().handle_event(handle, event) {
                connection.handle_event(event);
                has_changed = true;
            }
            if is_drained
                && let Some(entry) = self.connections.borrow_mut().get_mut(handle.0)
                && entry.take().is_some()
            {
                self.open.set(self.open.get() - 1);
                if self.is_closed.get() {
                    self.changed.notify_one();
                }
            }
        }
        has_changed
    }

    pub(crate) fn send(&self, transmit: &Transmit, contents: &[u8]) -> io::Result<()> {
        self.socket.send(transmit, contents)
    }

    /// Wakes `waker` when the socket has room.
    pub(crate) fn wait_for_room(&self, waker: &Waker) {
        self.waiting.borrow_mut().push(waker.clone());
        self.changed.notify_one();
    }

    pub(crate) fn max_segments(&self) -> usize {
        self.socket.max_segments().clamp(1, MAX_SEGMENTS)
    }

    /// Takes the buffer for datagrams. It is empty.
    pub(crate) fn take_buffer(&self) -> Vec<u8> {
        let mut buffer = self.buffer.take();
        buffer.clear();
        buffer
    }

    pub(crate) fn give_buffer(&self, buffer: Vec<u8>) {
        self.buffer.set(buffer);
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.group.leave(&self.inbox);
    }
}
