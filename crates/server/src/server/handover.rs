//! Listening sockets that come from elsewhere: from the process that served before, or from systemd.
//!
//! A server that hands over starts the new process with one end of a socket pair as its standard
//! input, and sends its listening sockets there (see [`super::new_process`]). The new one responds when it serves,
//! or says why it does not. Nothing is inherited, so that no script can get the sockets in between.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_domain, socket_type};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketType, recvmsg, sendmsg,
};

use super::{StartError, fail};
use crate::config::{Address, Config, Confinement, Jail, StartupSettings};
use crate::listen::{self, ListenSocket};

/// What tells a process that another hands over to it: the number of that other, its parent.
const VARIABLE: &str = "DUNLIN_HANDOVER";
/// What the process before has given up, which this one has inherited.
const CONFINEMENT: &str = "DUNLIN_CONFINEMENT";
/// Descriptors of one message; the system takes 253.
pub(super) const DESCRIPTORS: usize = 128;
/// Bytes of one message: an address, or why the new process does not serve.
const LONGEST: usize = 4096;
/// The longest wait for the next message of the process before.
const PATIENCE: Duration = Duration::from_secs(60);

const LISTENER: u8 = b'L';
/// The same, of the service manager.
const MANAGED: u8 = b'M';
const END: u8 = b'E';
const READY: u8 = b'R';
const FAILED: u8 = b'F';

/// Listening sockets for one address.
#[derive(Debug)]
pub(super) struct Inherited {
    /// As the configuration names it.
    pub(super) address: String,
    pub(super) sockets: Vec<ListenSocket>,
    /// They are the service manager's, which listens on when no server does: the file of a Unix socket
    /// is not the server's to remove.
    pub(super) is_managed: bool,
}

/// The process that hands over to this one, and what it hands over.
pub struct Takeover {
    parent: OwnedFd,
    pub(super) inherited: Vec<Inherited>,
}

impl fmt::Debug for Takeover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inherited.fmt(f)
    }
}

impl Takeover {
    /// What another process hands over to this one; `None` when this is a start like any other.
    ///
    /// # Errors
    /// When what it hands over cannot be received.
    pub fn receive() -> io::Result<Option<Self>> {
        let Ok(before) = std::env::var(VARIABLE) else { return Ok(None) };
        let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().to_string());
        if parent.as_ref() != Some(&before) {
            // The process before may have ended while this one was started.
            let is_handover = socket_type(io::stdin()) == Ok(SocketType::SEQPACKET);
            let ended =
                format!("process {before}, which hands over, is not the parent of this one");
            return if is_handover { Err(io::Error::other(ended)) } else { Ok(None) };
        }
        let parent = io::stdin().as_fd().try_clone_to_owned()?;
        set_socket_timeout(&parent, Timeout::Recv, Some(PATIENCE))?;
        let mut inherited: Vec<Inherited> = Vec::new();
        loop {
            let (text, descriptors) = receive(&parent)?;
            match text.split_first() {
                Some((&kind @ (LISTENER | MANAGED), address)) => {
                    let address = String::from_utf8_lossy(address).into_owned();
                    let sockets = descriptors.into_iter().map(socket).collect::<io::Result<_>>()?;
                    inherited.push(Inherited { address, sockets, is_managed: kind == MANAGED });
                }
                Some((&END, _)) => {
                    // So far the process before has read what this one writes to its standard error.
                    if let Some(stderr) = descriptors.first() {
                        rustix::stdio::dup2_stderr(stderr)?;
                    }
                    Jail::continue_inside();
                    return Ok(Some(Self { parent, inherited }));
                }
                None => {
                    return Err(io::Error::other("it has closed the connection before its end"));
                }
                _ => return Err(io::Error::other("it has sent a message that is not understood")),
            }
        }
    }

    /// What a process that starts by `config` is bound to: what the process before has given up does not
    /// come back.
    ///
    /// # Errors
    /// When `config` needs what was given up.
    pub(super) fn startup(&self, config: &mut Config) -> Result<StartupSettings, StartError> {
        let mut startup = StartupSettings::of(config);
        let Ok(text) = std::env::var(CONFINEMENT) else { return Ok(startup) };
        let before: Confinement = serde_json::from_str(&text)
            .map_err(|error| fail(format!("the confinement of the process before: {error}")))?;
        startup.confinement = startup.confinement.after(before);
        config.server.calls = startup.confinement.calls;
        match config.refused_after(config.server.calls) {
            Some(why) => Err(fail(why)),
            None => Ok(startup),
        }
    }

    /// Says that this process serves from now on.
    pub(super) fn ready(&self) {
        self.tell(&[READY]);
    }

    /// Says that this process cannot serve, and why.
    pub fn failed(&self, why: &str) {
        let why = &why[..why.floor_char_boundary(LONGEST - 1)];
        self.tell(&[&[FAILED], why.as_bytes()].concat());
    }

    fn tell(&self, message: &[u8]) {
        // The other may have given up waiting; it goes on by itself then.
        let _ = send(&self.parent, message, &[]);
    }
}

/// Sockets that systemd listens on for this process (`sd_listen_fds`).
///
/// # Errors
/// When one of them is not of a kind that is served.
pub(super) fn from_systemd() -> io::Result<Vec<Inherited>> {
    let mut passed = listenfd::ListenFd::from_env();
    let mut inherited = Vec::new();
    for index in 0..passed.len() {
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
                listen::tune(socket2::SockRef::from(socket))?;
            }
            ListenSocket::Unix(socket) => socket.set_nonblocking(true)?,
        }
        let address = address.to_string();
        inherited.push(Inherited { address, sockets: vec![socket], is_managed: true });
    }
    Ok(inherited)
}

/// Sets what a new process has to know of the handover and of what it inherits.
pub(super) fn variables(command: &mut Command, confinement: &Confinement) {
    command
        .env(VARIABLE, std::process::id().to_string())
        .envs(Jail::entered().into_iter().flat_map(Jail::variables))
        // The service manager watches the service, whichever its process is.
        .env_remove("WATCHDOG_PID")
        .env(CONFINEMENT, serde_json::json!(confinement).to_string());
}

/// What a new process sends.
pub(super) enum Message {
    Ready,
    /// It cannot serve, and why.
    Failed(String),
}

impl Message {
    /// `None` when it is neither.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        match text.split_first()? {
            (&READY, _) => Some(Self::Ready),
            (&FAILED, why) => Some(Self::Failed(String::from_utf8_lossy(why).into_owned())),
            _ => None,
        }
    }
}

/// Sends listening sockets of an address, at most [`DESCRIPTORS`].
pub(super) fn send_listener(
    socket: impl AsFd,
    address: &str,
    sockets: &[ListenSocket],
    is_managed: bool,
) -> io::Result<()> {
    let kind = if is_managed { MANAGED } else { LISTENER };
    let descriptors: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
    send(socket, &[&[kind], address.as_bytes()].concat(), &descriptors)
}

/// Says that these were all, and sends this process's standard error: the new process writes there from then
/// on.
pub(super) fn send_end(socket: impl AsFd) -> io::Result<()> {
    send(socket, &[END], &[io::stderr().as_fd()])
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

/// One message with its descriptors; without any bytes at the end of the connection.
pub(super) fn receive(socket: impl AsFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut text = vec![0; LONGEST];
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
