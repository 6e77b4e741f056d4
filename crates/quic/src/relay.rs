//! Datagrams of a process that another one receives.
//!
//! After an upgrade, the new process reads the UDP sockets of both. Datagrams of connections of the old one name its generation, and
//! are forwarded to it over a Unix socket, in one direction. The first message goes the other way: the old process has stopped
//! reading. When no process is left that forwards datagrams, the old process reads the sockets again.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::BytesMut;
use quinn_proto::EcnCodepoint;
use socket2::{Domain, SockRef, Socket, Type};
use tokio::net::UnixDatagram;

use crate::group::Group;
use crate::inbox::Datagram;
use crate::keys::Keys;
use crate::socket::Received;

/// The way to an older process.
#[derive(Debug)]
pub struct Predecessor {
    generation: u8,
    socket: OwnedFd,
}

/// The end at which a process receives its datagrams from those that follow it.
#[derive(Debug)]
pub struct Relay(OwnedFd);

/// Bytes of a head: addresses, ports, scope, ECN and the length of each datagram.
const HEAD: usize = 44;
/// The datagrams of a message have at most this many bytes.
const MAX_BYTES: usize = 64 * 1024;
/// Messages after which other tasks get their turn.
const TURN: usize = 64;
/// Bytes that wait in the socket; the kernel may allow less.
const KERNEL_BUFFER: usize = 4 << 20;

/// Returns a relay, and the other end for the process that follows this one.
///
/// # Errors
/// When the system has no descriptors.
pub fn relay() -> io::Result<(Relay, OwnedFd)> {
    let (own, other) = Socket::pair(Domain::UNIX, Type::SEQPACKET, None)?;
    for socket in [&own, &other] {
        socket.set_nonblocking(true)?;
    }
    other.set_send_buffer_size(KERNEL_BUFFER)?;
    Ok((Relay(own.into()), other.into()))
}

impl Predecessor {
    /// Creates the way to the process of a generation.
    pub fn new(generation: u8, socket: OwnedFd) -> Self {
        Self { generation, socket }
    }

    pub(crate) fn generation(&self) -> u8 {
        self.generation
    }

    pub(crate) fn duplicate(&self) -> Option<OwnedFd> {
        self.socket.try_clone().ok()
    }

    /// Forwards datagrams. They are lost if too many wait. Returns `false` if the process has ended.
    pub(crate) fn forward(&self, received: &Received<'_>) -> bool {
        let head = encode(received);
        let parts = [IoSlice::new(&head), IoSlice::new(received.bytes)];
        match SockRef::from(&self.socket).send_vectored(&parts) {
            Ok(_) => true,
            Err(error) => !matches!(
                error.kind(),
                io::ErrorKind::BrokenPipe
                    | io::ErrorKind::ConnectionReset
                    | io::ErrorKind::NotConnected
            ),
        }
    }

    /// Resolves when the process has stopped reading the sockets, or has ended. Only the process that follows it immediately
    /// waits for that.
    pub async fn stopped(self) {
        let Ok(socket) = UnixDatagram::from_std(self.socket.into()) else { return };
        // Whatever arrives: the message, or the end.
        let _ = socket.readable().await;
    }
}

impl Relay {
    /// Notifies the next process that this one has stopped reading, and passes the datagrams from it to the workers. When
    /// there is no such process any more, the workers read the sockets again.
    ///
    /// # Errors
    /// When the socket fails.
    pub async fn run(self, keys: &Keys, group: &Arc<Group>) -> io::Result<()> {
        // If the next process has ended, this follows below.
        let _ = SockRef::from(&self.0).send(&[1]);
        let socket = UnixDatagram::from_std(self.0.into())?;
        let mut buffer = vec![0; HEAD + MAX_BYTES];
        loop {
            socket.readable().await?;
            for _ in 0..TURN {
                match socket.try_recv(&mut buffer) {
                    Ok(length) if length > 0 => distribute(&buffer[..length], keys, group),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Ok(_) | Err(_) => {
                        group.resume();
                        return Ok(());
                    }
                }
            }
            tokio::task::yield_now().await;
        }
    }
}

