//! A connection: the choice of its protocol, and its end.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use dunlin_memory::Reservation;
use dunlin_net::connections::Waiting;
use dunlin_tls::Transport;
use tokio::io::ReadBuf;

use super::{ConnectionEnd, Start, http1, http2};
use crate::exchange::link::{Accepted, Link};
use crate::worker::WorkerContext;

/// A connection with its protocol.
pub(crate) struct Connection {
    protocol: Protocol,
    is_registered: bool,
    /// The memory that the connection holds while its task waits.
    held: Reservation,
}

#[expect(
    clippy::large_enum_variant,
    reason = "most connections use HTTP/1, and need no second allocation"
)]
enum Protocol {
    Http1(http1::Http1Driver),
    Http2(Box<http2::Http2Driver>),
    Linger(Box<Lingering>),
    /// The connection has ended.
    Over,
}

/// A connection whose last response was sent and whose sending side is closed. Bytes that still arrive are discarded, so
/// that no reset overtakes the response.
struct Lingering {
    link: Link,
    stream: Transport,
    /// The number of bytes that are discarded at most.
    left: usize,
}

const LINGER_BYTES: usize = 1 << 20;
const LINGER_MILLIS: u64 = 2_000;

impl Connection {
    pub(crate) fn new(
        ctx: Rc<WorkerContext>,
        stream: Transport,
        accepted: Accepted,
        start: Start,
    ) -> Self {
        let (link, arrived) = Link::new(ctx, &stream, accepted);
        link.wait(Waiting::First, link.now() + link.ctx.http1.idle_timeout);
        let protocol = match start {
            Start::Http2 => Protocol::http2(link, stream, arrived),
            _ => Protocol::Http1(http1::Http1Driver::new(link, stream, arrived, start)),
        };
        Self { protocol, is_registered: false, held: Reservation::new() }
    }

    /// Continues after the end of a protocol. Returns `true` if the connection goes on.
    fn follow(&mut self, end: ConnectionEnd) -> bool {
        let protocol = std::mem::replace(&mut self.protocol, Protocol::Over);
        let Some((link, mut stream)) = protocol.into_parts() else { return false };
        match end {
            ConnectionEnd::Closed => {}
            ConnectionEnd::Abort => stream.break_off(),
            ConnectionEnd::Http2(unread) => self.protocol = Protocol::http2(link, stream, unread),
            ConnectionEnd::Linger => {
                if stream.shut_down().is_ok() {
                    self.protocol = Protocol::Linger(Box::new(Lingering::begin(link, stream)));
                }
            }
        }
        !matches!(self.protocol, Protocol::Over)
    }
}

impl Protocol {
    fn http2(link: Link, stream: Transport, unread: Vec<u8>) -> Self {
        Self::Http2(Box::new(http2::Http2Driver::new(link, stream, unread)))
    }

    fn link(&self) -> Option<&Link> {
        match self {
            Self::Http1(connection) => Some(connection.link()),
            Self::Http2(connection) => Some(connection.link()),
            Self::Linger(lingering) => Some(&lingering.link),
            Self::Over => None,
        }
    }

    fn into_parts(self) -> Option<(Link, Transport)> {
        match self {
            Self::Http1(connection) => Some(connection.into_parts()),
            Self::Http2(connection) => Some(connection.into_parts()),
            Self::Linger(lingering) => Some((lingering.link, lingering.stream)),
            Self::Over => None,
        }
    }

    /// Returns the bytes of all buffers of the connection.
    fn held(&self) -> usize {
        match self {
            Self::Http1(connection) => connection.held(),
            Self::Http2(connection) => connection.held(),
            Self::Linger(lingering) => lingering.stream.held(),
            Self::Over => 0,
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        match self {
            Self::Http1(connection) => connection.poll(cx),
            Self::Http2(connection) => connection.poll(cx),
            Self::Linger(lingering) => lingering.poll(cx),
            Self::Over => Poll::Ready(ConnectionEnd::Closed),
        }
    }
}

impl Lingering {
    fn begin(link: Link, stream: Transport) -> Self {
        link.wait(Waiting::Linger, link.now() + LINGER_MILLIS);
        Self { link, stream, left: LINGER_BYTES }
    }

    /// Discards what arrives. Completes when the client closes the connection, or has had its time.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        let Self { link, stream, left } = self;
        let mut buffers = link.ctx.take_buffers();
        let result = loop {
            let mut read = ReadBuf::new(&mut buffers.input);
            match stream.poll_read(cx, &mut read) {
                Poll::Pending => {
                    let (_, expired) = link.ctx.connections.state(link.slot, link.ctx.clock.now());
                    break if expired { Poll::Ready(ConnectionEnd::Closed) } else { Poll::Pending };
                }
                Poll::Ready(Ok(())) if (1..*left).contains(&read.filled().len()) => {
                    *left -= read.filled().len();
                }
                Poll::Ready(_) => break Poll::Ready(ConnectionEnd::Closed),
            }
        };
        link.ctx.give_buffers(buffers);
        result
    }
}

impl Future for Connection {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        #[cfg(test)]
        crate::testing::polls::count_poll();
        let this = self.get_mut();
        if !std::mem::replace(&mut this.is_registered, true)
            && let Some(link) = this.protocol.link()
        {
            link.ctx.connections.set_waker(link.slot, cx);
        }
        loop {
            match this.protocol.poll(cx) {
                Poll::Pending => {
                    this.held.set(this.protocol.held());
                    return Poll::Pending;
                }
                Poll::Ready(end) => {
                    if !this.follow(end) {
                        return Poll::Ready(());
                    }
                }
            }
        }
    }
}
