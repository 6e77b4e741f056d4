//! The task of a connection: it wakes the users whose streams have something, and sends what all of them have written together.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use dunlin_http::http3::client::{Http3ClientConnection, Http3ClientEvent};
use dunlin_http::http3::{Http3Error, Http3ErrorCode, OwnStream};
use dunlin_quic::proto::Event;
use dunlin_quic::{Connection, Dir, Flushed, ReadEnd, StreamEvent, StreamId, VarInt};
use hashbrown::HashMap;

use crate::engine::recorder::{ConnectionRecord, SharedRecorder};
use crate::engine::streams::Seen;
use crate::outcome::{ErrorKind, Quic};

/// The state of a connection, which its task and its users share.
pub(super) struct State {
    pub(super) connection: Connection,
    pub(super) engine: Http3ClientConnection,
    own: [Option<StreamId>; OwnStream::ALL.len()],
    /// The users by their stream.
    users: HashMap<u64, Waker>,
    /// Users that wait until the server permits another stream.
    waiting: Vec<Waker>,
    /// Unidirectional streams of the server that may be readable.
    control: Vec<StreamId>,
    task: Waker,
    /// Why the connection has ended.
    pub(super) end: Option<(ErrorKind, String)>,
    /// The server serves no further requests.
    pub(super) is_draining: bool,
    /// Streams of requests that the server has not processed.
    pub(super) unprocessed: Vec<u64>,
    /// The record of a connection whose handshake is not complete: its requests are early data.
    early: Option<ConnectionRecord>,
    /// The server has rejected the early data: all streams have to be opened again.
    pub(super) has_rejected: bool,
    has_accepted: bool,
    recorder: SharedRecorder,
    seen: Rc<Seen>,
    received: u64,
    /// A buffer for bytes to send.
    pub(super) out: Vec<u8>,
}

impl State {
    pub(super) fn new(
        connection: Connection,
        recorder: SharedRecorder,
        seen: Rc<Seen>,
        early: Option<ConnectionRecord>,
    ) -> Self {
        Self {
            connection,
            engine: Http3ClientConnection::new(),
            own: [None; OwnStream::ALL.len()],
            users: HashMap::new(),
            waiting: Vec::new(),
            control: Vec::new(),
            task: Waker::noop().clone(),
            end: None,
            is_draining: false,
            unprocessed: Vec::new(),
            early,
            has_rejected: false,
            has_accepted: false,
            recorder,
            seen,
            received: 0,
            out: Vec::new(),
        }
    }

    /// Has the user of a stream be woken when the stream has something.
    pub(super) fn watch(&mut self, id: u64, cx: &Context<'_>) {
        self.users.entry(id).or_insert_with(|| cx.waker().clone()).clone_from(cx.waker());
    }

    /// Ends the watch of a stream.
    pub(super) fn forget(&mut self, id: u64) {
        self.users.remove(&id);
    }

    /// Opens a stream; `None` if the server permits none now, and the user is woken when it does.
    pub(super) fn open(&mut self, cx: &Context<'_>) -> Option<StreamId> {
        let id = self.connection.state().streams().open(Dir::Bi);
        if id.is_none() {
            self.waiting.push(cx.waker().clone());
        }
        id
    }

    /// Has the task send what was written.
    pub(super) fn wake_task(&self) {
        self.task.wake_by_ref();
    }

    /// Ends the connection because of an error of the server.
    pub(super) fn fail(&mut self, error: Http3Error) {
        let code = VarInt::from_u64(error.code.value()).unwrap_or_default();
        self.connection.close(code, error.reason);
        self.finish(ErrorKind::Protocol, format!("{}: {}", error.code, error.reason));
    }

    /// Ends the connection: its users are not needed any more.
    pub(super) fn abandon(&mut self) {
        self.record();
        let code = VarInt::from_u64(Http3ErrorCode::NoError.value()).unwrap_or_default();
        self.connection.close(code, "");
        self.finish(ErrorKind::Closed, "the connection was closed".to_owned());
        self.wake_task();
    }

    /// Records the figures of the transport.
    fn record(&mut self) {
        let (stats, rtt) = {
            let state = self.connection.state();
            (state.stats(), state.rtt())
        };
        self.recorder.now().quic(&Quic {
            packets_sent: stats.path.sent_packets,
            packets_lost: stats.path.lost_packets,
            datagrams_received: stats.udp_rx.datagrams,
            rtt_ms: rtt.as_secs_f64() * 1e3,
            connections: 1,
            early_accepted: self.has_accepted.into(),
            early_rejected: self.has_rejected.into(),
        });
    }

