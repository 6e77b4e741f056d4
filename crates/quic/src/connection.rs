//! A connection, as the task of its protocol adapter holds it.

use std::cell::{Cell, RefCell, RefMut};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use dunlin_net::clock;
use quinn_proto::{ConnectionError, ConnectionHandle, Event, Transmit, VarInt};

use crate::congestion;
use crate::crypto::HandshakeSummary;
use crate::endpoint::Endpoint;
use crate::qlog::Qlog;

/// A connection of an [`Endpoint`].
pub struct Connection {
    endpoint: Rc<Endpoint>,
    shared: Rc<Shared>,
}

/// The state of a connection, which its task and the endpoint share.
pub(crate) struct Shared {
    pub(crate) handle: ConnectionHandle,
    pub(crate) state: RefCell<quinn_proto::Connection>,
    waker: RefCell<Waker>,
    /// The task is woken after the datagrams that have arrived together.
    is_touched: Cell<bool>,
    /// The task has ended: the endpoint completes the closing.
    pub(crate) is_orphan: Cell<bool>,
    /// The next deadline.
    pub(crate) deadline: Cell<Option<Instant>>,
    /// The time of the entry in the endpoint's timers.
    pub(crate) scheduled: Cell<Option<Instant>>,
    /// Datagrams that the socket has not taken.
    unsent: RefCell<Option<(Transmit, Box<[u8]>)>>,
    /// The record of the connection, if there is one.
    pub(crate) qlog: Option<RefCell<Box<Qlog>>>,
}

/// The result of [`Connection::flush`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flushed {
    /// Everything that may be sent now was sent.
    All,
    /// There is more to send. The task lets others run first.
    More,
    /// The socket takes nothing. The task is woken when it does.
    Blocked,
}

/// System calls for datagrams after which other connections get their turn.
const BURST: usize = 8;

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("handle", &self.shared.handle).finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(
        handle: ConnectionHandle,
        state: quinn_proto::Connection,
        qlog: Option<Box<Qlog>>,
    ) -> Rc<Self> {
        Rc::new(Self {
            handle,
            state: RefCell::new(state),
            waker: RefCell::new(Waker::noop().clone()),
            is_touched: Cell::new(false),
            is_orphan: Cell::new(false),
            deadline: Cell::new(None),
            scheduled: Cell::new(None),
            unsent: RefCell::default(),
            qlog: qlog.map(RefCell::new),
        })
    }

    /// Returns `true` the first time after [`Shared::wake`].
    pub(crate) fn touch(&self) -> bool {
        !self.is_touched.replace(true)
    }

    pub(crate) fn wake(&self) {
        self.is_touched.set(false);
        self.waker.borrow().wake_by_ref();
    }

    /// Sends what the connection has, and passes its events to the endpoint.
    pub(crate) fn flush(&self, endpoint: &Endpoint, now: Instant) -> Flushed {
        let mut state = self.state.borrow_mut();
        endpoint.pass_events(self.handle, &mut state);
        if state.is_closed() && !state.is_drained() {
            congestion::lift(&state);
        }
        let mut flushed = self.send(endpoint, &mut state, now);
        // An event may have given the connection new IDs, which it announces to the peer.
        if endpoint.pass_events(self.handle, &mut state) && flushed == Flushed::All {
            flushed = self.send(endpoint, &mut state, now);
        }
        if let Some(qlog) = &self.qlog {
            qlog.borrow_mut().update(now, &state);
        }
        self.deadline.set(state.poll_timeout());
        endpoint.schedule(self);
        flushed
    }

    fn send(
        &self,
        endpoint: &Endpoint,
        state: &mut quinn_proto::Connection,
        now: Instant,
    ) -> Flushed {
        if let Some((transmit, bytes)) = self.unsent.take()
            && self.is_blocked(endpoint, transmit, &bytes)
        {
            return Flushed::Blocked;
        }
        let mut buffer = endpoint.take_buffer();
        let mut flushed = Flushed::More;
        for _ in 0..BURST {
            buffer.clear();
            match state.poll_transmit(now, endpoint.max_segments(), &mut buffer) {
                None => {
                    flushed = Flushed::All;
                    break;
                }
                Some(transmit) => {
                    let size = transmit.size.min(buffer.len());
                    if self.is_blocked(endpoint, transmit, &buffer[..size]) {
                        flushed = Flushed::Blocked;
                        break;
                    }
                }
            }
        }
        endpoint.give_buffer(buffer);
        flushed
    }

    /// Sends datagrams. Keeps them, and returns `true`, if the socket does not take them.
    fn is_blocked(&self, endpoint: &Endpoint, transmit: Transmit, bytes: &[u8]) -> bool {
        let result = endpoint.send(&transmit, bytes);
        if let (Some(qlog), Ok(())) = (&self.qlog, &result) {
            qlog.borrow_mut().sent(clock::now(), bytes.len(), transmit.segment_size);
        }
        // Other errors are those of one path: the datagrams are lost, and repeated like all that are.
        let is_blocked = matches!(&result, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        if is_blocked {
            self.unsent.replace(Some((transmit, bytes.into())));
            endpoint.wait_for_room(&self.waker.borrow());
        }
        is_blocked
    }

    /// Returns the bytes that wait for the socket.
    fn unsent(&self) -> usize {
        self.unsent.borrow().as_ref().map_or(0, |(_, bytes)| bytes.len())
    }
}

