//! Connections that need a TLS handshake or a PROXY header before their first request.

use std::time::Duration;

use super::link::{TlsEnd, write_certificate};
use super::{End, Http1, Message, TestServer, run_in};

const TIMEOUT: &str = "http1.head_timeout = '5s'";

/// Runs `test` with a server that has a certificate and the file `a.txt`.
fn run(test: impl AsyncFnOnce(&TestServer, &std::path::Path)) {
    let directory = tempfile::tempdir().expect("a directory for the test");
    super::write_old(&directory.path().join("www/a.txt"), b"the content of a");
    let site = write_certificate(directory.path());
    run_in(&directory, TIMEOUT, &site, async |server| test(server, directory.path()).await);
}

#[test]
fn tls_works_with_single_bytes() {
    run(async |server, directory| {
        server.change_listener(|listener| listener.tls = true);
        let end = server.connect();
        end.set_max(1, 1);
        let link = TlsEnd::connect(server, end, directory, b"http/1.1").await;
        let mut client = Http1::new(link);
        for _ in 0..2 {
            client.send(&Message::get("/a.txt"));
            server.settle().await;
            client.receive(usize::MAX);
            let reply = client.replies.last().expect("a reply");
            assert_eq!((reply.status, reply.end), (200, End::Complete));
            assert_eq!(reply.body, b"the content of a");
        }
    });
}

#[test]
fn a_handshake_that_stalls_is_closed_after_the_timeout() {
    run(async |server, _| {
        server.change_listener(|listener| listener.tls = true);
        for part in [&b""[..], &[22, 3, 1, 2, 0, 1]] {
            let end = server.connect();
            end.send(part);
            server.advance(Duration::from_millis(4_900)).await;
            assert!(!end.is_closed(), "before the timeout");
            server.advance(Duration::from_millis(300)).await;
            assert!(end.is_closed(), "after the timeout");
        }
        assert_eq!(server.open(), (0, 0));
    });
}

#[test]
fn a_handshake_that_is_malformed_is_closed_with_an_alert() {
    run(async |server, _| {
        server.change_listener(|listener| listener.tls = true);
        let end = server.connect();
        end.send(&[22, 3, 1, 0, 4, 1, 0, 0, 0]);
        server.settle().await;
        let alert = end.take(usize::MAX);
        assert_eq!((alert.first(), alert.len()), (Some(&21), 7));
        assert!(end.is_closed());
        let end = server.connect();
        end.send(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n");
        server.settle().await;
        assert!(end.take(usize::MAX).starts_with(b"HTTP/1.1 400 "));
    });
}

#[test]
fn a_proxy_header_that_stalls_is_closed_after_the_timeout() {
    run(async |server, _| {
        server.change_listener(|listener| listener.proxy_protocol = true);
        let header = b"PROXY TCP4 203.0.113.7 192.0.2.254 1 80\r\n";
        let stalled = server.connect();
        stalled.send(&header[..20]);
        let end = server.connect();
        for byte in header {
            end.send(&[*byte]);
            server.settle().await;
        }
        let mut client = Http1::new(end);
        client.send(&Message::get("/a.txt"));
        server.settle().await;
        client.receive(usize::MAX);
        assert_eq!(client.replies[0].end, End::Complete);
        assert_eq!(server.records()[0].remote, "203.0.113.7");
        server.advance(Duration::from_millis(5_200)).await;
        assert!(stalled.is_closed() && !client.end.is_closed());
    });
}
