//! Every socket that is listened on, and what becomes of them when the configuration changes.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use super::handover::Inherited;
use super::new_process::Handed;
use super::{StartError, fail};
use crate::config::{Address, Listen};
use crate::listen::{self, ListenSocket};

/// The open listeners.
pub(super) struct Listeners {
    open: Vec<Open>,
    workers: usize,
    next: u64,
}

/// One entry of the configuration, open.
struct Open {
    id: u64,
    rules: Listen,
    /// One for each worker; only one where the system deals connections out from one queue.
    sockets: Arc<[ListenSocket]>,
    /// They are the service manager's; see [`Inherited`].
    is_managed: bool,
}

/// What listeners are to become.
pub(super) struct Plan {
    wanted: Vec<Open>,
    next: u64,
}

/// One worker's part of a listener.
pub(super) struct Port {
    pub(super) id: u64,
    pub(super) rules: Listen,
    /// Those to accept from, when the worker does not yet.
    pub(super) sockets: Vec<ListenSocket>,
}

/// What a change came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) opened: Vec<String>,
    pub(super) closed: Vec<String>,
}

impl Listeners {
    pub(super) fn new(workers: usize) -> Self {
        Self { open: Vec::new(), workers, next: 0 }
    }

    /// Opens what of `wanted` is not open; what is open stays as it is until [`Listeners::change`].
    ///
    /// # Errors
    /// The first address that cannot be listened on.
    pub(super) fn plan(
        &self,
        wanted: &[Listen],
        inherited: &mut Vec<Inherited>,
    ) -> Result<Plan, StartError> {
        let mut plan = Plan { wanted: Vec::new(), next: self.next };
        for rules in wanted {
            let known = self.open.iter().find(|open| {
                let taken = plan.wanted.iter().any(|other| other.id == open.id);
                !taken && open.rules.is_same_socket(rules)
            });
            let open = match known {
                Some(open) => Open {
                    id: open.id,
                    rules: rules.clone(),
                    sockets: Arc::clone(&open.sockets),
                    is_managed: open.is_managed,
                },
                None => {
                    plan.next += 1;
                    let (sockets, is_managed) = self.obtain(rules, inherited)?;
                    Open {
                        id: plan.next,
                        rules: rules.clone(),
                        sockets: sockets.into(),
                        is_managed,
                    }
                }
            };
            plan.wanted.push(open);
        }
        Ok(plan)
    }

    /// Takes over what was planned, and says what each worker accepts from.
    pub(super) fn change(&mut self, plan: Plan) -> io::Result<(Vec<Vec<Port>>, Change)> {
        let mut ports: Vec<Vec<Port>> = (0..self.workers).map(|_| Vec::new()).collect();
        let mut change = Change::default();
        for Open { id, rules, sockets, .. } in &plan.wanted {
            let before = self.open.iter().find(|open| open.id == *id);
            match before {
                Some(before) => before.adapt(rules)?,
                None => change.opened.push(rules.address.to_string()),
            }
            for (number, ports) in ports.iter_mut().enumerate() {
                let mut own = Vec::new();
                if before.is_none() {
                    for (at, socket) in sockets.iter().enumerate() {
                        let shared = sockets.len() == 1 && !rules.admin;
                        if shared || at % self.workers == number {
                            own.push(socket.try_clone()?);
                        }
                    }
                }
                ports.push(Port { id: *id, rules: rules.clone(), sockets: own });
            }
        }
        let before = std::mem::replace(&mut self.open, plan.wanted);
        self.next = plan.next;
        for open in before {
            if !self.open.iter().any(|other| other.id == open.id) {
                change.closed.push(open.rules.address.to_string());
                open.remove_file();
            }
        }
        Ok((ports, change))
    }

    /// Every address with its sockets, and whether they are the service manager's.
    pub(super) fn iter(&self) -> impl Iterator<Item = Handed> {
        self.open.iter().map(|open| {
            (open.rules.address.to_string(), Arc::clone(&open.sockets), open.is_managed)
        })
    }

