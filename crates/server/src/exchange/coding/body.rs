//! Bodies that are compressed or decoded as they are sent.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dunlin_coding::{Decoder, Encoder};
use dunlin_exchange::RequestContext;
use dunlin_exchange::stream::{self, Broken, Receiver};
use dunlin_http::FieldLines;
use dunlin_memory::Reservation;
use dunlin_net::address::Peer;

use super::budget::{BodyTime, CodingBudget, add};

/// Bytes of input that are compressed in one poll of a body, so that one response does not hold up others.
const PER_POLL: usize = 128 << 10;
/// Bytes of output that are passed on together.
const OUTPUT: usize = 16 << 10;

/// A body that is compressed as it is sent.
pub(super) struct CodedBody {
    source: Receiver,
    work: Rc<RefCell<Work>>,
    client: Peer,
    time: BodyTime,
    budget: Rc<CodingBudget>,
    context: Option<Rc<RequestContext>>,
    /// It is compressed with a dictionary.
    has_dictionary: bool,
}

/// The encoder of a body, which the budget has rest while nothing is compressed.
pub(super) struct Work {
    /// `None` after the end, and if it has failed.
    encoder: Option<Encoder>,
    has_failed: bool,
    /// The rest is stored, because compression took too much time.
    is_stored: bool,
    output: Vec<u8>,
    /// The tick of the last use.
    last_use: u64,
    /// The budget knows it.
    is_listed: bool,
    /// The memory of the encoder and its output.
    held: Reservation,
}

impl std::fmt::Debug for CodedBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CodedBody").field("source", &self.source).finish_non_exhaustive()
    }
}

impl CodedBody {
    pub(super) fn new(
        source: Receiver,
        encoder: Encoder,
        client: Peer,
        budget: &Rc<CodingBudget>,
        context: Option<Rc<RequestContext>>,
    ) -> Self {
        add(&budget.counts.responses, 1);
        let work = Work {
            encoder: Some(encoder),
            has_failed: false,
            is_stored: false,
            output: Vec::new(),
            last_use: 0,
            is_listed: false,
            held: Reservation::of_connection(),
        };
        Self {
            source,
            work: Rc::new(RefCell::new(work)),
            client,
            time: BodyTime::default(),
            budget: Rc::clone(budget),
            context,
            has_dictionary: false,
        }
    }

    /// Counts what a dictionary saves.
    pub(super) fn with_dictionary(self) -> Self {
        add(&self.budget.files.dictionaries.responses, 1);
        Self { has_dictionary: true, ..self }
    }

    /// Compresses bytes; measures the time, and counts.
    fn push(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        let mut work = self.work.borrow_mut();
        let work = &mut *work;
        let Some(encoder) = &mut work.encoder else { return Err(Broken) };
        if !work.is_stored && self.budget.is_too_much(self.client, self.time) {
            encoder.store(&mut work.output).map_err(|_| Broken)?;
            work.is_stored = true;
            add(&self.budget.counts.skipped, 1);
        }
        let sizes = (bytes.len(), &mut work.output);
        let push = |output: &mut Vec<u8>| encoder.push(bytes, output);
        self.time += self.budget.measure(self.client, sizes, push).map_err(|_| Broken)?;
        work.held.set(encoder.memory() + work.output.capacity());
        work.last_use = self.budget.tick();
        if !std::mem::replace(&mut work.is_listed, true) {
            self.budget.list(&self.work);
        }
        if let Some(context) = &self.context {
            context.add_plain_bytes(bytes.len() as u64);
        }
        if self.has_dictionary {
            add(&self.budget.files.dictionaries.plain_bytes, bytes.len());
        }
        Ok(())
    }

    /// Ends the coded body, or flushes what the source has had so far.
    fn complete(&mut self, has_ended: bool) -> Result<(), Broken> {
        let mut work = self.work.borrow_mut();
        let work = &mut *work;
        let sizes = (0, &mut work.output);
        if has_ended {
            let Some(encoder) = work.encoder.take() else { return Ok(()) };
            let measured = self.budget.measure(self.client, sizes, |output| encoder.finish(output));
            self.time += measured.map_err(|_| Broken)?;
            work.held.set(work.output.capacity());
        } else if let Some(encoder) = work.encoder.as_mut().filter(|encoder| encoder.is_behind()) {
            let measured = self.budget.measure(self.client, sizes, |output| encoder.flush(output));
            self.time += measured.map_err(|_| Broken)?;
        }
        Ok(())
    }

