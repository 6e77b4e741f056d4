//! A graceful stop of HTTP/3, whose datagrams may be lost.

use std::time::Duration;

use crate::testing::link::write_certificate;
use crate::testing::{End, Http3, Message, TestServer, run_in};

/// Runs `test` with a client that has had a response.
fn run(test: impl AsyncFnOnce(&TestServer, &mut Http3)) {
    let directory = tempfile::tempdir().expect("a directory for the test");
    std::fs::create_dir(directory.path().join("www")).expect("a root for the test");
    crate::testing::write_old(&directory.path().join("www/a.txt"), b"the content of a");
    let site = write_certificate(directory.path());
    run_in(&directory, "", &site, async |server| {
        server.change_listener(|listener| {
            listener.tls = true;
            listener.http3 = dunlin_config::Http3::IfPossible;
        });
        let mut client = Http3::connect(server, directory.path(), server.client_address());
        client.open(server).await;
        let id = client.send(&Message::get("/a.txt"));
        client.exchange(server).await;
        assert_eq!(client.replies[&id].end, End::Complete);
        test(server, &mut client).await;
    });
}

/// Lets time pass in which no datagram reaches the client.
async fn lose(server: &TestServer, client: &mut Http3, steps: usize) {
    for _ in 0..steps {
        server.advance(Duration::from_millis(100)).await;
        client.collect();
        client.to_client.clear();
    }
}

#[test]
fn the_connection_ends_when_the_client_has_the_last_goaway() {
    run(async |server, client| {
        let drained = server.stop(Duration::ZERO).await;
        // The time after which the server announces the last request is over.
        lose(server, client, 30).await;
        assert!(!drained.is_finished() && client.goaways().is_empty());
        for _ in 0..100 {
            client.exchange(server).await;
            server.advance(Duration::from_millis(100)).await;
        }
        // It begins with the last possible stream.
        assert_eq!(client.goaways().len(), 2);
        assert_eq!((client.goaways()[1], client.closed), (4, Some(Some(0x100))));
        server.advance(Duration::from_secs(3)).await;
        assert!(drained.is_finished(), "the worker waits for {:?}", server.open());
    });
}

#[test]
fn a_request_that_the_last_goaway_does_not_name_is_rejected() {
    run(async |server, client| {
        server.stop(Duration::ZERO).await;
        lose(server, client, 30).await;
        let late = client.send(&Message::get("/a.txt"));
        for _ in 0..20 {
            client.exchange(server).await;
            server.advance(Duration::from_millis(100)).await;
        }
        let rejected = Some(&0x10b);
        assert_eq!((client.goaways()[1], client.resets.get(&late)), (4, rejected));
    });
}
