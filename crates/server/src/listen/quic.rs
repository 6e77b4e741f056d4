//! Accepting QUIC connections.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use dunlin_config::CongestionControl;
use dunlin_net::address::Peer;
use dunlin_net::clock;
use dunlin_process::inheritance::QuicSecrets;
use dunlin_quic::crypto::ServerCrypto;
use dunlin_quic::proto::ServerConfig;
use dunlin_quic::{
    Accept, Attempt, Congestion, Connection, Decision, Endpoint, Group, Keys, Place, QlogDirectory,
    Sockets, TransportSettings, server_config,
};
use dunlin_telemetry::ConnectionStart;
use dunlin_telemetry::metrics::Handshake;
use dunlin_tls::{QuicSession, QuicSites};

use super::ListenerHandle;
use crate::drive::http3::{FIRST_STREAMS, Http3Driver, QuicCarrier};
use crate::exchange::link::Accepted;
use crate::worker::{SharedState, Worker, WorkerContext};

/// Handshakes in progress of a worker from which on clients have to show that they receive what is sent to their address.
const RETRY_FROM: usize = 256;

/// Streams in one direction of a client: three that HTTP/3 has, and some of extensions.
const UNIDIRECTIONAL_STREAMS: u32 = 8;

/// By what the datagrams of this process are recognized.
pub(crate) struct QuicIdentity {
    pub(crate) keys: Keys,
    /// Connection IDs name it.
    pub(crate) generation: u8,
}

static IDENTITY: OnceLock<QuicIdentity> = OnceLock::new();

/// Continues the identity of the process before this one, before [`identity`] is used.
pub(crate) fn continue_identity(before: &QuicSecrets) {
    let keys = Keys::of(&before.own);
    before.shared.iter().for_each(|shared| keys.share(shared));
    let generation = before.generation.wrapping_add(1);
    IDENTITY.get_or_init(|| QuicIdentity { keys, generation });
}

/// Returns the identity of this process.
pub(crate) fn identity() -> &'static QuicIdentity {
    IDENTITY.get_or_init(|| {
        // Without random numbers, no handshake succeeds either.
        let keys = Keys::random().unwrap_or_else(|_| Keys::of(&[0; 32]));
        QuicIdentity { keys, generation: 0 }
    })
}

/// Returns what the process that follows this one needs to have the same identity.
pub(crate) fn secrets() -> QuicSecrets {
    let QuicIdentity { keys, generation } = identity();
    let (own, shared) = keys.secrets();
    QuicSecrets { generation: *generation, own, shared }
}

/// A worker's UDP sockets, and the endpoints of all workers for the address.
pub(crate) struct QuicSocket {
    pub(crate) sockets: Sockets,
    pub(crate) group: Arc<Group>,
}

/// Starts the endpoint of a listener on this worker.
///
/// # Errors
/// When the socket cannot be used.
pub(crate) fn serve(
    worker: &Rc<Worker>,
    handle: &Rc<ListenerHandle>,
    socket: QuicSocket,
) -> io::Result<Rc<Endpoint>> {
    let QuicSocket { sockets, group } = socket;
    let address = sockets.own.local_addr()?;
    start(worker, handle, address, |place, keys, config| {
        Endpoint::new(sockets, place, keys, Some(config), &group)
    })
}

/// Starts an endpoint in memory.
#[cfg(test)]
pub(crate) fn serve_in_memory(
    worker: &Rc<Worker>,
    handle: &Rc<ListenerHandle>,
    address: SocketAddr,
) -> io::Result<Rc<Endpoint>> {
    start(worker, handle, address, |place, keys, config| {
        Endpoint::in_memory(address, place, keys, Some(config))
    })
}

fn start(
    worker: &Rc<Worker>,
    handle: &Rc<ListenerHandle>,
    address: SocketAddr,
    make: impl FnOnce(Place, &Keys, Arc<ServerConfig>) -> io::Result<Rc<Endpoint>>,
) -> io::Result<Rc<Endpoint>> {
    let QuicIdentity { keys, generation } = identity();
    let (worker, handle) = (Rc::clone(worker), Rc::clone(handle));
    let acceptor = Acceptor {
        worker: Rc::clone(&worker),
        handle: Rc::clone(&handle),
        keys: keys.clone(),
        address,
        config: RefCell::default(),
        handshakes: Rc::default(),
    };
    let current = worker.current().ok_or(io::ErrorKind::NotConnected)?;
    let config = acceptor.config(&current)?;
    let place = Place { worker: worker.number() as u8, generation: *generation };
    let endpoint = make(place, keys, config.config)?;
    let running = Rc::clone(&endpoint);
    tokio::task::spawn_local(async move {
        if let Err(error) = running.run(acceptor).await {
            tracing::error!("{address} has no HTTP/3 any more: {error}");
        }
    });
    let closing = Rc::clone(&endpoint);
    tokio::task::spawn_local(async move {
        handle.shut(&worker).await;
        closing.close();
    });
    Ok(endpoint)
}

/// Accepts the connections of a listener.
struct Acceptor {
    worker: Rc<Worker>,
    handle: Rc<ListenerHandle>,
    keys: Keys,
    address: SocketAddr,
    config: RefCell<Option<Current>>,
    /// Handshakes in progress.
    handshakes: Rc<Cell<usize>>,
}

/// The configuration of new connections.
#[derive(Clone)]
struct Current {
    /// The state that it was made of.
    of: Weak<SharedState>,
    config: Arc<ServerConfig>,
    records: Option<Arc<QlogDirectory>>,
}

/// The directory of records, which all workers share.
static RECORDS: Mutex<Option<Arc<QlogDirectory>>> = Mutex::new(None);

