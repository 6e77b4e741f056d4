//! The listening sockets, and how a change of the configuration opens and closes them.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use dunlin_config::{Address, Http3, Listen};

use super::quic_sockets::{QuicSockets, Succession};
use crate::listen::quic::QuicSocket;
use crate::listen::{self, ListenSocket};
use dunlin_process::inheritance::{Inheritance, Inherited, PassedListener};
use dunlin_process::socket_remover::{FileId, SocketRemover, socket_at};
use dunlin_process::{StartError, fail};

/// The open listeners.
pub(super) struct Listeners {
    open: Vec<Open>,
    workers: usize,
    next: u64,
    /// Removes the files that this process may not remove.
    remover: Option<SocketRemover>,
}

/// A `[[listen]]` entry with its open sockets.
struct Open {
    id: u64,
    rules: Listen,
    /// One for each worker; only one where all workers accept from one queue.
    sockets: Arc<[ListenSocket]>,
    /// The sockets for HTTP/3. They stay open when it is switched off, so that clients learn of that at once.
    quic: Option<Arc<QuicSockets>>,
    /// The file of a Unix socket.
    file: Option<FileId>,
    /// They belong to the service manager; see [`Inherited`].
    is_managed: bool,
}

/// A prepared change of the listeners.
pub(super) struct ListenerPlan {
    wanted: Vec<Open>,
    next: u64,
}

/// A worker's part of a listener.
pub(super) struct WorkerListener {
    pub(super) id: u64,
    pub(super) rules: Listen,
    /// The sockets to accept from, if the listener is new.
    pub(super) sockets: Vec<ListenSocket>,
    /// The sockets for HTTP/3, if it begins.
    pub(super) quic: Option<QuicSocket>,
}

/// The addresses that a change has opened and closed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) opened: Vec<String>,
    pub(super) closed: Vec<String>,
}

impl Listeners {
    pub(super) fn new(workers: usize) -> Self {
        Self { open: Vec::new(), workers, next: 0, remover: None }
    }

    /// Opens the listeners of `wanted` that are not open yet. Open ones stay unchanged until [`Listeners::change`].
    ///
    /// # Errors
    /// The first address that cannot be bound.
    pub(super) fn plan(
        &self,
        wanted: &[Listen],
        inheritance: &mut Inheritance,
    ) -> Result<ListenerPlan, StartError> {
        let mut plan = ListenerPlan { wanted: Vec::new(), next: self.next };
        for rules in wanted {
            let existing = self.open.iter().find(|open| {
                let taken = plan.wanted.iter().any(|other| other.id == open.id);
                !taken && open.rules.is_same_socket(rules) && open.is_reachable()
            });
            let open = match existing {
                Some(open) => Open {
                    id: open.id,
                    rules: rules.clone(),
                    sockets: Arc::clone(&open.sockets),
                    quic: match &open.quic {
                        Some(quic) => Some(Arc::clone(quic)),
                        None => or_without(
                            rules,
                            self.quic_sockets(
                                rules,
                                open.local_address(),
                                &plan.wanted,
                                inheritance,
                            ),
                        )?,
                    },
                    file: open.file,
                    is_managed: open.is_managed,
                },
                None => {
                    plan.next += 1;
                    self.open(plan.next, rules, &plan.wanted, inheritance)?
                }
            };
            plan.wanted.push(open);
        }
        Ok(plan)
    }

    /// Applies a plan. Returns the listeners of each worker, and what has changed.
    pub(super) fn change(
        &mut self,
        plan: ListenerPlan,
    ) -> io::Result<(Vec<Vec<WorkerListener>>, Change)> {
        let mut per_worker: Vec<Vec<WorkerListener>> =
            (0..self.workers).map(|_| Vec::new()).collect();
        let mut change = Change::default();
        for Open { id, rules, sockets, quic, .. } in &plan.wanted {
            let before = self.open.iter().find(|open| open.id == *id);
            match before {
                Some(before) => before.adapt(rules)?,
                None => change.opened.push(rules.address.to_string()),
            }
            for (number, own) in per_worker.iter_mut().enumerate() {
                let mut clones = Vec::new();
                if before.is_none() {
                    for (at, socket) in sockets.iter().enumerate() {
                        let shared = sockets.len() == 1 && !rules.admin;
                        if shared || at % self.workers == number {
                            clones.push(socket.try_clone()?);
                        }
                    }
                }
                let is_new = before.is_none_or(|before| before.quic.is_none());
                let quic = match quic {
                    Some(quic) if is_new => quic.for_worker(number)?,
                    _ => None,
                };
                own.push(WorkerListener { id: *id, rules: rules.clone(), sockets: clones, quic });
            }
        }
        let before = std::mem::replace(&mut self.open, plan.wanted);
        self.next = plan.next;
        for open in before {
            if !self.open.iter().any(|other| other.id == open.id) {
                let address = open.rules.address.to_string();
                // A socket whose file was removed is bound again.
                if !change.opened.contains(&address) {
                    change.closed.push(address);
                }
                open.remove_file(self.remover.as_ref());
            }
        }
        Ok((per_worker, change))
    }

