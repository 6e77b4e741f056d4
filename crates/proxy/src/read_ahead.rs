//! Responses that are received before the client takes them, so that a slow client does not occupy an upstream.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dunlin_exchange::stream::{self, Broken, Source};
use dunlin_http::FieldLines;

use crate::download::Download;
use crate::memory::Reservation;

/// A body that a task receives. The client gets what has arrived at any time.
#[derive(Debug)]
struct ReadAhead {
    received: stream::Receiver,
    trailers: Rc<RefCell<FieldLines>>,
    _memory: Reservation,
}

/// Returns the body of `download`, of which as much waits for the client as `memory` is for.
pub(crate) fn read_ahead(download: Download, memory: Reservation) -> stream::Receiver {
    let (sender, received) = stream::channel(usize::try_from(memory.bytes()).unwrap_or(usize::MAX));
    let trailers = Rc::default();
    tokio::task::spawn_local(receive(download, sender, Rc::clone(&trailers)));
    stream::from_source(Box::new(ReadAhead { received, trailers, _memory: memory }))
}

/// Receives a body until its end, or until the client has left.
async fn receive(
    mut download: Download,
    sender: stream::Sender,
    trailers: Rc<RefCell<FieldLines>>,
) {
    poll_fn(|cx| {
        loop {
            sender.watch(cx);
            if sender.is_abandoned() {
                return Poll::Ready(());
            }
            ready!(sender.poll_room(cx));
            match ready!(download.poll_next(cx)) {
                Ok(Some(bytes)) => sender.push(bytes),
                Ok(None) => {
                    trailers.replace(download.take_trailers());
                    sender.end();
                    return Poll::Ready(());
                }
                // Dropping the sender breaks the stream.
                Err(Broken) => return Poll::Ready(()),
            }
        }
    })
    .await;
}

impl Source for ReadAhead {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        self.received.poll_next(cx)
    }

    fn take_trailers(&mut self) -> FieldLines {
        self.trailers.take()
    }

    fn finish(self: Box<Self>) {
        self.received.detach();
    }
}
