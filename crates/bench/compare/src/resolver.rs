//! A DNS resolver that responds to every query with NXDOMAIN after a fixed delay.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The resolver. Dropping it stops it.
pub(crate) struct SlowResolver {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl SlowResolver {
    /// Starts a resolver on a free port.
    pub(crate) fn start(delay: Duration) -> io::Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let address = socket.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        socket.set_read_timeout(Some(Duration::from_millis(1)))?;
        thread::Builder::new()
            .name("resolver".to_owned())
            .spawn(move || serve(&socket, delay, &stopped))?;
        Ok(Self { address, stop })
    }
}

impl Drop for SlowResolver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn serve(socket: &UdpSocket, delay: Duration, stop: &AtomicBool) {
    let mut waiting = std::collections::VecDeque::new();
    let mut buffer = [0; 1500];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((count, from)) = socket.recv_from(&mut buffer) {
            waiting.push_back((Instant::now() + delay, from, buffer[..count].to_vec()));
        }
        while waiting.front().is_some_and(|(due, ..)| *due <= Instant::now()) {
            let Some((_, from, mut message)) = waiting.pop_front() else { break };
            if message.len() >= 12 {
                // A response, recursion available, NXDOMAIN (RFC 1035 §4.1.1); no records.
                message[2] |= 0x80;
                message[3] = 0x83;
                message[6..12].fill(0);
                // The client may have closed its socket.
                let _ = socket.send_to(&message, from);
            }
        }
    }
}