/// Passes the datagrams of a message to their workers.
fn distribute(message: &[u8], keys: &Keys, group: &Group) {
    let Some((head, bytes)) = message.split_first_chunk() else { return };
    let Some((mut datagram, stride)) = decode(head) else { return };
    for part in bytes.chunks(stride) {
        if let Some(place) = keys.place_of(part) {
            datagram.bytes = BytesMut::from(part);
            group.pass(place.worker, &datagram);
        }
    }
}

fn encode(received: &Received<'_>) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    let is_ipv4 = received.remote.is_ipv4();
    head[..16].copy_from_slice(&octets(received.remote.ip()));
    head[16..18].copy_from_slice(&received.remote.port().to_be_bytes());
    if let SocketAddr::V6(address) = received.remote {
        head[18..22].copy_from_slice(&address.scope_id().to_be_bytes());
    }
    head[22..38].copy_from_slice(&octets(received.local.unwrap_or(Ipv6Addr::UNSPECIFIED.into())));
    head[38] = u8::from(is_ipv4) | u8::from(received.local.is_some()) << 1;
    head[39] = received.ecn.map_or(0, |ecn| ecn as u8);
    head[40..44].copy_from_slice(&(received.stride as u32).to_be_bytes());
    head
}

/// Returns a datagram without its bytes, and the length of each.
fn decode(head: &[u8; HEAD]) -> Option<(Datagram, usize)> {
    let is_ipv4 = head[38] & 1 != 0;
    let ip = address(head[..16].try_into().ok()?, is_ipv4);
    let port = u16::from_be_bytes(head[16..18].try_into().ok()?);
    let scope = u32::from_be_bytes(head[18..22].try_into().ok()?);
    let remote = match ip {
        IpAddr::V4(ip) => SocketAddr::from((ip, port)),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
    };
    let local = address(head[22..38].try_into().ok()?, is_ipv4);
    let local = (head[38] & 2 != 0).then_some(local);
    let stride = u32::from_be_bytes(head[40..44].try_into().ok()?) as usize;
    let ecn = EcnCodepoint::from_bits(head[39]);
    let datagram = Datagram { remote, local, ecn, bytes: BytesMut::new() };
    (stride > 0).then_some((datagram, stride))
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => {
            let mut all = [0; 16];
            all[..4].copy_from_slice(&ip.octets());
            all
        }
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn address(octets: [u8; 16], is_ipv4: bool) -> IpAddr {
    match octets {
        [a, b, c, d, ..] if is_ipv4 => Ipv4Addr::new(a, b, c, d).into(),
        all => Ipv6Addr::from(all).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let remotes: [SocketAddr; 3] = [
            ([192, 0, 2, 1], 4433).into(),
            ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 443).into(),
            SocketAddrV6::new(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), 1, 0, 7).into(),
        ];
        for remote in remotes {
            for local in [None, Some(remote.ip())] {
                let ecn = Some(EcnCodepoint::Ce);
                let received = Received { remote, local, ecn, bytes: b"abc", stride: 1200 };
                let (datagram, stride) = decode(&encode(&received)).unwrap();
                assert_eq!((datagram.remote, datagram.local), (remote, local));
                assert_eq!((datagram.ecn, stride), (ecn, 1200));
            }
        }
        assert!(decode(&[0; HEAD]).is_none(), "no length");
    }

    #[test]
    fn a_process_that_has_ended_gets_nothing() {
        let (relay, other) = relay().unwrap();
        let group = Group::following(vec![Predecessor::new(4, other)]);
        assert!(!group.reads());
        let remote = ([127, 0, 0, 1], 1).into();
        let received = Received { remote, local: None, ecn: None, bytes: b"abc", stride: 3 };
        assert!(!group.forward(3, &received));
        assert!(group.forward(4, &received));
        drop(relay);
        assert!(!group.forward(4, &received));
        assert!(group.predecessors().is_empty());
    }
}
