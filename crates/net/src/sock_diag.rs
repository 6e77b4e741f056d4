//! The state of TCP connections, by netlink (`sock_diag(7)`): no library has the socket's options (`TCP_INFO`, `SIOCOUTQ`)
//! without `unsafe`.
//!
//! # Contract
//! The functions can be called from any thread. They keep nothing: each call opens a netlink socket, sends one request and
//! closes the socket. They do not block, as the kernel responds within the call, but they cost several system calls, so
//! they are not for each read or write. The socket has to be a connected TCP socket in the network namespace of the thread.
//!
//! An error means that the value is unknown: the socket is not TCP or not connected, the kernel lacks the value or
//! the module `inet_diag`, or a filter forbids netlink. The connection is not affected.
//!
//! # Example
//! ```
//! use std::net::{TcpListener, TcpStream};
//! use std::os::fd::AsFd;
//!
//! use dunlin_net::sock_diag::unacknowledged;
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let client = TcpStream::connect(listener.local_addr()?)?;
//! assert_eq!(unacknowledged(client.as_fd())?, 0);
//! assert!(unacknowledged(listener.as_fd()).is_err());
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, getpeername, getsockname, recv,
    sendto, socket_with,
};

/// `linux/netlink.h`, `linux/sock_diag.h`, `linux/inet_diag.h`.
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_INFO: u16 = 2;
const TCP: u8 = 6;
/// Bytes of `nlmsghdr`, `inet_diag_req_v2`, `inet_diag_msg`.
const HEADER: usize = 16;
const REQUEST: usize = 56;
const MESSAGE: usize = 72;
/// Offset of `idiag_wqueue` in `inet_diag_msg`.
const WRITE_QUEUE: usize = 60;
/// Offset of `tcpi_rcv_wnd` in `struct tcp_info` (`linux/tcp.h`, since Linux 6.2).
const RECEIVE_WINDOW: usize = 232;

/// Returns the bytes that the other side of the connection may send ahead: the window that was last announced to it.
///
/// # Errors
/// If the system has no such value, or is older than Linux 6.2.
pub fn receive_window(socket: BorrowedFd<'_>) -> io::Result<u32> {
    window_in(&query(socket, 1 << (INET_DIAG_INFO - 1))?)
}

/// Returns the bytes that were written to the connection and that the other side has not acknowledged, sent or not.
///
/// # Errors
/// If the system has no such value.
pub fn unacknowledged(socket: BorrowedFd<'_>) -> io::Result<u32> {
    unacknowledged_in(&query(socket, 0)?)
}

/// Returns the system's data about one connection, with those of `extensions` (bits).
fn query(socket: BorrowedFd<'_>, extensions: u8) -> io::Result<Vec<u8>> {
    let local = SocketAddr::try_from(getsockname(socket)?)?;
    let remote = match getpeername(socket)? {
        Some(remote) => SocketAddr::try_from(remote)?,
        None => return Err(Errno::NOTCONN.into()),
    };
    let flags = SocketFlags::CLOEXEC;
    let netlink = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(SOCK_DIAG))?;
    let message = diag_request(local, remote, extensions);
    sendto(&netlink, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut response = vec![0; 4096];
    // The kernel responds before `sendto` returns.
    let (_, length) = recv(&netlink, &mut response[..], RecvFlags::DONTWAIT)?;
    response.truncate(length);
    match error_in(&response) {
        Some(error) => Err(error),
        None => Ok(response),
    }
}

