//! Bodies on their way to the store and to all requests that wait for them.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dunlin_exchange::stream::{self, Broken, Source};
use dunlin_response_cache::flight::{Reader, Writer};
use dunlin_response_cache::key::Key;

use super::shared::ResponseCache;

/// Receives a body until its end and stores the response. Runs as a task of its own, so that the body arrives as fast as its
/// sender is, whichever client reads it.
pub(super) async fn fill(
    cache: Arc<ResponseCache>,
    key: Key,
    mut body: stream::Receiver,
    mut writer: Writer,
) {
    poll_fn(|cx| {
        loop {
            if writer.is_useless() {
                return Poll::Ready(());
            }
            ready!(writer.poll_room(cx));
            match ready!(body.poll_next(cx)) {
                Ok(Some(bytes)) => writer.push(bytes),
                Ok(None) => {
                    cache.store_end(&key, &mut writer);
                    return Poll::Ready(());
                }
                // Dropping the writer breaks the body for its readers.
                Err(Broken) => return Poll::Ready(()),
            }
        }
    })
    .await;
}

/// A body that a request reads while it arrives.
#[derive(Debug)]
pub(super) struct FlightBody(pub(super) Reader);

impl Source for FlightBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        self.0.poll_next(cx).map_err(|_| Broken)
    }
}
