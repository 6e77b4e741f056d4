//! Listening sockets that this process receives: from the process before it in an upgrade, or from systemd.
//!
//! In an upgrade, the old process starts the new one with one end of a socket pair as its standard input and sends its
//! listening sockets over it (see [`super::new_process`]). The new process responds when it serves, or with the reason why
//! it cannot. No descriptor is inherited, so that no script can get the sockets in the meantime.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use dunlin_config::{Address, Chroot, Config, Confinement, StartupSettings};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_domain, socket_type};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketType, recvmsg, sendmsg,
};

use crate::error::{StartError, fail};
use crate::inheritance::{Inheritance, Inherited, PassedListener, QuicSecrets};
use dunlin_net::listener::{ListenSocket, tune};

/// Environment variable that marks an upgrade: the PID of the old process, which is the parent.
const VARIABLE: &str = "DUNLIN_HANDOVER";
/// Environment variable with the confinement that this process inherits from the old one.
const CONFINEMENT: &str = "DUNLIN_CONFINEMENT";
/// Maximum number of descriptors in one message; the kernel's limit is 253.
const DESCRIPTORS: usize = 128;
/// Maximum length of a message in bytes: an address, or an error.
const MAX_MESSAGE: usize = 4096;
/// The time for which the new process waits for the next message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(60);

const LISTENER: u8 = b'L';
/// A listener that belongs to the service manager.
const MANAGED: u8 = b'M';
/// UDP sockets.
const DATAGRAMS: u8 = b'D';
/// UDP sockets that belong to the service manager.
const MANAGED_DATAGRAMS: u8 = b'N';
/// The way to a process that still has connections at an address.
const PROCESS: u8 = b'P';
/// The generation of the old process and its secrets.
const SECRETS: u8 = b'K';
const END: u8 = b'E';
const READY: u8 = b'R';
const FAILED: u8 = b'F';

/// The old process of an upgrade, and the sockets that it passes to this one.
pub struct Takeover {
    parent: OwnedFd,
    /// The sockets that were passed.
    pub inheritance: Inheritance,
    /// The secrets of the old process.
    pub secrets: Option<QuicSecrets>,
}

impl fmt::Debug for Takeover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inheritance.fmt(f)
    }
}