impl Connection {
    pub(crate) fn new(endpoint: Rc<Endpoint>, shared: Rc<Shared>) -> Self {
        Self { endpoint, shared }
    }

    /// Has the task be woken when datagrams of the connection have arrived, a deadline has passed, or the socket has room.
    pub fn register(&self, cx: &Context<'_>) {
        self.shared.waker.borrow_mut().clone_from(cx.waker());
    }

    /// Resolves when the handshake is complete. Later events are left for the caller.
    ///
    /// # Errors
    /// Why the connection was lost.
    pub async fn connected(&self) -> Result<(), ConnectionError> {
        self.handshake_event(|_| false).await
    }

    /// Resolves when the client's requests can be read: when the handshake is complete, or before that if the client resumes
    /// a session and sends early data; see [`Connection::is_early`]. [`Event::Connected`] follows in that case.
    ///
    /// # Errors
    /// Why the connection was lost.
    pub async fn readable(&self) -> Result<(), ConnectionError> {
        self.handshake_event(quinn_proto::Connection::has_0rtt).await
    }

    async fn handshake_event(
        &self,
        is_enough: impl Fn(&quinn_proto::Connection) -> bool,
    ) -> Result<(), ConnectionError> {
        poll_fn(|cx| {
            self.register(cx);
            let mut state = self.state();
            let result = loop {
                match state.poll() {
                    Some(Event::Connected) => break Poll::Ready(Ok(())),
                    Some(Event::HandshakeDataReady) if is_enough(&state) => {
                        break Poll::Ready(Ok(()));
                    }
                    Some(Event::ConnectionLost { reason }) => break Poll::Ready(Err(reason)),
                    Some(_) => {}
                    None => break Poll::Pending,
                }
            };
            drop(state);
            if self.flush() == Flushed::More {
                cx.waker().wake_by_ref();
            }
            result
        })
        .await
    }

    /// Returns the state of the connection. It must not be kept while others run.
    pub fn state(&self) -> RefMut<'_, quinn_proto::Connection> {
        self.shared.state.borrow_mut()
    }

    /// Sends what the connection has to send.
    pub fn flush(&self) -> Flushed {
        self.shared.flush(&self.endpoint, clock::now())
    }

    /// Returns the address of the peer, which may change.
    pub fn remote(&self) -> SocketAddr {
        self.state().remote_address()
    }

    /// Returns the own address.
    pub fn local(&self) -> Option<SocketAddr> {
        let bound = self.endpoint.local_addr()?;
        let ip: IpAddr = self.state().local_ip().unwrap_or(bound.ip());
        Some(SocketAddr::new(ip, bound.port()))
    }

    /// Returns `true` while the handshake is not complete: what arrives is early data, which an attacker may replay.
    pub fn is_early(&self) -> bool {
        self.state().is_handshaking()
    }

    /// Returns what the handshake of a server has negotiated; `None` before the ClientHello.
    pub fn handshake(&self) -> Option<HandshakeSummary> {
        let data = self.state().crypto_session().handshake_data()?;
        data.downcast().ok().map(|summary| *summary)
    }

    /// Closes the connection with a code of the application (RFC 9000 §10.2).
    pub fn close(&self, code: VarInt, reason: &str) {
        let reason = Bytes::copy_from_slice(reason.as_bytes());
        self.state().close(clock::now(), code, reason);
    }

    /// Returns the bytes that wait for the socket.
    pub fn held(&self) -> usize {
        self.shared.unsent()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.is_orphan.set(true);
        *self.shared.waker.borrow_mut() = Waker::noop().clone();
        if !self.shared.state.borrow().is_drained() {
            self.close(VarInt::from_u32(0), "");
            self.flush();
        }
    }
}
