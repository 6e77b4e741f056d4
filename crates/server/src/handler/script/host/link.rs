//! A loop's connection to a host. All requests of the loop share it: those that arrive together
//! leave in one write, and one read brings the answers of many.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use hashbrown::HashMap;
use tokio::net::UnixStream;

use super::frame::{self, Said};
use crate::handler::script::readiness::Readiness;
use crate::handler::script::stamp;
use crate::handler::script::stderr::printable;
use crate::handler::script::workers::{Checkout, Worker};

/// A loop's connections to hosts, by worker.
#[derive(Default)]
pub(crate) struct Links {
    all: RefCell<HashMap<*const Worker, Rc<Link>>>,
}

/// A connection to a host.
pub(super) struct Link {
    /// Kept, so that its place in memory cannot come to mean another.
    worker: Arc<Worker>,
    output: RefCell<Vec<u8>>,
    driver: RefCell<Option<Waker>>,
    requests: RefCell<HashMap<u32, Rc<Entry>>>,
    next: Cell<u32>,
}

/// A request that a host has.
pub(super) struct Entry {
    id: u32,
    checkout: RefCell<Option<Checkout>>,
    pub(super) parts: RefCell<VecDeque<Bytes>>,
    pub(super) state: RefCell<State>,
    pub(super) begun: Cell<bool>,
    /// Nobody waits for the answer.
    pub(super) given_up: Cell<bool>,
    pub(super) waker: RefCell<Option<Waker>>,
    /// Bytes of the body that may be sent.
    room: Cell<usize>,
    feeder: RefCell<Option<Waker>>,
    /// Bytes of the answer that were taken since the host was last told.
    pub(super) taken: Cell<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    UnderWay,
    Ended,
    /// The host has said why there is no more.
    Cut(String),
    /// The connection is gone.
    Lost(String),
}

/// Bytes that may be under way, and how many are acknowledged at a time; the host has the same.
const WINDOW: usize = 256 * 1024;
pub(super) const STEP: usize = 64 * 1024;
/// Why a connection is closed that brought something which belongs to no request.
const STRAY: &str = "data arrived that belongs to no request";
/// After so many reads the other tasks have their turn.
const READS: usize = 4;

impl Links {
    /// The connection to `worker`; it is made when there is none.
    pub(super) async fn to(self: &Rc<Self>, worker: &Arc<Worker>) -> std::io::Result<Rc<Link>> {
        let key = Arc::as_ptr(worker);
        if let Some(link) = self.all.borrow().get(&key) {
            return Ok(Rc::clone(link));
        }
        let stream = UnixStream::connect(&worker.socket).await?;
        if let Some(link) = self.all.borrow().get(&key) {
            return Ok(Rc::clone(link));
        }
        let link = Rc::new(Link {
            worker: Arc::clone(worker),
            output: RefCell::default(),
            driver: RefCell::default(),
            requests: RefCell::default(),
            next: Cell::new(0),
        });
        self.all.borrow_mut().insert(key, Rc::clone(&link));
        tokio::task::spawn_local(Rc::clone(self).drive(Rc::clone(&link), stream));
        Ok(link)
    }

    /// Moves bytes until the host or the connection is gone.
    async fn drive(self: Rc<Self>, link: Rc<Link>, stream: UnixStream) {
        let mut input = BytesMut::with_capacity(STEP);
        let why = poll_fn(|cx| link.poll(cx, &stream, &mut input)).await;
        if why == STRAY {
            let pid = link.worker.pid;
            tracing::warn!(pid, "the connection to an application is closed: {STRAY}");
        }
        self.all.borrow_mut().remove(&Arc::as_ptr(&link.worker));
        let requests: Vec<_> = link.requests.borrow_mut().drain().collect();
        for (_, entry) in requests {
            entry.conclude(State::Lost(why.clone()));
        }
    }
}

impl Link {
    /// A new request; `checkout` is released when the host is done with it.
    pub(super) fn enter(self: &Rc<Self>, checkout: Checkout) -> Rc<Entry> {
        let id = self.next.get();
        self.next.set(id.wrapping_add(1));
        let entry = Rc::new(Entry {
            id,
            checkout: RefCell::new(Some(checkout)),
            parts: RefCell::default(),
            state: RefCell::new(State::UnderWay),
            begun: Cell::new(false),
            given_up: Cell::new(false),
            waker: RefCell::default(),
            room: Cell::new(WINDOW),
            feeder: RefCell::default(),
            taken: Cell::new(0),
        });
        self.requests.borrow_mut().insert(id, Rc::clone(&entry));
        entry
    }