impl Takeover {
    /// Receives the sockets of the old process; `None` when this is not an upgrade.
    ///
    /// # Errors
    /// When they cannot be received.
    pub fn receive() -> io::Result<Option<Self>> {
        let Ok(before) = std::env::var(VARIABLE) else { return Ok(None) };
        let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().to_string());
        if parent.as_ref() != Some(&before) {
            // The old process may have ended while this one was started.
            let is_handover = socket_type(io::stdin()) == Ok(SocketType::SEQPACKET);
            let ended = format!(
                "upgrade: process {before} is not the parent of this process; it may have ended"
            );
            return if is_handover { Err(io::Error::other(ended)) } else { Ok(None) };
        }
        let parent = io::stdin().as_fd().try_clone_to_owned()?;
        set_socket_timeout(&parent, Timeout::Recv, Some(MESSAGE_TIMEOUT))?;
        let (mut inheritance, mut secrets) = (Inheritance::default(), None);
        loop {
            let (text, descriptors) = receive(&parent)?;
            match text.split_first() {
                Some((&kind @ (LISTENER | MANAGED), address)) => {
                    let address = String::from_utf8_lossy(address).into_owned();
                    let sockets = descriptors.into_iter().map(socket).collect::<io::Result<_>>()?;
                    let is_managed = kind == MANAGED;
                    inheritance.listeners.push(Inherited { address, sockets, is_managed });
                }
                Some((&kind @ (DATAGRAMS | MANAGED_DATAGRAMS), address)) => {
                    let datagrams = inheritance.datagrams(socket_address(address)?);
                    datagrams.sockets.extend(descriptors.into_iter().map(UdpSocket::from));
                    datagrams.is_managed |= kind == MANAGED_DATAGRAMS;
                }
                Some((&PROCESS, [generation, address @ ..])) => {
                    let datagrams = inheritance.datagrams(socket_address(address)?);
                    let ways = descriptors.into_iter().map(|way| (*generation, way));
                    datagrams.processes.extend(ways);
                }
                Some((&SECRETS, rest)) => secrets = QuicSecrets::decode(rest),
                Some((&END, _)) => {
                    // Until now the old process reads the standard error of this one through a pipe.
                    if let Some(stderr) = descriptors.first() {
                        rustix::stdio::dup2_stderr(stderr)?;
                    }
                    Chroot::continue_inside();
                    return Ok(Some(Self { parent, inheritance, secrets }));
                }
                None => {
                    return Err(io::Error::other(
                        "upgrade: the old process closed the connection too early",
                    ));
                }
                _ => {
                    return Err(io::Error::other(
                        "upgrade: the old process sent an unknown message",
                    ));
                }
            }
        }
    }

    /// Returns the startup settings of a process that was started by an upgrade: restrictions of the old process cannot be
    /// lifted.
    ///
    /// # Errors
    /// When `config` needs something that the restrictions forbid.
    pub fn startup(&self, config: &mut Config) -> Result<StartupSettings, StartError> {
        let mut startup = StartupSettings::of(config);
        let Ok(text) = std::env::var(CONFINEMENT) else { return Ok(startup) };
        let before: Confinement = serde_json::from_str(&text).map_err(|error| {
            fail(format!("upgrade: the confinement of the old process: {error}"))
        })?;
        startup.confinement = startup.confinement.after(before);
        config.server.calls = startup.confinement.calls;
        match config.reload_conflict(config.server.calls) {
            Some(why) => Err(fail(why)),
            None => Ok(startup),
        }
    }

    /// Notifies the old process that this one serves.
    pub fn ready(&self) {
        self.send(&[READY]);
    }

    /// Notifies the old process that this one cannot serve, and why.
    pub fn failed(&self, why: &str) {
        let why = &why[..why.floor_char_boundary(MAX_MESSAGE - 1)];
        self.send(&[&[FAILED], why.as_bytes()].concat());
    }

    fn send(&self, message: &[u8]) {
        // The old process may have stopped waiting; then it continues to serve.
        let _ = send(&self.parent, message, &[]);
    }
}

/// Sockets that systemd passes to this process (`sd_listen_fds`).
///
/// # Errors
/// When one is neither a TCP nor a Unix stream listener nor a UDP socket.
pub fn from_systemd() -> io::Result<Inheritance> {
    let mut passed = listenfd::ListenFd::from_env();
    let mut inheritance = Inheritance::default();
    for index in 0..passed.len() {
        if let Ok(Some(socket)) = passed.take_udp_socket(index) {
            socket.set_nonblocking(true)?;
            let datagrams = inheritance.datagrams(socket.local_addr()?);
            datagrams.sockets.push(socket);
            datagrams.is_managed = true;
            continue;
        }
        let (address, socket) = match passed.take_tcp_listener(index) {
            Ok(Some(socket)) => {
                let address = Address::Tcp(socket.local_addr()?);
                (address, ListenSocket::Tcp(socket))
            }
            Ok(None) => continue,
            Err(_) => {
                let Some(socket) = passed.take_unix_listener(index)? else { continue };
                let name = socket.local_addr()?;
                let path = name.as_pathname().unwrap_or(Path::new("")).to_owned();
                (Address::Unix(path), ListenSocket::Unix(socket))
            }
        };
        match &socket {
            ListenSocket::Tcp(socket) => {
                socket.set_nonblocking(true)?;
                tune(socket2::SockRef::from(socket))?;
            }
            ListenSocket::Unix(socket) => socket.set_nonblocking(true)?,
        }
        let address = address.to_string();
        let sockets = vec![socket];
        inheritance.listeners.push(Inherited { address, sockets, is_managed: true });
    }
    Ok(inheritance)
}

