//! UDP sockets: their options, and receiving and sending many datagrams at a time.

#[cfg(feature = "testing")]
mod memory;

use std::cell::Cell;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::task::{Context, Poll};

use quinn_proto::{EcnCodepoint, Transmit};
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use socket2::{Domain, Protocol, Type};
use tokio::io::Interest;

#[cfg(feature = "testing")]
pub(crate) use self::memory::MemorySocket;

/// Bytes of datagrams that the kernel keeps for each direction. The default, 208 KB, is full after a few milliseconds of a
/// fast client; the kernel may allow less than this (`net.core.rmem_max`).
const KERNEL_BUFFER: usize = 4 << 20;

/// Opens a UDP socket. Workers each have one for the same address; the kernel distributes clients among them.
///
/// # Errors
/// When the kernel rejects the address: it is in use, not of this machine, or not permitted.
pub fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = open(address)?;
    socket.set_reuse_port(true)?;
    enlarge(&socket)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Opens the UDP socket of a client, with a port that no other socket has: the kernel gives one port to several sockets with
/// `SO_REUSEPORT`, and what arrives at it to one of them.
///
/// # Errors
/// As [`bind`].
pub fn bind_alone(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = open(address)?;
    enlarge(&socket)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Checks that no other process has the port. With `SO_REUSEPORT` alone, another server of the same user could share it
/// unnoticed.
///
/// # Errors
/// As [`bind`].
pub fn probe(address: SocketAddr) -> io::Result<()> {
    open(address)?.bind(&address.into())
}

fn open(address: SocketAddr) -> io::Result<socket2::Socket> {
    let socket =
        socket2::Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The kernel sets its own limit without an error.
fn enlarge(socket: &socket2::Socket) -> io::Result<()> {
    socket.set_recv_buffer_size(KERNEL_BUFFER)?;
    socket.set_send_buffer_size(KERNEL_BUFFER)
}

/// The sockets of a worker for an address.
#[derive(Debug)]
pub struct Sockets {
    /// The one that sends.
    pub own: UdpSocket,
    /// Another worker reads it, because there are fewer sockets than workers.
    pub is_borrowed: bool,
    /// Those of workers that do not exist any more, which are read as well.
    pub left: Vec<UdpSocket>,
}

impl From<UdpSocket> for Sockets {
    fn from(own: UdpSocket) -> Self {
        Self { own, is_borrowed: false, left: Vec::new() }
    }
}

/// A socket that is registered with the worker's runtime.
#[derive(Debug)]
pub(crate) enum Socket {
    Udp {
        io: tokio::net::UdpSocket,
        state: UdpSocketState,
    },
    #[cfg(feature = "testing")]
    Memory(MemorySocket),
}

/// The number of buffers that one call fills.
const BATCH: usize = 16;
/// Length of a buffer: datagrams that the kernel has joined.
const BUFFER: usize = 64 * 1024;

/// The buffers for received datagrams.
pub(crate) struct Buffers {
    bytes: Box<[u8]>,
    metas: [RecvMeta; BATCH],
}

/// Datagrams that arrived together.
pub(crate) struct Received<'a> {
    pub(crate) remote: SocketAddr,
    pub(crate) local: Option<std::net::IpAddr>,
    pub(crate) ecn: Option<EcnCodepoint>,
    /// All of the length `stride`, but for the last.
    pub(crate) bytes: &'a [u8],
    pub(crate) stride: usize,
}

thread_local! {
    /// The buffers of a thread, which its endpoints share.
    static SHARED: Cell<Option<Box<Buffers>>> = const { Cell::new(None) };
}

impl Default for Buffers {
    fn default() -> Self {
        Self {
            bytes: vec![0; BATCH * BUFFER].into_boxed_slice(),
            metas: [RecvMeta::default(); BATCH],
        }
    }
}

impl Buffers {
    /// Takes the buffers of the thread.
    pub(crate) fn take() -> Box<Self> {
        SHARED.take().unwrap_or_default()
    }

    /// Gives them back.
    pub(crate) fn give(self: Box<Self>) {
        SHARED.set(Some(self));
    }

    /// Returns the datagrams of the last call.
    pub(crate) fn received(&self, count: usize) -> impl Iterator<Item = Received<'_>> {
        let filled = self.bytes.chunks(BUFFER).zip(&self.metas).take(count);
        filled.map(|(bytes, meta)| Received {
            remote: meta.addr,
            local: meta.dst_ip,
            ecn: meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8)),
            bytes: &bytes[..meta.len.min(BUFFER)],
            stride: meta.stride.max(1),
        })
    }
}

impl Socket {
    pub(crate) fn new(socket: UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        Ok(Self::Udp { io: tokio::net::UdpSocket::from_std(socket)?, state })
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Udp { io, .. } => io.local_addr(),
            #[cfg(feature = "testing")]
            Self::Memory(socket) => Ok(socket.local),
        }
    }

    /// Returns `true` if the kernel may split datagrams, which forbids to search the path's MTU.
    pub(crate) fn may_fragment(&self) -> bool {
        match self {
            Self::Udp { state, .. } => state.may_fragment(),
            #[cfg(feature = "testing")]
            Self::Memory(_) => false,
        }
    }

    /// Returns how many datagrams one call can send.
    pub(crate) fn max_segments(&self) -> usize {
        match self {
            Self::Udp { state, .. } => state.max_gso_segments(),
            #[cfg(feature = "testing")]
            Self::Memory(_) => usize::MAX,
        }
    }

    /// Ready when there may be datagrams.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Udp { io, .. } => io.poll_recv_ready(cx),
            #[cfg(feature = "testing")]
            Self::Memory(_) => Poll::Pending,
        }
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Udp { io, .. } => io.writable().await,
            #[cfg(feature = "testing")]
            Self::Memory(_) => Ok(()),
        }
    }

    /// Receives datagrams. Returns the number of buffers that have some.
    pub(crate) fn receive(&self, buffers: &mut Buffers) -> io::Result<usize> {
        match self {
            Self::Udp { io, state } => {
                let mut slices = buffers.bytes.chunks_mut(BUFFER);
                let mut slices: [IoSliceMut<'_>; BATCH] =
                    std::array::from_fn(|_| IoSliceMut::new(slices.next().unwrap_or_default()));
                let metas = &mut buffers.metas;
                io.try_io(Interest::READABLE, || {
                    state.recv(UdpSockRef::from(io), &mut slices, metas)
                })
            }
            #[cfg(feature = "testing")]
            Self::Memory(_) => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Sends datagrams. An error other than [`io::ErrorKind::WouldBlock`] is that of a lost datagram.
    pub(crate) fn send(&self, transmit: &Transmit, contents: &[u8]) -> io::Result<()> {
        match self {
            Self::Udp { io, state } => {
                let transmit = quinn_udp::Transmit {
                    destination: transmit.destination,
                    ecn: transmit.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
                    contents,
                    segment_size: transmit.segment_size,
                    src_ip: transmit.src_ip,
                };
                io.try_io(Interest::WRITABLE, || state.try_send(UdpSockRef::from(io), &transmit))
            }
            #[cfg(feature = "testing")]
            Self::Memory(socket) => {
                socket.send(transmit, contents);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_client_has_a_port_of_its_own() {
        let sockets: Vec<_> =
            (0..700).map(|_| bind_alone(([127, 0, 0, 1], 0).into()).unwrap()).collect();
        let ports: HashSet<_> =
            sockets.iter().map(|socket| socket.local_addr().unwrap().port()).collect();
        assert_eq!(ports.len(), sockets.len());
    }
}
