//! The state of a WebSocket, which both directions share: the control frames that one causes and the other sends.

use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};
use std::time::Instant;

use dunlin_http::websocket::frame::{self, opcode};
use dunlin_net::clock;

/// The state that both directions of a WebSocket share.
#[derive(Debug)]
pub(super) struct WebSocketState {
    /// The pongs for the last pings, of at most [`PONGS`] bytes. Older pings need no response (RFC 6455 §5.5.3), so that a
    /// client that sends pings and receives nothing fills no memory.
    pongs: RefCell<Vec<u8>>,
    /// The close frame, until it is sent.
    close: RefCell<Option<Vec<u8>>>,
    /// There is a close frame, or no need for one: nothing else is sent.
    is_over: Cell<bool>,
    /// When a byte was last received or sent.
    active: Cell<Instant>,
    /// The task that sends.
    sender: RefCell<Option<Waker>>,
}

/// Bytes of pongs that wait to be sent.
const PONGS: usize = 4 * 1024;

impl WebSocketState {
    /// Creates the state of a WebSocket that begins now.
    pub(super) fn new() -> Self {
        Self {
            pongs: RefCell::default(),
            close: RefCell::default(),
            is_over: Cell::default(),
            active: Cell::new(clock::now()),
            sender: RefCell::default(),
        }
    }

    /// Notes that bytes are received or sent.
    pub(super) fn touch(&self) {
        self.active.set(clock::now());
    }

    /// Returns when a byte was last received or sent.
    pub(super) fn active(&self) -> Instant {
        self.active.get()
    }

    /// Responds to a ping.
    pub(super) fn send_pong(&self, payload: &[u8]) {
        let mut pongs = self.pongs.borrow_mut();
        let before = pongs.len();
        frame::write(opcode::PONG, payload, &mut pongs);
        if pongs.len() > PONGS {
            pongs.drain(..before);
        }
        drop(pongs);
        self.wake();
    }

    /// Ends the WebSocket with a close frame. The first call wins.
    pub(super) fn close(&self, code: u16, reason: &str) {
        if !self.is_over.replace(true) {
            let mut bytes = Vec::new();
            frame::write_close(code, reason, &mut bytes);
            *self.close.borrow_mut() = Some(bytes);
            self.wake();
        }
    }

    /// Ends the WebSocket of a client that has ended the connection.
    pub(super) fn end(&self) {
        self.is_over.set(true);
        self.wake();
    }

    /// Returns `true` if nothing is sent but [`Self::take`].
    pub(super) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Takes the frames to send.
    pub(super) fn take(&self) -> Vec<u8> {
        let mut bytes = self.pongs.take();
        bytes.extend(self.close.take().unwrap_or_default());
        bytes
    }

    /// Wakes the task when there is something to send.
    pub(super) fn watch(&self, cx: &Context<'_>) {
        let mut sender = self.sender.borrow_mut();
        match &mut *sender {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    fn wake(&self) {
        if let Some(waker) = self.sender.take() {
            waker.wake();
        }
    }
}
