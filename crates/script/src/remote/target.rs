//! One address of workers: its load, its failures and its idle connections.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use dunlin_config::Address;
use tokio::net::{TcpStream, UnixStream};

use crate::socket::connection::WorkerSocket;

/// An address of workers.
#[derive(Debug)]
pub(super) struct RemoteTarget {
    pub(super) address: Address,
    in_flight: AtomicUsize,
    /// Unreachable: not tried before this time unless all others are unreachable too.
    down: Mutex<Option<Instant>>,
    idle: Mutex<Vec<(ThreadId, WorkerSocket)>>,
}

impl RemoteTarget {
    pub(super) fn new(address: Address) -> Self {
        Self {
            address,
            in_flight: AtomicUsize::new(0),
            down: Mutex::new(None),
            idle: Mutex::new(Vec::new()),
        }
    }

    /// Requests that use it.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn begin(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) async fn open(&self) -> std::io::Result<WorkerSocket> {
        Ok(match &self.address {
            Address::Unix(path) => WorkerSocket::Unix(UnixStream::connect(path).await?),
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                WorkerSocket::Tcp(stream)
            }
        })
    }

    pub(super) fn is_down(&self, now: Instant) -> bool {
        self.down.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|until| until > now)
    }

    /// Marks it as unreachable for a while. Returns `true` if it was reachable.
    pub(super) fn mark_down(&self, time: Duration) -> bool {
        let mut down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        down.replace(Instant::now() + time).is_none()
    }

    pub(super) fn mark_up(&self) {
        let mut down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        if down.take().is_some() {
            tracing::info!("the worker at {} can be reached again", self.address);
        }
    }

    /// Clears its failure: it is tried, and reported, again.
    pub(super) fn resume(&self) {
        *self.down.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(super) fn take_idle(&self) -> Option<WorkerSocket> {
        let owner = std::thread::current().id();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let at = idle
                .iter()
                .rposition(|(other, _)| *other == owner)
                .or(idle.len().checked_sub(1))?;
            let (other, socket) = idle.swap_remove(at);
            if !socket.is_reusable() {
                continue;
            }
            if other == owner {
                return Some(socket);
            }
            // A connection of another worker thread has to be registered with this one.
            if let Ok(socket) = socket.reregister() {
                return Some(socket);
            }
        }
    }

    pub(super) fn keep(&self, socket: WorkerSocket) {
        let owner = std::thread::current().id();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push((owner, socket));
    }
}
