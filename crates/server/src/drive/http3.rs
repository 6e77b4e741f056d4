//! The adapter of HTTP/3.
//!
//! Each poll passes what has arrived on the streams of QUIC to the engine, responds, and sends all datagrams together. The exchanges
//! are those of a [`Multiplexer`].

mod carrier;
mod deadline;
mod input;
mod sending;

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use dunlin_http::http3::{self, Http3ErrorCode, Http3Settings};
use dunlin_memory::Reservation;
use dunlin_net::connections::Waiting;
use dunlin_quic::{Flushed, VarInt};

pub(crate) use self::carrier::QuicCarrier;
use self::input::Arrived;
use self::sending::QuicSending;
use crate::exchange::link::{Accepted, Link};
use crate::exchange::multiplex::{Multiplexer, Protocol};
use crate::listen::quic::HandshakeInProgress;
use crate::worker::{Buffers, WorkerContext};

/// An HTTP/3 connection.
pub(crate) struct Http3Driver {
    exchanges: Multiplexer<QuicSending>,
    arrived: Arrived,
    is_registered: bool,
    /// The client may have [`STREAMS`] requests at a time.
    has_all_streams: bool,
    /// When the head of a request began to arrive that is not complete.
    incomplete_since: Option<u64>,
    /// The handshake of a client that sends early data, and when it has to be complete.
    handshake: Option<(HandshakeInProgress, u64)>,
    /// Time of the next timeout.
    deadline: u64,
    /// Why the connection is closed, once it is.
    closing: Option<(Http3ErrorCode, &'static str)>,
    /// The peer has closed the connection, or it is lost.
    is_lost: bool,
    /// The memory that the connection holds while its task waits.
    held: Reservation,
}

/// The result of one turn.
enum Turn {
    Moved(bool),
    Over,
}

/// After this number of turns other connections get theirs.
const TURNS: usize = 16;

/// Requests of a client at a time.
const STREAMS: u32 = 128;
/// Requests of a client at a time until it has had half as many: QUIC keeps memory for each stream that the client may open.
pub(crate) const FIRST_STREAMS: u32 = 16;

impl Http3Driver {
    /// Creates the adapter of a connection. `handshake` is that of a client that sends early data.
    pub(crate) fn new(
        ctx: Rc<WorkerContext>,
        carrier: QuicCarrier,
        accepted: Accepted,
        handshake: Option<HandshakeInProgress>,
    ) -> Self {
        let (link, _) = Link::new(ctx, &carrier, accepted);
        link.wait(Waiting::First, link.now() + link.ctx.http1.idle_timeout);
        let settings = Http3Settings { limits: link.ctx.http1.limits, streams: STREAMS };
        let now = link.now();
        let handshake = handshake.map(|handshake| (handshake, now + link.ctx.http1.head_timeout));
        let engine = http3::Http3Connection::new(settings);
        Self {
            exchanges: Multiplexer::new(link, QuicSending::new(engine, carrier)),
            arrived: Arrived::default(),
            is_registered: false,
            has_all_streams: false,
            incomplete_since: None,
            handshake,
            deadline: now,
            closing: None,
            is_lost: false,
            held: Reservation::new(),
        }
    }

    fn link(&self) -> &Link {
        &self.exchanges.link
    }

    /// Receives, responds and sends, until there is nothing to do. Returns `true` if there may be more.
    fn run(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.exchanges.link.take_newer_configuration();
        for _ in 0..TURNS {
            // Handlers may take the worker's buffers themselves.
            let mut moved = self.exchanges.poll(self.exchanges.protocol.is_full(), cx);
            let mut taken = self.exchanges.take_buffers();
            let turn = self.turn(&mut taken.buffers);
            self.exchanges.give_buffers(taken);
            match turn {
                Turn::Over => return Poll::Ready(()),
                Turn::Moved(more) => moved |= more,
            }
            moved |= self.exchanges.release(self.exchanges.protocol.is_full());
            if !moved && !self.exchanges.has_due() {
                self.set_deadline();
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn turn(&mut self, buffers: &mut Buffers) -> Turn {
        let now = self.exchanges.link.now();
        self.exchanges.protocol.begin_turn(now);
        let out = &mut buffers.output.bytes;
        let is_evicted = self.link().ctx.connections.is_evicted(self.link().slot);
        if now >= self.deadline || is_evicted {
            self.expire(is_evicted, out);
        }
        if self.exchanges.link.ctx.is_draining() {
            self.exchanges.protocol.drain(now, out);
        }
        let mut moved = self.receive_events(out);
        if self.is_lost {
            return Turn::Over;
        }
        if self.closing.is_none() {
            moved |= self.exchanges.settle_streams(&mut buffers.output.bytes);
            moved |= self.receive(buffers);
            moved |= self.exchanges.pump(&mut buffers.output.bytes);
        }
        let out = &mut buffers.output.bytes;
        self.exchanges.protocol.end_turn(out);
        if self.exchanges.protocol.is_flushed() {
            self.exchanges.record_sent();
        }
        if moved {
            self.exchanges.active = now;
        }
        if self.exchanges.is_lost && self.closing.is_none() {
            self.closing = Some((Http3ErrorCode::InternalError, "the client is not known"));
        }
        if self.exchanges.is_empty() && self.exchanges.protocol.is_complete() {
            self.closing.get_or_insert((Http3ErrorCode::NoError, "closed"));
        }
        if self.closing.is_some() { Turn::Over } else { Turn::Moved(moved) }
    }

    /// Ends the connection: records what was not sent, and closes the transport.
    fn end(&mut self) {
        let sent = self.exchanges.protocol.accepted();
        self.exchanges.record_rest(sent);
        let connection = &self.exchanges.protocol.carrier.connection;
        if let (Some((code, reason)), false) = (self.closing, self.is_lost) {
            let code = VarInt::try_from(code.value()).unwrap_or_default();
            connection.close(code, reason);
        }
        connection.flush();
    }

    /// Returns the bytes that the connection holds. Those of bodies are counted where they are.
    fn held(&self) -> usize {
        self.arrived.held() + self.exchanges.protocol.held()
    }
}

impl Future for Http3Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        #[cfg(test)]
        crate::testing::polls::count_poll();
        let this = self.get_mut();
        if !std::mem::replace(&mut this.is_registered, true) {
            let link = this.link();
            link.ctx.connections.set_waker(link.slot, cx);
        }
        this.exchanges.protocol.carrier.connection.register(cx);
        if this.run(cx).is_ready() {
            this.end();
            return Poll::Ready(());
        }
        if this.exchanges.protocol.carrier.connection.flush() == Flushed::More {
            cx.waker().wake_by_ref();
        }
        this.held.set(this.held());
        Poll::Pending
    }
}
