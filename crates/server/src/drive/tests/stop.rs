//! A graceful stop in each state of a connection.

use std::time::Duration;

use crate::testing::handler::{Kind, Plan, content, running};
use crate::testing::{End, Http1, Http2, Message, TestServer, run};

const FILES: &[(&str, &[u8])] = &[("a.txt", b"the content of a")];

/// The worker has ended: nothing holds it up any more.
#[track_caller]
fn has_ended(server: &TestServer, drained: &tokio::task::JoinHandle<()>) {
    assert!(drained.is_finished(), "the worker waits for a connection: {:?}", server.open());
    assert_eq!((server.open(), running()), ((0, 0), 0));
}

#[test]
fn connections_that_wait_for_a_request_are_closed_without_a_response() {
    run("", FILES, async |server| {
        let mut new = Http1::new(server.connect());
        let mut used = Http1::new(server.connect());
        used.send(&Message::get("/a.txt"));
        server.settle().await;
        let drained = server.stop(Duration::ZERO).await;
        server.advance(Duration::from_millis(100)).await;
        for client in [&mut new, &mut used] {
            client.receive(usize::MAX);
            assert!(client.is_closed);
        }
        assert_eq!(used.replies[0].end, End::Complete);
        has_ended(server, &drained);
    });
}

#[test]
fn within_the_grace_another_request_is_answered_and_told_of_the_end() {
    run("", FILES, async |server| {
        let mut client = Http1::new(server.connect());
        server.settle().await;
        let drained = server.stop(Duration::from_secs(5)).await;
        server.advance(Duration::from_secs(2)).await;
        client.send(&Message::get("/a.txt"));
        server.settle().await;
        client.receive(usize::MAX);
        assert_eq!(client.replies[0].field("connection"), Some("close"));
        client.end.end();
        server.settle().await;
        has_ended(server, &drained);
    });
}

#[test]
fn a_request_in_progress_is_completed() {
    let plans = [
        Plan { id: 1, kind: Kind::Future, delay: 3000, size: 10, ..Plan::default() },
        Plan { id: 2, kind: Kind::Streaming, delay: 3000, size: 10, ..Plan::default() },
        Plan { id: 3, kind: Kind::Streaming, size: 30, chunk: 1, pause: 100, ..Plan::default() },
    ];
    for plan in plans {
        run("", FILES, async |server| {
            let mut client = Http1::new(server.connect());
            client.send(&Message::get(plan.target()));
            let mut other = Http2::new(server.connect(), 65_535);
            let id = other.send(&Message::get(plan.target()));
            server.advance(Duration::from_millis(500)).await;
            let drained = server.stop(Duration::ZERO).await;
            server.advance(Duration::from_millis(500)).await;
            assert!(!drained.is_finished());
            server.advance(Duration::from_secs(4)).await;
            client.receive(usize::MAX);
            other.receive(usize::MAX);
            for reply in [&client.replies[0], &other.replies[&id]] {
                assert_eq!((&reply.body, reply.end), (&plan.content(), End::Complete), "{plan:?}");
            }
            assert!(other.goaway.is_some());
            // A connection whose client does not close ends when nothing more can arrive on it.
            client.end.end();
            other.end.end();
            server.advance(Duration::from_secs(3)).await;
            assert_eq!(server.records().len(), 2);
            has_ended(server, &drained);
        });
    }
}

#[test]
fn a_request_that_has_begun_to_arrive_gets_a_response() {
    let plan = Plan { id: 4, kind: Kind::Streaming, read: 100, size: 5, ..Plan::default() };
    let message = Message::new("POST", plan.target()).body(content(4, 0..50));
    let length = crate::testing::http1::encode(&message).len();
    for cut in [10, length - 30] {
        run("", FILES, async |server| {
            let mut client = Http1::new(server.connect());
            let bytes = client.begin(&message);
            client.end.send(&bytes[..cut]);
            server.settle().await;
            let drained = server.stop(Duration::ZERO).await;
            server.advance(Duration::from_millis(500)).await;
            assert!(!drained.is_finished());
            client.end.send(&bytes[cut..]);
            server.settle().await;
            client.receive(usize::MAX);
            let reply = &client.replies[0];
            assert_eq!((reply.status, reply.end), (200, End::Complete));
            client.end.end();
            server.advance(Duration::from_secs(3)).await;
            has_ended(server, &drained);
        });
    }
}

#[test]
fn a_response_that_blocks_is_sent_to_its_end() {
    let plan = Plan { id: 5, size: 50_000, ..Plan::default() };
    run("", FILES, async |server| {
        let mut client = Http1::new(server.connect());
        client.end.set_capacity(100);
        client.send(&Message::get(plan.target()));
        server.settle().await;
        let drained = server.stop(Duration::ZERO).await;
        server.advance(Duration::from_millis(500)).await;
        assert!(!drained.is_finished());
        while client.replies[0].end == End::Open {
            server.advance(Duration::from_millis(10)).await;
            assert!(client.end.waiting() > 0, "{:?}", client.replies[0].body.len());
            client.receive(usize::MAX);
            client.end.set_capacity(10_000);
        }
        assert_eq!(
            (&client.replies[0].body, client.replies[0].end),
            (&plan.content(), End::Complete)
        );
        server.advance(Duration::from_millis(500)).await;
        client.receive(usize::MAX);
        assert!(client.is_closed, "nothing more can come on it");
        has_ended(server, &drained);
    });
}
