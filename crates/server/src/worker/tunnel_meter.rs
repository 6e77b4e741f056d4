//! Counts a tunnel: a connection or a stream that uses another protocol than HTTP.

use std::rc::Rc;

use dunlin_telemetry::metrics::WorkerMetrics;

/// Counts an open tunnel and its bytes. Dropping it counts the tunnel as closed.
pub(crate) struct TunnelMeter {
    metrics: Rc<WorkerMetrics>,
    received: u64,
}

impl TunnelMeter {
    /// Counts a tunnel that opens.
    pub(crate) fn begin(metrics: &Rc<WorkerMetrics>) -> Self {
        metrics.tunnel_opened();
        Self { metrics: Rc::clone(metrics), received: 0 }
    }

    /// Counts bytes of the client.
    pub(crate) fn receive(&mut self, bytes: usize) {
        self.received += bytes as u64;
        self.metrics.tunnel_moved(bytes as u64, 0);
    }

    /// Counts bytes for the client.
    pub(crate) fn send(&self, bytes: usize) {
        self.metrics.tunnel_moved(0, bytes as u64);
    }

    /// Returns the bytes of the client so far.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }
}

impl Drop for TunnelMeter {
    fn drop(&mut self) {
        self.metrics.tunnel_closed();
    }
}
