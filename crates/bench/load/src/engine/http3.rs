//! The adapter of HTTP/3 to the engine of streams: QUIC by `dunlin-quic`, HTTP/3 by the client side of the engine of the server.

mod driver;
mod exchange;

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use dunlin_quic::proto::crypto::rustls::QuicClientConfig;
use dunlin_quic::{
    Accept, Attempt, Connection, Decision, Endpoint, Keys, Place, TransportSettings, bind_alone,
    client_config,
};

use self::driver::{Driver, State};
use super::job::Job;
use super::recorder::{ConnectionRecord, SharedRecorder};
use super::response::PartialResponse;
use super::streams::{Failed, LiveConnection, Seen, StreamProtocol};

/// Bytes that the server may send before they are read: flow control never blocks it.
const WINDOW: u32 = 1 << 30;

/// The handle of a connection of HTTP/3.
pub(super) struct Http3(Rc<RefCell<State>>);

impl StreamProtocol for Http3 {
    async fn open(
        job: &Job,
        recorder: &SharedRecorder,
        record: &mut ConnectionRecord,
        seen: &Rc<Seen>,
    ) -> io::Result<Self> {
        let Some(tls) = &job.tls else {
            return Err(io::Error::other("HTTP/3 needs https://"));
        };
        let crypto =
            QuicClientConfig::try_from(Arc::clone(&tls.config)).map_err(io::Error::other)?;
        let settings = TransportSettings {
            // A server opens none but those of the connection.
            streams: 0,
            stream_window: WINDOW,
            window: WINDOW,
            idle_timeout: Duration::from_secs_f64(job.plan.timeout_seconds.max(1.0)),
            ..TransportSettings::default()
        };
        let connection = connect(job, client_config(Arc::new(crypto), &settings))?;
        recorder.now().connect(record);
        let early = (job.plan.early_data && connection.state().has_0rtt()).then_some(*record);
        if early.is_none() {
            connection.connected().await.map_err(io::Error::other)?;
            recorder.now().handshake(record, false);
        }
        let state = State::new(connection, recorder.clone(), Rc::clone(seen), early);
        let state = Rc::new(RefCell::new(state));
        tokio::task::spawn_local(Driver(Rc::clone(&state)));
        Ok(Self(state))
    }

    fn max_streams(&self) -> usize {
        // The transport has a request wait until the server permits its stream.
        usize::MAX
    }

    async fn exchange(
        live: &LiveConnection<Self>,
        job: &Job,
        recorder: &SharedRecorder,
        url: u32,
    ) -> Result<PartialResponse, Failed> {
        exchange::run(live, &live.client.0, job, recorder, url).await
    }
}

impl Drop for Http3 {
    fn drop(&mut self) {
        self.0.borrow_mut().abandon();
    }
}

/// Begins a connection, from a socket of its own as those of browsers.
fn connect(job: &Job, config: dunlin_quic::proto::ClientConfig) -> io::Result<Connection> {
    let own: SocketAddr = match job.address {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let place = Place { worker: 0, generation: 0 };
    let endpoint = Endpoint::new(bind_alone(own)?, place, &Keys::random()?, None, &Arc::default())?;
    let name = job.tls.as_ref().map(|tls| tls.name.to_str().into_owned()).unwrap_or_default();
    let connection = endpoint.connect(config, job.address, &name).map_err(io::Error::other)?;
    // It ends with the connection.
    endpoint.close();
    tokio::task::spawn_local(endpoint.run(NoServer));
    Ok(connection)
}

/// A client accepts no connections.
struct NoServer;

impl Accept for NoServer {
    fn decide(&self, _attempt: &Attempt) -> Decision {
        Decision::Ignore
    }

    fn begin(&self, _connection: Connection) {}
}