    /// The handshake of a connection that has sent early data is complete.
    fn complete_handshake(&mut self) {
        let Some(record) = self.early.take() else { return };
        self.has_accepted = self.connection.state().accepted_0rtt();
        self.has_rejected = !self.has_accepted;
        self.recorder.now().handshake(&record, true);
        if self.has_rejected {
            // Its streams are no more. The requests are sent again on another connection.
            let code = VarInt::from_u64(Http3ErrorCode::NoError.value()).unwrap_or_default();
            self.connection.close(code, "the early data was rejected");
            self.finish(ErrorKind::Closed, "the server rejected the early data".to_owned());
        }
    }

    fn finish(&mut self, kind: ErrorKind, reason: String) {
        self.end.get_or_insert((kind, reason));
        self.wake_users();
    }

    fn wake_users(&mut self) {
        self.users.values().for_each(Waker::wake_by_ref);
        self.waiting.drain(..).for_each(Waker::wake);
    }

    fn wake(&self, id: u64) {
        if let Some(user) = self.users.get(&id) {
            user.wake_by_ref();
        }
    }

    /// Wakes the users of streams that waited for entries of the QPACK table.
    pub(super) fn wake_unblocked(&mut self) {
        while let Some(id) = self.engine.next_unblocked() {
            self.wake(id);
        }
    }

    /// Handles what QUIC reports.
    fn receive_events(&mut self) {
        self.count_received();
        loop {
            let event = self.connection.state().poll();
            match event {
                None => return,
                Some(Event::Stream(StreamEvent::Opened { dir: Dir::Uni })) => {
                    while let Some(id) = self.accept() {
                        self.control.push(id);
                    }
                }
                Some(Event::Stream(StreamEvent::Readable { id })) => match id.dir() {
                    Dir::Uni => self.control.push(id),
                    Dir::Bi => self.wake(id.into()),
                },
                Some(Event::Stream(
                    StreamEvent::Writable { id } | StreamEvent::Stopped { id, .. },
                )) => self.wake(id.into()),
                Some(Event::Stream(StreamEvent::Available { dir: Dir::Bi })) => {
                    self.waiting.drain(..).for_each(Waker::wake);
                }
                Some(Event::Connected) => self.complete_handshake(),
                Some(Event::ConnectionLost { reason }) => {
                    self.seen.ended.set(true);
                    // The last GOAWAY may have arrived with the end: it names the requests that were not served.
                    self.receive_control();
                    self.finish(ErrorKind::Closed, format!("the connection ended: {reason}"));
                }
                Some(_) => {}
            }
        }
    }

    fn accept(&self) -> Option<StreamId> {
        self.connection.state().streams().accept(Dir::Uni)
    }

    /// Counts the bytes of datagrams.
    fn count_received(&mut self) {
        let total = self.connection.state().stats().udp_rx.bytes;
        let count = total - std::mem::replace(&mut self.received, total);
        if count > 0 {
            let mut recorder = self.recorder.now();
            self.seen.last.set(recorder.now);
            recorder.receive(count);
        }
    }

    /// Reads the streams of the server.
    fn receive_control(&mut self) {
        for id in std::mem::take(&mut self.control) {
            let (parts, end) = self.connection.read_all(id);
            let is_end = end == ReadEnd::Ended;
            let last = parts.len().saturating_sub(1);
            for (number, part) in parts.iter().enumerate() {
                let mut at = 0;
                loop {
                    let ends = is_end && number == last;
                    match self.engine.receive(id.into(), part, &mut at, ends) {
                        Ok(Http3ClientEvent::NeedInput) => break,
                        Ok(Http3ClientEvent::GoAway) => self.drain(),
                        Ok(Http3ClientEvent::Stop { code, .. }) => {
                            let code = VarInt::from_u64(code.value()).unwrap_or_default();
                            // One that has ended is not stopped.
                            let _ = self.connection.state().recv_stream(id).stop(code);
                        }
                        Ok(_) => {}
                        Err(error) => return self.fail(error),
                    }
                }
            }
        }
        self.wake_unblocked();
    }

    fn drain(&mut self) {
        self.is_draining = true;
        while let Some(id) = self.engine.unprocessed() {
            self.unprocessed.push(id);
        }
        self.wake_users();
    }

    /// Passes the bytes of the client's own streams to QUIC.
    fn send_own(&mut self) {
        for (kind, own) in OwnStream::ALL.into_iter().zip(&mut self.own) {
            let pending = self.engine.pending(kind);
            if pending.is_empty() {
                continue;
            }
            // What is not taken is pending until the next time. Without a stream, the engine must not count on its bytes.
            let count = self.connection.write_own(own, pending);
            self.engine.sent(kind, count);
        }
    }
}

/// The task of a connection.
pub(super) struct Driver(pub(super) Rc<RefCell<State>>);

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let state = &mut *self.0.borrow_mut();
        state.task.clone_from(cx.waker());
        state.connection.register(cx);
        state.receive_events();
        if state.end.is_none() {
            state.receive_control();
        }
        if state.end.is_some() {
            state.connection.flush();
            return Poll::Ready(());
        }
        state.send_own();
        if state.connection.flush() == Flushed::More {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