    /// Returns what the next process gets, and what follows for QUIC connections.
    ///
    /// # Errors
    /// When there is no descriptor left.
    pub(super) fn pass(&self) -> io::Result<(Vec<PassedListener>, Vec<Succession>)> {
        let (mut listeners, mut successions) = (Vec::new(), Vec::new());
        for open in &self.open {
            let passed = open.quic.as_ref().map(|quic| quic.pass()).transpose()?;
            let (datagrams, succession) = passed.unzip();
            successions.extend(succession);
            listeners.push(PassedListener {
                address: open.rules.address.to_string(),
                sockets: Arc::clone(&open.sockets),
                is_managed: open.is_managed,
                datagrams,
            });
        }
        Ok((listeners, successions))
    }

    /// Reads the UDP sockets of the process before this one as soon as it has stopped that.
    pub(super) fn follow(&self) {
        self.open.iter().filter_map(|open| open.quic.as_ref()).for_each(|quic| quic.follow());
    }

    /// Closes this process's descriptors of all listeners. The sockets, and the files of Unix sockets, belong to another
    /// process now.
    pub(super) fn release(&mut self) {
        self.open.clear();
        self.remover = None;
    }

    /// Returns the listeners that serve sites, as URLs that a browser on this machine can open. Wildcard addresses cannot be
    /// opened, and follow in parentheses.
    pub(super) fn urls(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        let mut wildcards: Vec<(u16, bool)> = Vec::new();
        for open in self.open.iter().filter(|open| !open.rules.admin) {
            match open.local_address() {
                Some(address) if address.ip().is_unspecified() => {
                    let key = (address.port(), open.rules.tls);
                    if !wildcards.contains(&key) {
                        wildcards.push(key);
                        let scheme = open.scheme();
                        let bound = self.wildcard_addresses(key).join(" and ");
                        let port = address.port();
                        lines.push(format!("{scheme}://localhost:{port}/ (listening on {bound})"));
                    }
                }
                Some(address) => lines.push(format!("{}://{address}/", open.scheme())),
                None => lines.push(open.rules.address.to_string()),
            }
        }
        lines
    }

    /// Returns the wildcard addresses that are bound to a port.
    fn wildcard_addresses(&self, key: (u16, bool)) -> Vec<String> {
        let open = self.open.iter().filter(|open| !open.rules.admin && open.rules.tls == key.1);
        let addresses = open.filter_map(Open::local_address);
        let same = |address: &SocketAddr| address.ip().is_unspecified() && address.port() == key.0;
        addresses.filter(same).map(|address| address.to_string()).collect()
    }

    /// Returns all listening addresses, for the log.
    pub(super) fn addresses(&self) -> Vec<String> {
        let line = |open: &Open| {
            let address = open
                .local_address()
                .map_or_else(|| open.rules.address.to_string(), |address| address.to_string());
            let note = match (open.rules.admin, open.rules.tls) {
                (true, _) => " (admin)",
                (false, true) => " (TLS)",
                (false, false) => "",
            };
            format!("{address}{note}")
        };
        self.open.iter().map(line).collect()
    }

    /// Closes all listeners and removes the files of Unix sockets.
    pub(super) fn close(&mut self) {
        let remover = self.remover.as_ref();
        self.open.drain(..).for_each(|open| open.remove_file(remover));
    }

    /// Has `remover` remove the files of the sockets that are open now, when they are not in use any more.
    pub(super) fn removed_by(&mut self, remover: Option<SocketRemover>) {
        self.remover = remover;
        let Some(remover) = &mut self.remover else { return };
        remover.watch(self.open.iter().filter(|open| !open.is_managed).filter_map(|open| {
            match &open.rules.address {
                Address::Unix(path) => Some((&**path, open.file?)),
                Address::Tcp(_) => None,
            }
        }));
    }