/// Sets the environment variables of the new process of an upgrade.
pub(crate) fn variables(command: &mut Command, confinement: &Confinement) {
    command
        .env(VARIABLE, std::process::id().to_string())
        .envs(Chroot::entered().into_iter().flat_map(Chroot::variables))
        // The watchdog applies to the service, not to one process.
        .env_remove("WATCHDOG_PID")
        .env(CONFINEMENT, serde_json::json!(confinement).to_string());
}

/// A message from the new process.
pub(crate) enum Message {
    Ready,
    /// It cannot serve, for this reason.
    Failed(String),
}

impl Message {
    /// `None` for an unknown message.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        match text.split_first()? {
            (&READY, _) => Some(Self::Ready),
            (&FAILED, why) => Some(Self::Failed(String::from_utf8_lossy(why).into_owned())),
            _ => None,
        }
    }
}

/// A message to the new process.
pub(crate) struct Passed<'a> {
    text: Vec<u8>,
    descriptors: Vec<BorrowedFd<'a>>,
}

impl<'a> Passed<'a> {
    /// Returns the messages with the sockets of a listener.
    pub(crate) fn listener(listener: &'a PassedListener) -> Vec<Self> {
        let kind = if listener.is_managed { MANAGED } else { LISTENER };
        let mut messages = Self::sockets(kind, &listener.address, &listener.sockets);
        if let Some(datagrams) = &listener.datagrams {
            let kind = if datagrams.is_managed { MANAGED_DATAGRAMS } else { DATAGRAMS };
            let address = datagrams.address.to_string();
            messages.extend(Self::sockets(kind, &address, &datagrams.sockets));
            messages.extend(datagrams.processes.iter().map(|(generation, way)| {
                let text = [&[PROCESS, *generation], address.as_bytes()].concat();
                Self { text, descriptors: vec![way.as_fd()] }
            }));
        }
        messages
    }

    /// Returns the messages with sockets of an address, at most [`DESCRIPTORS`] each.
    fn sockets(kind: u8, address: &str, sockets: &'a [impl AsFd]) -> Vec<Self> {
        let parts = sockets.chunks(DESCRIPTORS).map(|part| Self {
            text: [&[kind], address.as_bytes()].concat(),
            descriptors: part.iter().map(AsFd::as_fd).collect(),
        });
        parts.collect()
    }

    /// Returns the message with the secrets.
    pub(crate) fn secrets(secrets: &QuicSecrets) -> Self {
        Self { text: [&[SECRETS], &secrets.encode()[..]].concat(), descriptors: Vec::new() }
    }

    pub(crate) fn send(&self, socket: impl AsFd) -> io::Result<()> {
        send(socket, &self.text, &self.descriptors)
    }
}

/// Sends the end of the list, with this process's standard error, which the new process uses from then on.
pub(crate) fn send_end(socket: impl AsFd) -> io::Result<()> {
    send(socket, &[END], &[io::stderr().as_fd()])
}

fn socket_address(text: &[u8]) -> io::Result<SocketAddr> {
    let address = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    address.ok_or_else(|| io::Error::other("upgrade: the old process sent a malformed address"))
}

fn socket(descriptor: OwnedFd) -> io::Result<ListenSocket> {
    Ok(match socket_domain(&descriptor)? {
        AddressFamily::UNIX => ListenSocket::Unix(UnixListener::from(descriptor)),
        _ => ListenSocket::Tcp(TcpListener::from(descriptor)),
    })
}

fn send(socket: impl AsFd, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    sendmsg(socket, &[IoSlice::new(message)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one message with its descriptors. It is empty at the end of the connection.
pub(crate) fn receive(socket: impl AsFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut text = vec![0; MAX_MESSAGE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut ancillary, flags)?;
    text.truncate(received.bytes);
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            descriptors.extend(passed);
        }
    }
    Ok((text, descriptors))
}