/// Returns the directory of records at `path`.
fn records(path: &Path) -> Option<Arc<QlogDirectory>> {
    let mut records = RECORDS.lock().unwrap_or_else(PoisonError::into_inner);
    if records.as_ref().is_none_or(|directory| directory.path() != path) {
        match QlogDirectory::new(path.to_owned()) {
            Ok(directory) => *records = Some(Arc::new(directory)),
            Err(error) => {
                tracing::warn!("http3: qlog {}: {error}", path.display());
                return None;
            }
        }
    }
    records.clone()
}

impl Acceptor {
    /// Returns the configuration of new connections.
    fn config(&self, ctx: &WorkerContext) -> io::Result<Current> {
        if let Some(current) = &*self.config.borrow()
            && std::ptr::eq(current.of.as_ptr(), Arc::as_ptr(&ctx.shared))
        {
            return Ok(current.clone());
        }
        let sites = QuicSites {
            listener: self.handle.rules.borrow().number,
            address: self.address.ip(),
            config: Arc::clone(&ctx.shared.config),
            certificates: Arc::clone(&ctx.shared.certificates),
        };
        let crypto = ServerCrypto::new(Arc::new(sites)).map_err(io::Error::other)?;
        let settings = TransportSettings {
            streams: FIRST_STREAMS,
            unidirectional_streams: UNIDIRECTIONAL_STREAMS,
            // The adapter closes idle connections before.
            idle_timeout: Duration::from_millis(ctx.http1.idle_timeout) + Duration::from_secs(5),
            congestion: match ctx.shared.config.server.http3.congestion {
                CongestionControl::System => Congestion::of_tcp(),
                CongestionControl::Cubic => Congestion::Cubic,
                CongestionControl::Bbr => Congestion::Bbr,
            },
            ..TransportSettings::default()
        };
        let current = Current {
            of: Arc::downgrade(&ctx.shared),
            config: server_config(&self.keys, Arc::new(crypto), &settings),
            records: ctx.shared.config.qlog_directory().and_then(records),
        };
        self.config.replace(Some(current.clone()));
        Ok(current)
    }
}

impl Accept for Acceptor {
    fn records(&self) -> Option<Arc<QlogDirectory>> {
        self.config.borrow().as_ref()?.records.clone()
    }

    fn decide(&self, attempt: &Attempt) -> Decision {
        let Some(ctx) = self.worker.current() else { return Decision::Reject };
        if !self.handle.rules.borrow().http3.is_wanted() {
            return Decision::Reject;
        }
        // A client that is rejected connects by TCP, and waits there.
        if ctx.shared.limiter.is_full() || ctx.is_draining() {
            return Decision::Reject;
        }
        if self.handshakes.get() >= RETRY_FROM && !attempt.is_validated {
            return Decision::Retry;
        }
        match self.config(&ctx) {
            Ok(current) => Decision::Accept(current.config),
            Err(error) => {
                tracing::error!("HTTP/3: {error}");
                Decision::Reject
            }
        }
    }

    fn begin(&self, connection: Connection) {
        let Some(ctx) = self.worker.current() else { return };
        ctx.wake_ticker();
        ctx.metrics.accepted();
        let peer = Peer::of(connection.remote());
        let mut permit = ctx.shared.limiter.extra_permit();
        if !permit.belongs_to(peer) {
            return;
        }
        let accepted = Accepted {
            peer,
            listener: self.handle.rules.borrow().number,
            proxied: None,
            permit,
            connection_start: ctx.has_telemetry().then(ConnectionStart::now),
            arrived: Vec::new(),
            alternative: None,
        };
        self.handshakes.set(self.handshakes.get() + 1);
        let handshake = HandshakeInProgress(Rc::clone(&self.handshakes));
        tokio::task::spawn_local(prepare(ctx, connection, accepted, handshake));
    }
}

/// A handshake that is counted.
pub(crate) struct HandshakeInProgress(Rc<Cell<usize>>);

impl Drop for HandshakeInProgress {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Completes the handshake, and starts the protocol adapter.
async fn prepare(
    ctx: Rc<WorkerContext>,
    connection: Connection,
    mut accepted: Accepted,
    handshake: HandshakeInProgress,
) {
    // A worker that drains waits for it as for any connection.
    let slot = ctx.connections.add(ctx.clock.now(), accepted.peer.network());
    let limit = Duration::from_millis(ctx.http1.head_timeout);
    let result = tokio::select! {
        result = clock::timeout(limit, connection.readable()) => result,
        () = ctx.closing() => None,
        () = ctx.connections.evicted(slot) => None,
    };
    ctx.connections.remove(slot);
    let is_early = connection.is_early();
    let session = match result {
        Some(Ok(())) => connection
            .handshake()
            .and_then(|summary| QuicSession::new(accepted.listener, summary, is_early)),
        Some(Err(error)) => {
            ctx.metrics.handshake(Handshake::Failed);
            tracing::debug!(peer = %accepted.peer, "QUIC handshake: {error}");
            return;
        }
        None => {
            ctx.metrics.handshake(Handshake::Late);
            tracing::debug!(peer = %accepted.peer, "QUIC handshake: timed out");
            return;
        }
    };
    let Some(session) = session else { return };
    ctx.wake_ticker();
    ctx.metrics.handshake(match session.is_resumed() {
        true => Handshake::Resumed,
        false => Handshake::Full,
    });
    if let Some(connection_start) = &mut accepted.connection_start {
        connection_start.secured = Some(clock::now());
    }
    let carrier = QuicCarrier { connection, session };
    let handshake = is_early.then_some(handshake);
    tokio::task::spawn_local(Http3Driver::new(ctx, carrier, accepted, handshake));
}