    /// Waits until the files of all sockets are removed, up to `limit`.
    pub(super) fn finish(self, limit: Duration) {
        if let Some(remover) = self.remover {
            remover.finish(limit);
        }
    }

    /// Opens a listener. One whose port the system chooses has the same port for TCP and UDP.
    fn open(
        &self,
        id: u64,
        rules: &Listen,
        others: &[Open],
        inheritance: &mut Inheritance,
    ) -> Result<Open, StartError> {
        let is_chosen = matches!(&rules.address, Address::Tcp(address) if address.port() == 0);
        let mut attempts = if is_chosen { PORTS } else { 1 };
        loop {
            attempts -= 1;
            let is_first = inheritance.listeners.is_empty();
            let (sockets, is_managed) = self.obtain(rules, &mut inheritance.listeners)?;
            let address = sockets.first().and_then(local_address);
            let quic = match self.quic_sockets(rules, address, others, inheritance) {
                Err(error) if is_in_use(&error) && attempts > 0 && is_first => continue,
                quic => or_without(rules, quic)?,
            };
            return Ok(Open {
                id,
                rules: rules.clone(),
                sockets: sockets.into(),
                quic,
                file: file_of(rules),
                is_managed,
            });
        }
    }

    /// Returns the sockets for an address, inherited or new, and whether they belong to the service manager.
    fn obtain(
        &self,
        rules: &Listen,
        inherited: &mut Vec<Inherited>,
    ) -> Result<(Vec<ListenSocket>, bool), StartError> {
        let address = rules.address.to_string();
        let (mut sockets, mut is_managed) = (Vec::new(), false);
        while let Some(at) = inherited.iter().position(|inherited| inherited.address == address) {
            let mut found = inherited.remove(at);
            sockets.append(&mut found.sockets);
            is_managed |= found.is_managed;
            // Several addresses with port 0 are distinguished by their order.
            if address.ends_with(":0") {
                break;
            }
        }
        if sockets.is_empty() {
            return Ok((self.bind(rules)?, false));
        }
        // The number of workers may have increased.
        if let Some(ListenSocket::Tcp(first)) = sockets.first()
            && sockets.len() > 1
            && let Ok(address) = first.local_addr()
        {
            while sockets.len() < self.workers
                && let Ok(socket) = listen::bind(address, rules.backlog)
            {
                sockets.push(ListenSocket::Tcp(socket));
            }
        }
        Ok((sockets, is_managed))
    }

    /// Takes over or opens the UDP sockets of a listener; `None` if it has no HTTP/3.
    fn quic_sockets(
        &self,
        rules: &Listen,
        address: Option<SocketAddr>,
        others: &[Open],
        inheritance: &mut Inheritance,
    ) -> io::Result<Option<Arc<QuicSockets>>> {
        let Some(address) = address.filter(|_| rules.http3.is_wanted()) else { return Ok(None) };
        let sockets = match inheritance.take_datagrams(address) {
            Some(inherited) => QuicSockets::inherit(inherited, self.workers),
            None => QuicSockets::bind(address, self.workers, self.has_port(others, address))?,
        };
        Ok(Some(Arc::new(sockets)))
    }

    /// Returns `true` if a listener of this server has the port, at this or another address.
    fn has_port(&self, others: &[Open], address: SocketAddr) -> bool {
        let is_same =
            |open: &Open| open.local_address().is_some_and(|own| own.port() == address.port());
        self.open.iter().chain(others).any(is_same)
    }

