//! Listening sockets that come from elsewhere: from the process that served before, or from systemd.
//!
//! A server that hands over starts the new process with one end of a socket pair as its standard
//! input, and sends its listening sockets there. The new one answers when it serves, or says why it
//! does not. Nothing is inherited, so that no script can come by the sockets in between.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_domain};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use super::{StartError, fail};
use crate::config::{Address, Calls, Config, Jail};
use crate::listen::{self, ListenSocket};

/// What tells a process that another hands over to it: the number of that other, its parent.
const VARIABLE: &str = "DUNLIN_HANDOVER";
/// What tells it that it may make only the calls that a server without scripts needs: it has inherited that.
const CALLS: &str = "DUNLIN_NEEDED_CALLS";
/// Descriptors of one message; the system takes 253.
const DESCRIPTORS: usize = 128;
/// Bytes of one message: an address, or why the new process does not serve.
const LONGEST: usize = 4096;
/// How long the new process may take until it serves.
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
        let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().to_string());
        if parent.is_none() || std::env::var(VARIABLE).ok() != parent {
            return Ok(None);
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
                    Jail::continue_inside();
                    return Ok(Some(Self { parent, inherited }));
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }

    /// Has `config` say which calls of the system this process may make: what the process before has given
    /// up does not come back.
    ///
    /// # Errors
    /// When `config` needs more.
    pub(super) fn calls(&self, config: &mut Config) -> Result<(), StartError> {
        if std::env::var_os(CALLS).is_none() {
            return Ok(());
        }
        config.server.calls = Calls::Needed;
        config.refused_after(config).map_or(Ok(()), |why| Err(fail(why)))
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

/// A new process of this program that is to take over.
pub(super) struct Successor {
    process: Child,
    socket: OwnedFd,
}

impl Successor {
    /// Starts it by `spawn` with the arguments of this one, and hands the listeners over: each an address with
    /// its sockets, and whether they are the service manager's. `calls` are those that this process may make.
    ///
    /// # Errors
    /// What is in the way.
    pub(super) fn start<'l>(
        program: &Path,
        calls: Calls,
        spawn: impl FnOnce(Command) -> io::Result<Child>,
        listeners: impl Iterator<Item = (String, &'l [ListenSocket], bool)>,
    ) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let (socket, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let mut command = Command::new(program);
        command
            .args(std::env::args_os().skip(1))
            .env(VARIABLE, std::process::id().to_string())
            .envs(Jail::entered().into_iter().flat_map(Jail::variables))
            // The manager's watch is over the service, whichever its process is.
            .env_remove("WATCHDOG_PID")
            .env_remove(CALLS)
            .envs((calls == Calls::Needed).then_some((CALLS, "1")))
            .stdin(other);
        let process = spawn(command).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", program.display()))
        })?;
        let mut successor = Self { process, socket };
        if let Err(error) = successor.hand_over(listeners) {
            successor.end();
            return Err(error);
        }
        Ok(successor)
    }

    fn hand_over<'l>(
        &self,
        listeners: impl Iterator<Item = (String, &'l [ListenSocket], bool)>,
    ) -> io::Result<()> {
        for (address, sockets, is_managed) in listeners {
            let kind = if is_managed { MANAGED } else { LISTENER };
            for sockets in sockets.chunks(DESCRIPTORS) {
                let descriptors: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
                send(&self.socket, &[&[kind], address.as_bytes()].concat(), &descriptors)?;
            }
        }
        send(&self.socket, &[END], &[])
    }

    /// The number of its process.
    pub(super) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Waits until it serves. Takes its time: not for a loop.
    ///
    /// # Errors
    /// Why it does not; its process has ended then.
    pub(super) fn wait(mut self) -> Result<(), String> {
        let answer = set_socket_timeout(&self.socket, Timeout::Recv, Some(PATIENCE))
            .map_err(io::Error::from)
            .and_then(|()| receive(&self.socket));
        let why = match answer {
            Ok((text, _)) => match text.split_first() {
                Some((&READY, _)) => return Ok(()),
                Some((&FAILED, why)) => String::from_utf8_lossy(why).into_owned(),
                // The end of the connection.
                _ => self.process.wait().map_or_else(
                    |error| error.to_string(),
                    |status| format!("the new process ended ({status})"),
                ),
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                format!("the new process did not serve within {} s", PATIENCE.as_secs())
            }
            Err(error) => error.to_string(),
        };
        self.end();
        Err(why)
    }

    fn end(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn socket(descriptor: OwnedFd) -> io::Result<ListenSocket> {
    Ok(match socket_domain(&descriptor)? {
        AddressFamily::UNIX => ListenSocket::Unix(UnixListener::from(descriptor)),
        _ => ListenSocket::Tcp(TcpListener::from(descriptor)),
    })
}

fn send(socket: &OwnedFd, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    sendmsg(socket, &[IoSlice::new(message)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive(socket: &OwnedFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
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
