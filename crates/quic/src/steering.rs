//! A filter of the kernel that gives each datagram to the socket of its worker.
//!
//! Without it, the kernel chooses the socket by the addresses, so that a client whose address has changed reaches another worker,
//! which has to pass its datagrams on. Classic BPF needs no privilege. Its loads are relative to the payload of UDP.

use std::net::UdpSocket;

use nix::libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET,
    sock_filter, sock_fprog,
};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::AttachReusePortCbpf;

use crate::connection_id::LENGTH;

/// A number that no socket has: the kernel then chooses by the addresses.
const BY_ADDRESS: u32 = u32::MAX;

/// Attaches the filter to all sockets of an address. They have been opened in the order of their workers.
///
/// # Errors
/// When the kernel or a sandbox does not permit it.
pub fn steer(sockets: &[UdpSocket]) -> nix::Result<()> {
    let Some(socket) = sockets.first() else { return Ok(()) };
    let mut program = program();
    let program = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    setsockopt(socket, AttachReusePortCbpf, &program)
}

/// Returns the number of the worker in the ID of the connection, which comes first (see [`crate::connection_id`]). Only short
/// headers and Handshake packets certainly have an ID of the server (RFC 9000 §17). A load beyond the end returns 0.
fn program() -> [sock_filter; 12] {
    let load = |at| statement(BPF_LD | BPF_B | BPF_ABS, at);
    let is_equal = |value, then, otherwise| jump(BPF_JEQ, value, then, otherwise);
    let accumulator = 0x10;
    [
        load(0),
        // The form of the header.
        jump(BPF_JSET, 0x80, 2, 0),
        load(1),
        statement(BPF_RET | accumulator, 0),
        // The type of the packet.
        statement(BPF_ALU | BPF_AND | BPF_K, 0x30),
        is_equal(0x20, 1, 0),
        statement(BPF_RET | BPF_K, BY_ADDRESS),
        load(5),
        is_equal(LENGTH as u32, 1, 0),
        statement(BPF_RET | BPF_K, BY_ADDRESS),
        load(6),
        statement(BPF_RET | accumulator, 0),
    ]
}

fn statement(code: u32, value: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k: value }
}

fn jump(condition: u32, value: u32, then: u8, otherwise: u8) -> sock_filter {
    sock_filter { code: (BPF_JMP | condition | BPF_K) as u16, jt: then, jf: otherwise, k: value }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::connection_id::{Generator, Place};
    use crate::keys::Keys;
    use crate::socket::bind;
    use quinn_proto::ConnectionIdGenerator;

    #[test]
    fn datagrams_arrive_at_the_socket_of_their_worker() {
        let first = bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = first.local_addr().unwrap();
        let mut sockets = vec![first];
        (1..4).for_each(|_| sockets.push(bind(address).unwrap()));
        steer(&sockets).unwrap();
        for socket in &sockets {
            socket.set_nonblocking(false).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        }
        let keys = Keys::of(&[1; 32]);
        for round in 0..40 {
            let worker = round % 4;
            let place = Place { worker, generation: 9 };
            let id = Generator::new(place, keys.clone()).generate_cid();
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            let short = [&[0x40][..], &id, &[round; 20]].concat();
            let handshake = [&[0xe0, 0, 0, 0, 1, 8][..], &id, &[round; 20]].concat();
            for sent in [short, handshake] {
                client.send_to(&sent, address).unwrap();
                let mut buffer = [0; 100];
                let length = sockets[usize::from(worker)].recv(&mut buffer).unwrap();
                assert_eq!(buffer[..length], sent[..]);
            }
        }
        // Initial packets of a client arrive at one socket, whatever their ID.
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for number in 0..20 {
            client.send_to(&[0xc0, 0, 0, 0, 1, 8, number, 0], address).unwrap();
        }
        sockets.iter().for_each(|socket| socket.set_nonblocking(true).unwrap());
        let count =
            |socket: &UdpSocket| std::iter::from_fn(|| socket.recv(&mut [0; 100]).ok()).count();
        let counts: Vec<_> = sockets.iter().map(count).collect();
        assert_eq!(counts.iter().max(), Some(&20), "{counts:?}");
    }
}