    fn bind(&self, rules: &Listen) -> Result<Vec<ListenSocket>, StartError> {
        let explain = |error: io::Error| {
            let unix = matches!(rules.address, Address::Unix(_));
            let hint = match error.kind() {
                // The message has the reason.
                _ if error.get_ref().is_some() => "",
                io::ErrorKind::AddrInUse if unix => "; another program listens on it",
                io::ErrorKind::AddrInUse => "; another program uses it: choose another port",
                io::ErrorKind::PermissionDenied if unix => {
                    "; check that this user may write to the directory"
                }
                io::ErrorKind::NotFound => "; check that the directory exists",
                io::ErrorKind::PermissionDenied => {
                    "; ports below 1024 need root or CAP_NET_BIND_SERVICE"
                }
                io::ErrorKind::AddrNotAvailable => "; this machine does not have that address",
                _ => "",
            };
            fail(format!("listening on {}: {error}{hint}", rules.address))
        };
        let mut address = match &rules.address {
            Address::Unix(path) => {
                let socket = listen::bind_unix(path, rules.mode, rules.backlog).map_err(explain)?;
                return Ok(vec![ListenSocket::Unix(socket)]);
            }
            Address::Tcp(address) => *address,
        };
        // A wildcard and a specific address of this server may share a port.
        let own = self.open.iter().any(
            |open| matches!(&open.rules.address, Address::Tcp(tcp) if tcp.port() == address.port()),
        );
        if !own {
            listen::probe(address).map_err(explain)?;
        }
        let mut sockets = Vec::new();
        for _ in 0..self.workers {
            let socket = listen::bind(address, rules.backlog).map_err(explain)?;
            // The kernel chooses port 0 once; the other sockets share it.
            address = socket.local_addr().map_err(explain)?;
            sockets.push(ListenSocket::Tcp(socket));
        }
        Ok(sockets)
    }
}

impl Open {
    /// Applies changed rules to the open sockets.
    fn adapt(&self, rules: &Listen) -> io::Result<()> {
        if self.rules.backlog != rules.backlog {
            for socket in &*self.sockets {
                rustix::net::listen(socket, rules.backlog)?;
            }
        }
        if let Address::Unix(path) = &rules.address
            && self.rules.mode != rules.mode
        {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(rules.mode))?;
        }
        Ok(())
    }

    fn scheme(&self) -> &'static str {
        if self.rules.tls { "https" } else { "http" }
    }

    /// Returns the address that the socket is bound to; `None` for a Unix socket.
    fn local_address(&self) -> Option<SocketAddr> {
        self.sockets.first().and_then(local_address)
    }

    /// Returns `true` if clients that open the path of a Unix socket reach this one. That of a service manager is not
    /// replaced.
    fn is_reachable(&self) -> bool {
        let Address::Unix(path) = &self.rules.address else { return true };
        if self.is_managed || self.file.is_none() {
            return true;
        }
        // The user of this process may not look into the directory.
        let is_missing = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
        path.symlink_metadata()
            .map_or_else(|error| !is_missing(error), |_| file_of(&self.rules) == self.file)
    }

    fn remove_file(&self, remover: Option<&SocketRemover>) {
        if let Address::Unix(path) = &self.rules.address
            && !self.is_managed
            && file_of(&self.rules) == self.file
        {
            // The file may have been removed already.
            if let Err(error) = std::fs::remove_file(path)
                && error.kind() == io::ErrorKind::PermissionDenied
                && remover.is_none_or(|remover| !remover.removes(path))
            {
                tracing::warn!(
                    "{} cannot be removed: {error}; use a directory that the server's user may write to",
                    self.rules.address
                );
            }
        }
    }
}

/// Numbers of ports that are tried until one is free for both TCP and UDP.
const PORTS: usize = 32;

/// Has a listener go without HTTP/3 if its UDP port cannot be opened, unless the configuration requires it.
fn or_without(
    rules: &Listen,
    opened: io::Result<Option<Arc<QuicSockets>>>,
) -> Result<Option<Arc<QuicSockets>>, StartError> {
    let error = match opened {
        Ok(sockets) => return Ok(sockets),
        Err(error) => error,
    };
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => "; another program uses it",
        io::ErrorKind::PermissionDenied => "; ports below 1024 need root or CAP_NET_BIND_SERVICE",
        _ => "",
    };
    let what = format!("opening the UDP port of {}: {error}{hint}", rules.address);
    if rules.http3 == Http3::Required {
        return Err(fail(format!("http3: {what}")));
    }
    tracing::warn!("no HTTP/3: {what}; http3 = false in [[listen]] switches it off");
    Ok(None)
}

fn is_in_use(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrInUse
}

/// Returns the address that a socket is bound to; `None` for a Unix socket.
fn local_address(socket: &ListenSocket) -> Option<SocketAddr> {
    match socket {
        ListenSocket::Tcp(socket) => socket.local_addr().ok(),
        ListenSocket::Unix(_) => None,
    }
}

/// Returns the file of a Unix socket.
fn file_of(rules: &Listen) -> Option<FileId> {
    match &rules.address {
        Address::Unix(path) => socket_at(path),
        Address::Tcp(_) => None,
    }
}