/// Encodes the request for one connection.
fn diag_request(local: SocketAddr, remote: SocketAddr, extensions: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + REQUEST);
    bytes.extend(((HEADER + REQUEST) as u32).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend([0; 8]);
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    bytes.extend([family.as_raw() as u8, TCP, extensions, 0]);
    // In all states.
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(local.port().to_be_bytes());
    bytes.extend(remote.port().to_be_bytes());
    for address in [local.ip(), remote.ip()] {
        let mut octets = [0; 16];
        match address {
            IpAddr::V4(v4) => octets[..4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => octets = v6.octets(),
        }
        bytes.extend(octets);
    }
    // On any interface, with any cookie.
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend([0xff; 8]);
    bytes
}

fn error_in(response: &[u8]) -> Option<io::Error> {
    (short(response, 4) == Some(NLMSG_ERROR)).then(|| {
        let error = long(response, HEADER).map_or(0, |error| (error as i32).wrapping_neg());
        io::Error::from_raw_os_error(error)
    })
}

fn unacknowledged_in(response: &[u8]) -> io::Result<u32> {
    long(response, HEADER + WRITE_QUEUE)
        .ok_or_else(|| io::Error::other("the system does not report unsent bytes"))
}

fn window_in(response: &[u8]) -> io::Result<u32> {
    let missing = || io::Error::other("the system does not report the receive window");
    let mut at = HEADER + MESSAGE;
    while let (Some(length), Some(kind)) = (short(response, at), short(response, at + 2)) {
        let length = usize::from(length);
        if kind == INET_DIAG_INFO && length >= 4 + RECEIVE_WINDOW + 4 {
            return long(response, at + 4 + RECEIVE_WINDOW).ok_or_else(missing);
        }
        // Each begins at a multiple of four; a length of less than its own header ends the list.
        if length < 4 {
            break;
        }
        at += length.next_multiple_of(4);
    }
    Err(missing())
}

fn short(response: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*response.get(at..)?.first_chunk()?))
}

fn long(response: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*response.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use rustix::net::{connect, sockopt};

    use super::*;

    fn window(address: &str, buffer: Option<usize>) -> u32 {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let to = listener.local_addr().unwrap();
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        if let Some(bytes) = buffer {
            sockopt::set_socket_recv_buffer_size(&socket, bytes).unwrap();
        }
        connect(&socket, &to).unwrap();
        receive_window(socket.as_fd()).unwrap()
    }

    #[test]
    fn the_window_is_the_room_in_the_buffer() {
        for address in ["127.0.0.1", "::1"] {
            let (small, own) = (window(address, Some(4200)), window(address, None));
            assert!((1000..=8400).contains(&small), "{small}");
            assert!(own > 30_000, "{own}");
        }
    }

    #[test]
    fn an_unconnected_socket_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(receive_window(listener.as_fd()).is_err());
    }

    #[test]
    fn a_truncated_response_is_an_error() {
        let whole: Vec<u8> =
            [vec![0; HEADER + MESSAGE], vec![8, 0, 9, 0, 1, 1, 1, 1, 240, 0, 2, 0]]
                .concat()
                .into_iter()
                .chain((0..236).map(|at| if at == RECEIVE_WINDOW { 7 } else { 0 }))
                .collect();
        assert_eq!(window_in(&whole).unwrap(), 7);
        for length in 0..whole.len() {
            assert!(window_in(&whole[..length]).is_err(), "{length}");
        }
        assert!(error_in(&whole).is_none());
        assert!(unacknowledged_in(&whole[..HEADER + WRITE_QUEUE + 3]).is_err());
        let mut failed = vec![0; 40];
        failed[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        failed[HEADER..HEADER + 4].copy_from_slice(&(-2_i32).to_ne_bytes());
        assert_eq!(error_in(&failed).unwrap().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_state_of_the_send_queue_is_reported() {
        for address in ["127.0.0.1", "::1"] {
            let listener = TcpListener::bind((address, 0)).unwrap();
            let mut writer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut reader, _) = listener.accept().unwrap();
            assert_eq!(unacknowledged(writer.as_fd()).unwrap(), 0);
            writer.set_nonblocking(true).unwrap();
            let mut written = 0;
            while let Ok(count) = writer.write(&[7; 65_536]) {
                written += count;
            }
            let full = unacknowledged(writer.as_fd()).unwrap();
            assert!(full > 0 && (full as usize) < written, "{full} of {written}");
            reader.read_exact(&mut vec![0; written / 2]).unwrap();
            let end = Instant::now() + Duration::from_secs(10);
            while unacknowledged(writer.as_fd()).unwrap() >= full {
                assert!(Instant::now() < end);
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn a_socket_that_is_not_tcp_is_an_error() {
        let pair = UnixStream::pair().unwrap().0;
        assert!(unacknowledged(pair.as_fd()).is_err());
    }
}
