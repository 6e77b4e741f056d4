//! Tunnels on a stream of HTTP/2 (RFC 8441): data in both directions.

use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use dunlin_exchange::stream::{Broken, Source};

use crate::download::Running;

/// The bytes that the upstream sends through a tunnel. Polling for them also sends what the client has sent.
#[derive(Debug)]
pub(crate) struct StreamTunnel {
    running: Running,
}

impl StreamTunnel {
    pub(crate) fn new(running: Running) -> Self {
        running.permit.upstream.counts.tunnels.fetch_add(1, Ordering::Relaxed);
        Self { running }
    }
}

impl Source for StreamTunnel {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        let Running { exchange, permit, watchdog, .. } = &mut self.running;
        match exchange.poll_data(cx) {
            Poll::Ready(data) => Poll::Ready(data.transpose().map_err(|_| Broken)),
            Poll::Pending => {
                let limit = permit.rules.tunnel_timeout;
                // Both sides are idle: they see an orderly end.
                watchdog.poll(cx, limit, exchange.progress()).map(|()| Ok(None))
            }
        }
    }
}

impl Drop for StreamTunnel {
    fn drop(&mut self) {
        self.running.permit.upstream.counts.tunnels.fetch_sub(1, Ordering::Relaxed);
    }
}
