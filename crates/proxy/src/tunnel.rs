//! Connections that have switched to another protocol (RFC 9110 §7.8), such as WebSocket: bytes in both directions.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use dunlin_client::Upgraded;
use dunlin_exchange::stream::{self, Broken, Source};
use dunlin_net::watchdog::Watchdog;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::upstream_permit::UpstreamPermit;

/// Both directions of a connection that uses another protocol. Polling for bytes of the upstream also sends those of the
/// client.
#[derive(Debug)]
pub(crate) struct Tunnel {
    upstream: Upgraded,
    /// The bytes that the client sends; `None` after its end.
    client: Option<stream::Receiver>,
    /// Bytes of the client that the upstream has not taken.
    pending: Bytes,
    /// The upstream does not know of the end of what the client sends.
    needs_shutdown: bool,
    /// Bytes in both directions.
    moved: u64,
    permit: UpstreamPermit,
    watchdog: Watchdog,
}

impl Tunnel {
    pub(crate) fn new(
        upstream: Upgraded,
        client: stream::Receiver,
        permit: UpstreamPermit,
        watchdog: Watchdog,
    ) -> Self {
        permit.upstream.counts.tunnels.fetch_add(1, Ordering::Relaxed);
        let (client, pending) = (Some(client), Bytes::new());
        Self { upstream, client, pending, needs_shutdown: false, moved: 0, permit, watchdog }
    }

    /// Sends what the client has sent. Ready when it sends no more.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        loop {
            if !self.pending.is_empty() {
                let written = Pin::new(&mut self.upstream).poll_write(cx, &self.pending);
                match ready!(written) {
                    Ok(count) if count > 0 => {
                        self.pending.advance(count);
                        self.moved += count as u64;
                    }
                    _ => return Poll::Ready(Err(Broken)),
                }
                continue;
            }
            if let Some(client) = &mut self.client {
                match client.poll_next(cx) {
                    Poll::Ready(Ok(Some(bytes))) => self.pending = bytes,
                    Poll::Ready(Ok(None)) => (self.client, self.needs_shutdown) = (None, true),
                    Poll::Ready(Err(Broken)) => return Poll::Ready(Err(Broken)),
                    Poll::Pending => {
                        // TLS keeps bytes until it is flushed.
                        return Pin::new(&mut self.upstream).poll_flush(cx).map(|_| Ok(()));
                    }
                }
                continue;
            }
            if self.needs_shutdown {
                let shut = ready!(Pin::new(&mut self.upstream).poll_shutdown(cx));
                self.needs_shutdown = false;
                return Poll::Ready(shut.map_err(|_| Broken));
            }
            return Poll::Ready(Ok(()));
        }
    }

    /// Returns the next bytes of the upstream; empty at the end.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Broken>> {
        let Self { upstream, permit, .. } = self;
        let read = permit.worker.with_buffer(|buffer| {
            let mut read = ReadBuf::new(buffer);
            let result = Pin::new(upstream).poll_read(cx, &mut read);
            result.map_ok(|()| Bytes::copy_from_slice(read.filled()))
        });
        read.map_err(|_| Broken)
    }
}

impl Source for Tunnel {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        if let Poll::Ready(Err(Broken)) = self.poll_send(cx) {
            return Poll::Ready(Err(Broken));
        }
        if let Poll::Ready(received) = self.poll_receive(cx) {
            let bytes = received?;
            self.moved += bytes.len() as u64;
            return Poll::Ready(Ok(Some(bytes).filter(|bytes| !bytes.is_empty())));
        }
        let limit = self.permit.rules.tunnel_timeout;
        // Both sides are idle: they see an orderly end.
        self.watchdog.poll(cx, limit, self.moved).map(|()| Ok(None))
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.permit.upstream.counts.tunnels.fetch_sub(1, Ordering::Relaxed);
    }
}
