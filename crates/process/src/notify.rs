//! Notifications to the service manager (`sd_notify`).

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The service manager.
pub struct Manager {
    socket: Option<UnixDatagram>,
    /// Interval of watchdog notifications, if the manager expects them.
    pub watchdog: Option<Duration>,
}

impl Manager {
    /// Creates the service manager that the environment names, if any. Connects at once, as a chroot may make its socket
    /// unreachable later.
    pub fn from_environment() -> Self {
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|name| {
            let address = match name.as_bytes() {
                [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
                path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path)),
            };
            let socket = UnixDatagram::unbound().ok()?;
            socket.connect_addr(&address.ok()?).ok()?;
            // A manager that does not read must not block the server.
            socket.set_nonblocking(true).ok()?;
            Some(socket)
        });
        let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        let own = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|&micros| own && micros > 0);
        Self { socket, watchdog: watchdog.map(|micros| Duration::from_micros(micros) / 2) }
    }

    /// Reports that the server serves.
    pub fn ready(&self) {
        self.send("READY=1\n");
    }

    /// Reports the start of a reload. [`Manager::ready`] reports its end.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\n"));
    }

    /// Reports that another process serves from now on.
    pub fn replaced_by(&self, pid: u32) {
        self.send(&format!("MAINPID={pid}\nREADY=1\n"));
    }

    /// Reports that the server is stopping.
    pub fn stopping(&self) {
        self.send("STOPPING=1\n");
    }

    /// Reports that the server is alive.
    pub fn alive(&self) {
        self.send("WATCHDOG=1\n");
    }

    fn send(&self, message: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(message.as_bytes())
        {
            tracing::debug!("notifying the service manager: {error}");
        }
    }
}
