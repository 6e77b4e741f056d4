//! What the service manager is told (`sd_notify`), where there is one that wants to know.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The service manager.
pub(super) struct Manager {
    socket: Option<UnixDatagram>,
    /// How often it wants to hear that the server is alive.
    pub(super) watchdog: Option<Duration>,
}

impl Manager {
    /// The one that the environment names. The connection is made at once: later its socket may be
    /// out of reach.
    pub(super) fn from_environment() -> Self {
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|name| {
            let address = match name.as_bytes() {
                [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
                path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path)),
            };
            let socket = UnixDatagram::unbound().ok()?;
            socket.connect_addr(&address.ok()?).ok()?;
            // A manager that does not listen holds up nobody.
            socket.set_nonblocking(true).ok()?;
            Some(socket)
        });
        let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        let own = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|&micros| own && micros > 0);
        Self { socket, watchdog: watchdog.map(|micros| Duration::from_micros(micros) / 2) }
    }

    /// The server serves.
    pub(super) fn ready(&self) {
        self.tell("READY=1\n");
    }

    /// It is about to read its configuration anew; [`Manager::ready`] is the end of that.
    pub(super) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\n"));
    }

    /// Another process serves from now on.
    pub(super) fn handed_over(&self, pid: u32) {
        self.tell(&format!("MAINPID={pid}\nREADY=1\n"));
    }

    /// It finishes what is under way.
    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1\n");
    }

    /// It is alive.
    pub(super) fn alive(&self) {
        self.tell("WATCHDOG=1\n");
    }

    fn tell(&self, message: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(message.as_bytes())
        {
            tracing::debug!("the service manager does not listen: {error}");
        }
    }
}