    /// Has a frame sent, together with those that are added before the loop comes to it.
    pub(super) fn send(&self, id: u32, kind: u8, payload: &[u8]) {
        self.send_with(id, kind, |output| output.extend_from_slice(payload));
    }

    /// The same, of a payload that `write` adds.
    pub(super) fn send_with(&self, id: u32, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
        frame::write(id, kind, write, &mut self.output.borrow_mut());
        if let Some(driver) = self.driver.borrow_mut().take() {
            driver.wake();
        }
    }

    fn poll(
        &self,
        cx: &mut Context<'_>,
        stream: &UnixStream,
        input: &mut BytesMut,
    ) -> Poll<String> {
        *self.driver.borrow_mut() = Some(cx.waker().clone());
        for read in 0.. {
            if read == READS {
                cx.waker().wake_by_ref();
                break;
            }
            match stream.poll_read_ready(cx) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => return Poll::Ready(error.to_string()),
                Poll::Ready(Ok(())) => {}
            }
            input.reserve(STEP);
            let room = input.capacity() - input.len();
            match stream.try_read_buf(input) {
                Ok(0) => return Poll::Ready("its host is gone".into()),
                Ok(count) => {
                    if count < room {
                        // That was all, which would otherwise cost another call to learn.
                        stream.clear();
                    }
                    if let Err(why) = self.take(input) {
                        return Poll::Ready(why.into());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(error.to_string()),
            }
        }
        if !input.is_empty() && self.requests.borrow().is_empty() {
            // It would stand before the response to the next request.
            return Poll::Ready(STRAY.into());
        }
        let mut output = self.output.borrow_mut();
        let mut sent = 0;
        while sent < output.len() {
            match stream.try_write(&output[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    match stream.poll_write_ready(cx) {
                        Poll::Pending => break,
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(error)) => return Poll::Ready(error.to_string()),
                    }
                }
                Err(error) => return Poll::Ready(error.to_string()),
            }
        }
        output.drain(..sent);
        Poll::Pending
    }

    fn take(&self, input: &mut BytesMut) -> Result<(), &'static str> {
        while let Some((id, said)) = frame::read(input)? {
            if let Said::Loaded(files) = said {
                self.worker.note_loaded(stamp::paths(&files));
                continue;
            }
            let ends = matches!(said, Said::End(_) | Said::Whole(_));
            let mut requests = self.requests.borrow_mut();
            let entry = if ends { requests.remove(&id) } else { requests.get(&id).map(Rc::clone) };
            drop(requests);
            let Some(entry) = entry else {
                // It may come behind the end of its request, but not before the request.
                match self.next.get().wrapping_sub(id).wrapping_sub(1) < u32::MAX / 2 {
                    true => continue,
                    false => return Err(STRAY),
                }
            };
            entry.begun.set(true);
            match said {
                Said::Part(_) if entry.given_up.get() => self.send(id, frame::CANCEL, b""),
                Said::Part(bytes) => {
                    entry.parts.borrow_mut().push_back(bytes);
                    entry.wake();
                }
                Said::Whole(bytes) => {
                    entry.parts.borrow_mut().push_back(bytes);
                    entry.conclude(State::Ended);
                }
                Said::End(why) if why.is_empty() => entry.conclude(State::Ended),
                Said::End(why) => entry.conclude(State::Cut(printable(&why))),
                Said::Loaded(_) => {}
                Said::Room(room) => {
                    entry.room.set(entry.room.get().saturating_add(room));
                    if let Some(feeder) = entry.feeder.borrow_mut().take() {
                        feeder.wake();
                    }
                }
            }
        }
        Ok(())
    }
}

impl Entry {
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Waits until some of the body may be sent, and says how much.
    pub(super) async fn room(&self) -> usize {
        poll_fn(|cx| match self.room.get() {
            0 => {
                *self.feeder.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
            room => Poll::Ready(room),
        })
        .await
    }

    pub(super) fn use_room(&self, count: usize) {
        self.room.set(self.room.get().saturating_sub(count));
    }

    /// The host hangs: it is ended.
    pub(super) fn end_host(&self) {
        if let Some(checkout) = self.checkout.borrow_mut().take() {
            checkout.end();
        }
    }

    pub(super) fn is_over(&self) -> bool {
        *self.state.borrow() != State::UnderWay
    }

    fn conclude(&self, state: State) {
        let checkout = self.checkout.borrow_mut().take();
        match (checkout, &state) {
            // Whether the host still works on it is found out.
            (checkout, State::Lost(_)) => drop(checkout),
            (Some(checkout), _) => checkout.release(None),
            (None, _) => {}
        }
        *self.state.borrow_mut() = state;
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}
