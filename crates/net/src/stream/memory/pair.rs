//! The two ends of a stream in memory.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tokio::io::ReadBuf;

use crate::address::SocketAddresses;

/// Returns a connection between the addresses `ends`. `capacity` is the size of the client's receive buffer in bytes.
pub fn pair(ends: SocketAddresses, capacity: usize) -> (ServerEnd, ClientEnd) {
    let state = Rc::new(RefCell::new(State {
        ends,
        to_server: VecDeque::new(),
        to_client: VecDeque::new(),
        capacity,
        max_read: usize::MAX,
        max_written: usize::MAX,
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
pub struct ServerEnd(Rc<RefCell<State>>);

/// The end that the test holds.
#[derive(Debug)]
pub struct ClientEnd(Rc<RefCell<State>>);

#[derive(Debug)]
struct State {
    ends: SocketAddresses,
    to_server: VecDeque<u8>,
    to_client: VecDeque<u8>,
    capacity: usize,
    /// Bytes of one call, as the next.
    max_read: usize,
    max_written: usize,
    client: Side,
    server: Side,
    /// Closing resets the connection.
    is_broken_off: bool,
    /// The server has closed its end.
    is_dropped: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// The state of the stream that one side sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// More bytes may follow.
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
    pub(crate) fn ends(&self) -> SocketAddresses {
        self.0.borrow().ends
    }

    pub(crate) fn unacknowledged(&self) -> u32 {
        self.0.borrow().to_client.len() as u32
    }

    pub(crate) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.0.borrow_mut();
        if state.client == Side::Reset {
            return Poll::Ready(Err(ErrorKind::ConnectionReset.into()));
        }
        let count = state.to_server.len().min(buffer.remaining()).min(state.max_read);
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
        let mut room = state.room().min(state.max_written);
        if room == 0 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let before = state.to_client.len();
        for slice in slices {
            let written = &slice[..slice.len().min(room)];
            state.to_client.extend(written);
            room -= written.len();
        }
        Ok(state.to_client.len() - before)
    }

    pub(crate) fn send_file(
        &self,
        file: BorrowedFd<'_>,
        offset: &mut u64,
        count: usize,
    ) -> io::Result<usize> {
        let mut buffer = vec![0; count];
        let count = rustix::io::pread(file, &mut buffer, *offset)?;
        let written = self.try_write(&buffer[..count])?;
        *offset += written as u64;
        Ok(written)
    }

    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.borrow_mut();
        if state.room() > 0 || state.client == Side::Reset {
            return Poll::Ready(Ok(()));
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.borrow().client == Side::Reset
    }

    pub(crate) fn shut_down(&self) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        if state.client == Side::Reset {
            return Err(ErrorKind::NotConnected.into());
        }
        state.server = Side::Ended;
        Ok(())
    }

    pub(crate) fn break_off(&self) -> io::Result<()> {
        self.0.borrow_mut().is_broken_off = true;
        Ok(())
    }
}

impl Drop for ServerEnd {
    /// Closes the socket as the kernel does: with unread bytes, or after `break_off`, the connection is reset, and bytes
    /// that the client has not read are lost.
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
    /// Sends bytes; the server's receive buffer is unlimited. Sending to a closed socket resets the connection.
    ///
    /// # Panics
    /// When the client has ended its stream.
    pub fn send(&self, bytes: &[u8]) {
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

    /// Removes and returns the bytes that the server has not read.
    pub fn take_back(&self) -> Vec<u8> {
        self.0.borrow_mut().to_server.drain(..).collect()
    }

    /// Sends the end of the stream. The client can still receive.
    pub fn end(&self) {
        let mut state = self.0.borrow_mut();
        if state.client == Side::Open {
            state.client = Side::Ended;
        }
        state.wake_reader();
    }

    /// Resets the connection.
    pub fn reset(&self) {
        let mut state = self.0.borrow_mut();
        state.client = Side::Reset;
        state.to_server.clear();
        state.to_client.clear();
        state.wake_reader();
        state.wake_writer();
    }

    /// Receives up to `max` bytes.
    pub fn take(&self, max: usize) -> Vec<u8> {
        let mut state = self.0.borrow_mut();
        let count = state.to_client.len().min(max);
        let bytes = state.to_client.drain(..count).collect();
        state.wake_writer();
        bytes
    }

    /// Returns the number of bytes that the client can receive now.
    pub fn waiting(&self) -> usize {
        self.0.borrow().to_client.len()
    }

    /// Changes the size of the client's receive buffer.
    pub fn set_capacity(&self, capacity: usize) {
        let mut state = self.0.borrow_mut();
        state.capacity = capacity;
        state.wake_writer();
    }

    /// Limits the number of bytes of each read and each write of the server.
    pub fn set_max(&self, read: usize, written: usize) {
        let mut state = self.0.borrow_mut();
        (state.max_read, state.max_written) = (read.max(1), written.max(1));
    }

    /// Returns the state of the stream that the server sends. Its end is visible once the client has received all bytes.
    pub fn server(&self) -> Side {
        let state = self.0.borrow();
        match state.server {
            Side::Ended if !state.to_client.is_empty() => Side::Open,
            side => side,
        }
    }

    /// Returns `true` if the server has closed its end.
    pub fn is_closed(&self) -> bool {
        self.0.borrow().is_dropped
    }
}