    /// Compresses until there is enough output, or nothing more to compress for now. Returns `true` at the end.
    fn poll_work(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Broken>> {
        let mut room = PER_POLL;
        while self.work.borrow().encoder.is_some() {
            match self.source.poll_next(cx)? {
                Poll::Ready(Some(bytes)) => {
                    self.push(&bytes)?;
                    room = room.saturating_sub(bytes.len());
                    if self.work.borrow().output.len() >= OUTPUT {
                        return Poll::Ready(Ok(false));
                    }
                    if room == 0 {
                        // Others have their turn.
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
                Poll::Ready(None) => self.complete(true)?,
                Poll::Pending => {
                    self.complete(false)?;
                    return match self.work.borrow().output.is_empty() {
                        true => Poll::Pending,
                        false => Poll::Ready(Ok(false)),
                    };
                }
            }
        }
        Poll::Ready(if self.work.borrow().has_failed { Err(Broken) } else { Ok(true) })
    }
}

impl Work {
    /// Returns `true` if nothing was compressed since that tick.
    pub(super) fn is_idle_since(&self, tick: u64) -> bool {
        self.last_use < tick
    }

    /// Releases the memory of the encoder until there is more input.
    pub(super) fn rest(&mut self) {
        self.is_listed = false;
        let Some(encoder) = &mut self.encoder else { return };
        if encoder.rest(&mut self.output).is_err() {
            (self.encoder, self.has_failed) = (None, true);
        }
        self.output.shrink_to_fit();
        self.held.set(self.output.capacity());
    }
}

impl stream::Source for CodedBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        let has_ended = ready!(self.poll_work(cx))?;
        let mut work = self.work.borrow_mut();
        let output = std::mem::take(&mut work.output);
        if self.has_dictionary {
            add(&self.budget.files.dictionaries.coded_bytes, output.len());
        }
        if output.is_empty() && has_ended {
            return Poll::Ready(Ok(None));
        }
        Poll::Ready(Ok(Some(output.into())))
    }

    fn take_trailers(&mut self) -> FieldLines {
        self.source.take_trailers()
    }

    fn finish(self: Box<Self>) {
        self.source.detach();
    }
}

/// A body that is decoded as it is sent.
#[derive(Debug)]
pub(super) struct DecodedBody {
    source: Receiver,
    decoder: Decoder,
    has_begun: bool,
    has_ended: bool,
    /// Bytes that the content may still have.
    left: u64,
    client: Peer,
    budget: Rc<CodingBudget>,
    /// The memory of the decoder.
    held: Reservation,
}

impl DecodedBody {
    /// Creates a body of at most `max` bytes for a client.
    pub(super) fn new(
        source: Receiver,
        decoder: Decoder,
        max: u64,
        client: Peer,
        budget: &Rc<CodingBudget>,
    ) -> Self {
        let mut held = Reservation::of_connection();
        held.set(decoder.memory());
        let budget = Rc::clone(budget);
        Self {
            source,
            decoder,
            has_begun: false,
            has_ended: false,
            left: max,
            client,
            budget,
            held,
        }
    }
}

impl stream::Source for DecodedBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        let mut room = PER_POLL;
        loop {
            let mut output = vec![0; OUTPUT];
            let Self { decoder, budget, client, .. } = &mut *self;
            // Nothing else can be sent: the compression of others gives way.
            let pulled = budget.spend_on(*client, || decoder.pull(&mut output));
            match pulled.map_err(|_| Broken)? {
                Some(0) => return self.poll_end(cx),
                Some(length) => {
                    self.left = self.left.checked_sub(length as u64).ok_or(Broken)?;
                    output.truncate(length);
                    return Poll::Ready(Ok(Some(output.into())));
                }
                None => {}
            }
            match self.source.poll_next(cx)? {
                Poll::Ready(Some(bytes)) => {
                    self.has_begun = true;
                    room = room.saturating_sub(bytes.len());
                    self.decoder.push(&bytes).map_err(|_| Broken)?;
                    self.held.set(self.decoder.memory());
                    if room == 0 {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
                // Some upstreams state a coding of no content.
                Poll::Ready(None) if !self.has_begun => return Poll::Ready(Ok(None)),
                Poll::Ready(None) => {
                    self.has_ended = true;
                    self.decoder.end();
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn take_trailers(&mut self) -> FieldLines {
        self.source.take_trailers()
    }

    fn finish(self: Box<Self>) {
        self.source.detach();
    }
}

impl DecodedBody {
    /// Awaits the end of the source, whose content has ended. What follows the content is dropped.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        if self.has_ended {
            return Poll::Ready(Ok(None));
        }
        match self.source.poll_next(cx)? {
            Poll::Ready(Some(_)) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Ready(None) => {
                self.has_ended = true;
                Poll::Ready(Ok(None))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}
