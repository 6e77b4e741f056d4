//! The UDP sockets of a listener.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};

use dunlin_process::inheritance::{InheritedDatagrams, PassedDatagrams};
use dunlin_quic::{Group, Predecessor, Relay, Sockets, bind, probe, relay, steer};

use crate::listen::quic::{QuicSocket, identity};

/// The UDP sockets of a listener, one for each worker if possible.
pub(super) struct QuicSockets {
    address: SocketAddr,
    sockets: Arc<[UdpSocket]>,
    group: Arc<Group>,
    workers: usize,
    /// They belong to the service manager.
    is_managed: bool,
    /// The way to the process before this one, which reads the sockets until it has stopped.
    before: Mutex<Option<Predecessor>>,
}

/// Workers that connection IDs can name. Those beyond have no HTTP/3.
const WORKERS: usize = 256;

impl QuicSockets {
    /// Opens the sockets.
    ///
    /// # Errors
    /// When another program uses the port, the port is not permitted, or the system has no sockets.
    pub(super) fn bind(address: SocketAddr, workers: usize, is_own: bool) -> io::Result<Self> {
        if !is_own {
            probe(address)?;
        }
        let datagrams = InheritedDatagrams {
            address,
            sockets: vec![bind(address)?],
            is_managed: false,
            processes: Vec::new(),
        };
        Ok(Self::inherit(datagrams, workers))
    }

    /// Takes over the sockets of another process, and adds what is lacking.
    pub(super) fn inherit(inherited: InheritedDatagrams, workers: usize) -> Self {
        let InheritedDatagrams { address, mut sockets, is_managed, processes } = inherited;
        let workers = workers.min(WORKERS);
        while sockets.len() < workers
            && let Ok(socket) = bind(address)
        {
            sockets.push(socket);
        }
        if let Err(error) = steer(&sockets) {
            tracing::debug!("{address}: datagrams are passed between workers: {error}");
        }
        let is_before = |generation: u8| identity().generation == generation.wrapping_add(1);
        let before = processes.iter().find(|(generation, _)| is_before(*generation));
        let before = before.and_then(|(generation, way)| {
            Some(Predecessor::new(*generation, way.try_clone().ok()?))
        });
        let predecessors = processes.into_iter().map(|(number, way)| Predecessor::new(number, way));
        let group = Group::following(predecessors.collect());
        let group = if sockets.len() < workers { group.spread(workers) } else { group };
        let (sockets, group) = (sockets.into(), Arc::new(group));
        Self { address, sockets, group, workers, is_managed, before: Mutex::new(before) }
    }

    /// Reads the sockets as soon as the process before this one has stopped that.
    pub(super) fn follow(&self) {
        let before = self.before.lock().unwrap_or_else(PoisonError::into_inner).take();
        let group = Arc::clone(&self.group);
        tokio::spawn(async move {
            if let Some(before) = before {
                before.stopped().await;
            }
            group.resume();
        });
    }

    /// Returns what a worker gets; `None` if it has no part in HTTP/3.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub(super) fn for_worker(&self, number: usize) -> io::Result<Option<QuicSocket>> {
        if number >= self.workers {
            return Ok(None);
        }
        let count = self.sockets.len();
        let left = self.sockets.iter().enumerate().skip(self.workers);
        let left = left.filter(|(at, _)| at % self.workers == number);
        let sockets = Sockets {
            own: self.sockets[number % count].try_clone()?,
            is_borrowed: number >= count,
            left: left.map(|(_, socket)| socket.try_clone()).collect::<io::Result<_>>()?,
        };
        Ok(Some(QuicSocket { sockets, group: Arc::clone(&self.group) }))
    }

    /// Returns the part of the next process, and the end at which this one receives its datagrams from it.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub(super) fn pass(&self) -> io::Result<(PassedDatagrams, Succession)> {
        let (relay, other) = relay()?;
        let mut processes = self.group.predecessors();
        processes.push((identity().generation, other));
        let passed = PassedDatagrams {
            address: self.address,
            sockets: Arc::clone(&self.sockets),
            is_managed: self.is_managed,
            processes,
        };
        Ok((passed, Succession { relay, group: Arc::clone(&self.group) }))
    }
}

/// What a process does with an address that another process takes over.
pub(super) struct Succession {
    relay: Relay,
    group: Arc<Group>,
}

impl Succession {
    /// Stops reading the sockets, and serves the connections of this process with the datagrams that the next one forwards.
    pub(super) async fn begin(self) {
        let Self { relay, group } = self;
        group.pause().await;
        tokio::spawn(async move {
            if let Err(error) = relay.run(&identity().keys, &group).await {
                tracing::error!("datagrams of open QUIC connections are not received: {error}");
            }
        });
    }
}
