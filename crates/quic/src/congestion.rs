//! Congestion control.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use quinn_proto::congestion::{
    BbrConfig, Controller, ControllerFactory, ControllerMetrics, CubicConfig,
};
use quinn_proto::{Connection, RttEstimator};
use socket2::{Domain, Socket, Type};

/// An algorithm of congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Congestion {
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// BBR.
    Bbr,
}

impl Congestion {
    /// Returns the algorithm that the system uses for TCP (`net.ipv4.tcp_congestion_control`), read once for the process;
    /// CUBIC if it is another or unknown.
    pub fn of_tcp() -> Self {
        static SYSTEM: LazyLock<Congestion> = LazyLock::new(|| {
            // A new socket has it, even where `/proc` is hidden.
            let name = Socket::new(Domain::IPV4, Type::STREAM, None)
                .and_then(|socket| socket.tcp_congestion());
            name.map_or(Congestion::Cubic, |name| Congestion::named(&name))
        });
        *SYSTEM
    }

    /// Returns the algorithm that the kernel calls `name`, which may end with zero bytes.
    fn named(name: &[u8]) -> Self {
        if name.starts_with(b"bbr") { Self::Bbr } else { Self::Cubic }
    }
}

impl ControllerFactory for Congestion {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let inner = match *self {
            Self::Cubic => Arc::new(CubicConfig::default()).build(now, current_mtu),
            Self::Bbr => Arc::new(BbrConfig::default()).build(now, current_mtu),
        };
        Box::new(UntilClosed { inner, is_closed: Arc::default() })
    }
}

/// Removes the limit of a connection that is closed.
///
/// quinn-proto 0.11 holds CONNECTION_CLOSE back while data that waits exceeds the window. A closed connection processes no
/// acknowledgement, so that the window stays full, and the peer waits for its idle timeout. RFC 9002 §7 does not limit packets
/// that are not ack-eliciting, as this one.
pub(crate) fn lift(connection: &Connection) {
    let controller = connection.congestion_state().clone_box().into_any();
    if let Ok(controller) = controller.downcast::<UntilClosed>() {
        controller.is_closed.store(true, Relaxed);
    }
}

/// A controller that limits a connection until it is closed. Its clones share whether it is.
struct UntilClosed {
    inner: Box<dyn Controller>,
    is_closed: Arc<AtomicBool>,
}

impl Controller for UntilClosed {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: Instant,
        in_flight: u64,
        app_limited: bool,
        largest_packet_num_acked: Option<u64>,
    ) {
        self.inner.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.inner.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.inner.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        if self.is_closed.load(Relaxed) { u64::MAX } else { self.inner.window() }
    }

    fn metrics(&self) -> ControllerMetrics {
        self.inner.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self { inner: self.inner.clone_box(), is_closed: Arc::clone(&self.is_closed) })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::Congestion;

    #[test]
    fn names_of_the_kernel() {
        for (name, algorithm) in [
            (&b"bbr\0\0"[..], Congestion::Bbr),
            (b"bbr2", Congestion::Bbr),
            (b"cubic\0", Congestion::Cubic),
            (b"reno", Congestion::Cubic),
            (b"", Congestion::Cubic),
        ] {
            assert_eq!(Congestion::named(name), algorithm, "{name:?}");
        }
        let name = std::fs::read("/proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default();
        assert_eq!(Congestion::of_tcp(), Congestion::named(&name));
    }
}