    /// Lets go of all of them; they, and the files of Unix sockets, are another process's now.
    pub(super) fn leave(&mut self) {
        self.open.clear();
    }

    /// Those that serve sites, as URLs that a browser on this machine can open. Addresses that stand for every
    /// address of the machine are not such, and are added in parentheses.
    pub(super) fn urls(&self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        let mut everywhere: Vec<(u16, bool)> = Vec::new();
        for open in self.open.iter().filter(|open| !open.rules.admin) {
            match open.local_address() {
                Some(address) if address.ip().is_unspecified() => {
                    let key = (address.port(), open.rules.tls);
                    if !everywhere.contains(&key) {
                        everywhere.push(key);
                        let scheme = open.scheme();
                        let bound = self.bound_everywhere(key).join(" and ");
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

    /// The addresses of that port that stand for every address of the machine.
    fn bound_everywhere(&self, key: (u16, bool)) -> Vec<String> {
        let open = self.open.iter().filter(|open| !open.rules.admin && open.rules.tls == key.1);
        let addresses = open.filter_map(Open::local_address);
        let same = |address: &SocketAddr| address.ip().is_unspecified() && address.port() == key.0;
        addresses.filter(same).map(|address| address.to_string()).collect()
    }

    /// Every address that is listened on, for the log.
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

    /// Lets go of all of them, with the files of Unix sockets, at the end.
    pub(super) fn close(&mut self) {
        self.open.drain(..).for_each(|open| open.remove_file());
    }

    /// The sockets of an address: those that were inherited, or new ones; and whether they are the
    /// service manager's.
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
            // Several addresses with port 0 are told apart by their order only.
            if address.ends_with(":0") {
                break;
            }
        }
        if sockets.is_empty() {
            return Ok((self.bind(rules)?, false));
        }
        // There may be more workers than there were.
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

    fn bind(&self, rules: &Listen) -> Result<Vec<ListenSocket>, StartError> {
        let explain = |error: io::Error| {
            let unix = matches!(rules.address, Address::Unix(_));
            let hint = match error.kind() {
                io::ErrorKind::AddrInUse if unix => "; another program listens there",
                io::ErrorKind::AddrInUse => "; another program has it, choose another port",
                io::ErrorKind::PermissionDenied if unix => {
                    "; check that the folder may be written by this user"
                }
                io::ErrorKind::NotFound => "; check that the folder exists",
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
        // A wildcard and an address of the machine may both be ours, and share a port.
        let own = self.open.iter().any(
            |open| matches!(&open.rules.address, Address::Tcp(tcp) if tcp.port() == address.port()),
        );
        if !own {
            listen::probe(address).map_err(explain)?;
        }
        let mut sockets = Vec::new();
        for _ in 0..self.workers {
            let socket = listen::bind(address, rules.backlog).map_err(explain)?;
            // Port 0 is chosen once, and then shared.
            address = socket.local_addr().map_err(explain)?;
            sockets.push(ListenSocket::Tcp(socket));
        }
        Ok(sockets)
    }
}

impl Open {
    /// Has the sockets follow what the configuration says of them now.
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

    /// The address that the socket is bound to; `None` of a Unix socket.
    fn local_address(&self) -> Option<SocketAddr> {
        match self.sockets.first()? {
            ListenSocket::Tcp(socket) => socket.local_addr().ok(),
            ListenSocket::Unix(_) => None,
        }
    }

    fn remove_file(&self) {
        if let Address::Unix(path) = &self.rules.address
            && !self.is_managed
        {
            // It may be gone with its folder.
            if let Err(error) = std::fs::remove_file(path)
                && error.kind() == io::ErrorKind::PermissionDenied
            {
                tracing::warn!(
                    "{} stays behind: {error}; put it into a folder that the server's user may write to",
                    self.rules.address
                );
            }
        }
    }
}
