//! A connection in memory. The test holds the client's end and decides about each byte: how many the server may read and
//! write in one call, when the client's buffer is full, and when the stream ends or is reset.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::io::ReadBuf;

use super::Ends;

/// A connection whose client has that address. `capacity`: bytes that the server can send before the client takes some.
pub(crate) fn pair(ends: Ends, capacity: usize) -> (ServerEnd, ClientEnd) {
    let state = Rc::new(RefCell::new(State {
        ends,
        to_server: VecDeque::new(),
        to_client: VecDeque::new(),
        capacity,
        most_read: usize::MAX,
        most_written: usize::MAX,
        client: Side::Open,
        server: Side::Open,
        is_broken_off: false,
        is_dropped: false,
        reader: None,
        writer: None,
    }));
    (ServerEnd(Rc::clone(&state)), ClientEnd(state))
}

/// The end that the server reads from and writes to.
#[derive(Debug)]
pub(crate) struct ServerEnd(Rc<RefCell<State>>);

/// The end that the test holds.
#[derive(Debug)]
pub(crate) struct ClientEnd(Rc<RefCell<State>>);

#[derive(Debug)]
struct State {
    ends: Ends,
    to_server: VecDeque<u8>,
    to_client: VecDeque<u8>,
    capacity: usize,
    /// Bytes of one call.
    most_read: usize,
    most_written: usize,
    client: Side,
    server: Side,
    /// Closing resets the connection.
    is_broken_off: bool,
    /// The server has closed its end.
    is_dropped: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// What one side does with the stream that it sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Open,
    /// It has sent the end of the stream.
    Ended,
    /// It has reset the connection.
    Reset,
}

impl State {
    fn room(&self) -> usize {
        self.capacity.saturating_sub(self.to_client.len())
    }

    fn wake_reader(&mut self) {
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }

    fn wake_writer(&mut self) {
        if (self.room() > 0 || self.client == Side::Reset)
            && let Some(waker) = self.writer.take()
        {
            waker.wake();
        }
    }
}

impl ServerEnd {
    pub(super) fn ends(&self) -> Ends {
        self.0.borrow().ends
    }

    pub(super) fn unacknowledged(&self) -> u32 {
        self.0.borrow().to_client.len() as u32
    }

    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.0.borrow_mut();
        if state.client == Side::Reset {
            return Poll::Ready(Err(ErrorKind::ConnectionReset.into()));
        }
        let count = state.to_server.len().min(buffer.remaining()).min(state.most_read);
        if count == 0 && state.client == Side::Open {
            state.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let bytes: Vec<u8> = state.to_server.drain(..count).collect();
        buffer.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write_vectored(&[IoSlice::new(bytes)])
    }

    pub(crate) fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.0.borrow_mut();
        if state.client == Side::Reset || state.server != Side::Open {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let mut room = state.room().min(state.most_written);
        if room == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let before = state.to_client.len();
        for slice in slices {
            let taken = &slice[..slice.len().min(room)];
            state.to_client.extend(taken);
            room -= taken.len();
        }
        Ok(state.to_client.len() - before)
    }

    pub(super) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.borrow_mut();
        if state.room() > 0 || state.client == Side::Reset {
            return Poll::Ready(Ok(()));
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    pub(super) fn shut_down(&self) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        if state.client == Side::Reset {
            return Err(ErrorKind::NotConnected.into());
        }
        state.server = Side::Ended;
        Ok(())
    }

    pub(super) fn break_off(&self) -> io::Result<()> {
        self.0.borrow_mut().is_broken_off = true;
        Ok(())
    }
}

impl Drop for ServerEnd {
    /// Closes the socket as the kernel does: with bytes unread, or when it was asked to discard, the connection is reset,
    /// and what the client has not read is lost.
    fn drop(&mut self) {
        let mut state = self.0.borrow_mut();
        state.is_dropped = true;
        if state.is_broken_off || !state.to_server.is_empty() {
            state.server = Side::Reset;
            state.to_client.clear();
        } else if state.server == Side::Open {
            state.server = Side::Ended;
        }
    }
}

impl Drop for ClientEnd {
    fn drop(&mut self) {
        self.reset();
    }
}

impl ClientEnd {
    /// Sends bytes. The server's socket takes all of them. Sending to a closed socket resets the connection.
    pub(crate) fn send(&self, bytes: &[u8]) {
        let mut state = self.0.borrow_mut();
        if state.is_dropped {
            if state.server == Side::Ended {
                state.server = Side::Reset;
                state.to_client.clear();
            }
            return;
        }
        assert_eq!(state.client, Side::Open, "the client has ended its stream");
        state.to_server.extend(bytes);
        state.wake_reader();
    }

    /// Takes back what was sent and the server has not read.
    pub(crate) fn take_back(&self) -> Vec<u8> {
        self.0.borrow_mut().to_server.drain(..).collect()
    }

    /// Sends the end of the stream, and goes on receiving.
    pub(crate) fn end(&self) {
        let mut state = self.0.borrow_mut();
        if state.client == Side::Open {
            state.client = Side::Ended;
        }
        state.wake_reader();
    }

    /// Resets the connection.
    pub(crate) fn reset(&self) {
        let mut state = self.0.borrow_mut();
        state.client = Side::Reset;
        state.to_server.clear();
        state.to_client.clear();
        state.wake_reader();
        state.wake_writer();
    }

    /// Takes up to `most` bytes that the server has sent.
    pub(crate) fn take(&self, most: usize) -> Vec<u8> {
        let mut state = self.0.borrow_mut();
        let count = state.to_client.len().min(most);
        let bytes = state.to_client.drain(..count).collect();
        state.wake_writer();
        bytes
    }

    /// Bytes that the client can take now.
    pub(crate) fn waiting(&self) -> usize {
        self.0.borrow().to_client.len()
    }

    /// Changes how many bytes the server can send before the client takes some.
    pub(crate) fn set_capacity(&self, capacity: usize) {
        let mut state = self.0.borrow_mut();
        state.capacity = capacity;
        state.wake_writer();
    }

    /// Limits the bytes of each read and each write of the server.
    pub(crate) fn set_most(&self, read: usize, written: usize) {
        let mut state = self.0.borrow_mut();
        (state.most_read, state.most_written) = (read.max(1), written.max(1));
    }

    /// What the server does with the stream that it sends. An end is seen once all bytes are taken.
    pub(crate) fn server(&self) -> Side {
        let state = self.0.borrow();
        match state.server {
            Side::Ended if !state.to_client.is_empty() => Side::Open,
            side => side,
        }
    }

    /// Whether the server has closed its end.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.borrow().is_dropped
    }
}
