//! The parameters of connections.

use std::sync::Arc;
use std::time::Duration;

use quinn_proto::{ClientConfig, IdleTimeout, ServerConfig, TransportConfig, VarInt, crypto};

use crate::congestion::Congestion;
use crate::keys::Keys;

/// What a connection grants its peer, and how it sends.
#[derive(Debug, Clone)]
pub struct TransportSettings {
    /// Streams that the peer may have open in both directions.
    pub streams: u32,
    /// Streams that the peer may have open in one direction.
    pub unidirectional_streams: u32,
    /// Bytes of a stream that the peer may send before they are read.
    pub stream_window: u32,
    /// Bytes of all streams that the peer may send before they are read.
    pub window: u32,
    /// Bytes that were written and not acknowledged, at most.
    pub send_window: u64,
    /// Time without packets after which the connection is lost.
    pub idle_timeout: Duration,
    /// The algorithm of congestion control.
    pub congestion: Congestion,
}

impl Default for TransportSettings {
    fn default() -> Self {
        Self {
            streams: 128,
            unidirectional_streams: 8,
            stream_window: 256 * 1024,
            window: 1024 * 1024,
            send_window: 1024 * 1024,
            idle_timeout: Duration::from_secs(60),
            congestion: Congestion::default(),
        }
    }
}

impl TransportSettings {
    fn config(&self) -> Arc<TransportConfig> {
        let mut config = TransportConfig::default();
        config
            .max_concurrent_bidi_streams(self.streams.into())
            .max_concurrent_uni_streams(self.unidirectional_streams.into())
            .stream_receive_window(self.stream_window.into())
            .receive_window(self.window.into())
            .send_window(self.send_window)
            .max_idle_timeout(Some(idle_timeout(self.idle_timeout)))
            // What has begun is completed before what comes later, as RFC 9218 wants it of responses that are not incremental.
            .send_fairness(false)
            .datagram_receive_buffer_size(None)
            .congestion_controller_factory(Arc::new(self.congestion));
        Arc::new(config)
    }
}

fn idle_timeout(time: Duration) -> IdleTimeout {
    let millis = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    VarInt::from_u32(millis).into()
}

/// Returns the configuration of a server's connections.
pub fn server_config(
    keys: &Keys,
    crypto: Arc<dyn crypto::ServerConfig>,
    settings: &TransportSettings,
) -> Arc<ServerConfig> {
    let mut config = ServerConfig::new(crypto, Arc::new(keys.clone()));
    config.transport_config(settings.config());
    Arc::new(config)
}

/// Returns the configuration of a client's connections.
pub fn client_config(
    crypto: Arc<dyn crypto::ClientConfig>,
    settings: &TransportSettings,
) -> ClientConfig {
    let mut config = ClientConfig::new(crypto);
    config.transport_config(settings.config());
    config
}
