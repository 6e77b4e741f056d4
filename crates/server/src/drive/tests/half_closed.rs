//! Clients of HTTP/1 that close their sending side after their request, and those that have left.

use std::time::Duration;

use dunlin_net::stream::memory::ClientEnd;

use crate::testing::handler::{Kind, Plan, content, running};
use crate::testing::{End, Http1, Message, TestServer, run};

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Sends requests for the plans at once, and closes the sending side.
async fn send(server: &TestServer, plans: &[Plan]) -> Http1<ClientEnd> {
    let mut client = Http1::new(server.connect());
    for plan in plans {
        client.send(&Message::get(plan.target()));
    }
    client.end.end();
    server.settle().await;
    client
}

#[track_caller]
fn nothing_is_left(server: &TestServer) {
    assert_eq!((server.open(), running()), ((0, 0), 0), "connections and handlers that are left");
}

#[test]
fn a_client_that_has_closed_its_sending_side_gets_its_responses() {
    let streaming = Plan { kind: Kind::Streaming, size: 3_000, chunk: 100, ..Plan::default() };
    let plans = [
        Plan { id: 1, ..streaming },
        Plan { id: 2, delay: 2_500, ..streaming },
        Plan { id: 3, chunk: 300, pause: 800, states_length: true, ..streaming },
        Plan { id: 4, kind: Kind::Future, size: 30, delay: 5_000, ..Plan::default() },
        Plan { id: 5, size: 30, ..Plan::default() },
    ];
    run("", &[], async |server| {
        for plan in &plans {
            let mut client = send(server, std::slice::from_ref(plan)).await;
            server.advance(Duration::from_secs(12)).await;
            client.receive(usize::MAX);
            assert_eq!(client.replies[0].end, End::Complete, "{plan:?}");
            assert_eq!(client.replies[0].body.len(), plan.size, "{plan:?}");
        }
        // And so for several requests.
        let mut client = send(server, &plans).await;
        server.advance(Duration::from_secs(30)).await;
        client.receive(usize::MAX);
        let ends: Vec<End> = client.replies.iter().map(|reply| reply.end).collect();
        assert_eq!(ends, [End::Complete; 5]);
        drop(client);
        server.settle().await;
        assert_eq!(server.records().len(), 2 * plans.len());
        nothing_is_left(server);
    });
}

#[test]
fn a_client_gets_the_response_of_an_upstream_however_late_it_is() {
    let plan = Plan { id: 1, kind: Kind::Proxied, size: 300, chunk: 100, ..Plan::default() };
    let plans = [
        Plan { delay: 50_000, ..plan },
        Plan { pause: 40_000, ..plan },
        Plan { pause: 40_000, states_length: true, delay: 4_000, ..plan },
    ];
    run("", &[], async |server| {
        for plan in &plans {
            let mut client = send(server, std::slice::from_ref(plan)).await;
            server.advance(Duration::from_secs(130)).await;
            client.receive(usize::MAX);
            assert_eq!(client.replies[0].end, End::Complete, "{plan:?}");
            assert_eq!(client.replies[0].body.len(), plan.size, "{plan:?}");
            drop(client);
            server.settle().await;
            assert_eq!(server.records().len(), 1);
            nothing_is_left(server);
        }
    });
}

#[test]
fn the_response_of_an_upstream_is_begun_so_that_a_client_that_has_left_resets_the_connection() {
    let late =
        Plan { id: 1, kind: Kind::Proxied, size: 5, chunk: 5, delay: 4_000, ..Plan::default() };
    let slow = Plan { size: 6, chunk: 3, pause: 4_000, delay: 0, ..late };
    for (plan, before, start, rest) in
        [(late, "", "H", "TTP/1.1 200 OK\r\n"), (slow, "\r\n3\r\n", "0", "3\r\n")]
    {
        run("", &[], async |server| {
            let client = send(server, std::slice::from_ref(&plan)).await;
            server.advance(millis(900)).await;
            let first = client.end.take(usize::MAX);
            assert!(String::from_utf8_lossy(&first).contains(before), "{plan:?}");
            server.advance(millis(2_500)).await;
            assert_eq!(client.end.take(usize::MAX), start.as_bytes(), "once");
            server.advance(millis(1_500)).await;
            let last = client.end.take(usize::MAX);
            assert!(last.starts_with(rest.as_bytes()), "{:?}", String::from_utf8_lossy(&last));
            drop(client);
            // The producer of the body notices it with its next piece.
            server.advance(millis(plan.pause)).await;
            nothing_is_left(server);
        });
    }
}

#[test]
fn a_client_that_resets_its_half_closed_connection_ends_the_request_to_the_upstream() {
    let before = Plan { id: 1, kind: Kind::Proxied, delay: 60_000, ..Plan::default() };
    let within = Plan { delay: 0, size: 20, chunk: 1, pause: 9_000, ..before };
    for plan in [before, within] {
        run("", &[], async |server| {
            let client = send(server, std::slice::from_ref(&plan)).await;
            server.advance(millis(5_000)).await;
            assert_eq!(server.records(), [], "it may still receive");
            client.end.reset();
            server.advance(millis(1_200)).await;
            assert_eq!(server.records().len(), 1);
            drop(client);
            server.advance(millis(plan.pause)).await;
            nothing_is_left(server);
        });
    }
}

#[test]
fn a_client_that_has_left_ends_its_handler() {
    let before = Plan { id: 1, kind: Kind::Streaming, delay: 60_000, ..Plan::default() };
    let within = Plan { id: 2, kind: Kind::Streaming, size: 20, chunk: 1, pause: 9_000, ..before };
    for (plan, time) in [(before, 3_000), (Plan { delay: 0, ..within }, 1_000)] {
        run("", &[], async |server| {
            let client = send(server, std::slice::from_ref(&plan)).await;
            server.advance(millis(time - 200)).await;
            assert_eq!(server.records(), [], "it may still receive");
            server.advance(millis(400)).await;
            assert_eq!(server.records().len(), 1);
            drop(client);
            // The producer of the body notices it with its next piece.
            server.advance(millis(plan.pause)).await;
            nothing_is_left(server);
        });
    }
}

#[test]
fn a_client_that_resets_or_leaves_its_request_incomplete_has_left() {
    let plan = Plan { id: 1, kind: Kind::Streaming, read: 100, delay: 9_000, ..Plan::default() };
    run("", &[], async |server| {
        let mut client = Http1::new(server.connect());
        client.send(&Message::get(plan.target()));
        server.settle().await;
        client.end.reset();
        server.settle().await;
        let message = Message::new("POST", plan.target()).body(content(1, 0..50));
        let mut client = Http1::new(server.connect());
        let bytes = client.begin(&message);
        client.end.send(&bytes[..bytes.len() - 1]);
        client.end.end();
        server.settle().await;
        assert_eq!(server.records().iter().map(|it| it.status).collect::<Vec<_>>(), [499, 499]);
        nothing_is_left(server);
    });
}
