//! Deadlines, and timers that fire between two reads.

use std::time::Duration;

use crate::testing::handler::{Kind, Plan, running};
use crate::testing::{End, Http1, Http2, Message, TestServer, run_with};

const LIMITS: &str = "http1 = { idle_timeout = '8s', head_timeout = '4s', body_timeout = '5s', send_timeout = '6s', body_rate = '1B/s' }";
const FILES: &[(&str, &[u8])] = &[("a.txt", b"a")];

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

#[track_caller]
fn nothing_is_left(server: &TestServer) {
    assert_eq!((server.open(), running()), ((0, 0), 0), "connections and handlers that are left");
}

#[test]
fn an_idle_connection_is_closed_after_its_timeout_and_without_a_response() {
    run_with(LIMITS, "", FILES, async |server| {
        let mut new = Http1::new(server.connect());
        let mut used = Http1::new(server.connect());
        used.send(&Message::get("/a.txt"));
        server.settle().await;
        server.records();
        for (passes, is_closed) in [(7.8, false), (0.4, true)] {
            server.advance(seconds(passes)).await;
            for client in [&mut new, &mut used] {
                client.receive(usize::MAX);
                assert_eq!((client.is_closed, client.rest()), (is_closed, &b""[..]));
            }
        }
        assert_eq!(server.records(), []);
        nothing_is_left(server);
    });
}

#[test]
fn bytes_do_not_prolong_the_time_of_a_head() {
    run_with(LIMITS, "", FILES, async |server| {
        let mut client = Http1::new(server.connect());
        let bytes = client.begin(&Message::get("/a.txt"));
        client.end.send(&bytes[..5]);
        for byte in &bytes[5..12] {
            server.advance(seconds(0.5)).await;
            client.end.send(std::slice::from_ref(byte));
            server.settle().await;
            assert_eq!(client.end.waiting(), 0, "it may still come");
        }
        server.advance(seconds(0.7)).await;
        client.receive(usize::MAX);
        assert_eq!(client.replies[0].status, 408);
        let records = server.records();
        assert_eq!((records.len(), records[0].status), (1, 408), "{records:?}");
        // It lingers for bytes that are on their way.
        server.advance(seconds(2.2)).await;
        nothing_is_left(server);
    });
}

#[test]
fn a_head_that_is_complete_in_time_gets_a_response_despite_a_tick_between_its_reads() {
    run_with(LIMITS, "", FILES, async |server| {
        let mut client = Http1::new(server.connect());
        let bytes = client.begin(&Message::get("/a.txt"));
        client.end.send(&bytes[..5]);
        server.advance(seconds(3.8)).await;
        client.end.send(&bytes[5..]);
        server.settle().await;
        client.receive(usize::MAX);
        assert_eq!(client.replies[0].status, 200);
        // The next head has its own time.
        let bytes = client.begin(&Message::get("/a.txt"));
        server.advance(seconds(7.5)).await;
        client.end.send(&bytes[..5]);
        server.advance(seconds(3.5)).await;
        client.end.send(&bytes[5..]);
        server.settle().await;
        client.receive(usize::MAX);
        assert_eq!(client.replies[1].status, 200);
    });
}

#[test]
fn a_stalled_body_is_rejected_for_every_receiver() {
    let ready = Plan { id: 1, ..Plan::default() };
    let reads = Plan { id: 2, kind: Kind::Streaming, read: 100, ..Plan::default() };
    run_with(LIMITS, "", FILES, async |server| {
        for plan in [ready, reads] {
            let message = Message::new("POST", plan.target())
                .body(crate::testing::handler::content(plan.id, 0..50));
            let mut client = Http1::new(server.connect());
            let bytes = client.begin(&message);
            client.end.send(&bytes[..bytes.len() - 30]);
            server.advance(seconds(4.8)).await;
            client.end.send(&bytes[bytes.len() - 30..bytes.len() - 20]);
            server.advance(seconds(4.8)).await;
            assert_eq!(client.end.waiting(), 0, "each byte begins its time anew");
            server.advance(seconds(0.5)).await;
            client.receive(usize::MAX);
            assert_eq!(client.replies[0].status, 408, "{plan:?}");

            let mut client = Http2::new(server.connect(), 1000);
            let (id, mut bytes) = client.begin(&Message::new("POST", plan.target()));
            bytes[4] &= !dunlin_http::http2::frame::flag::END_STREAM;
            client.end.send(&bytes);
            server.advance(seconds(5.3)).await;
            client.receive(usize::MAX);
            assert_eq!((client.replies[&id].status, client.replies[&id].end), (408, End::Complete));
            let records = server.records();
            let statuses: Vec<u16> = records.iter().map(|record| record.status).collect();
            assert_eq!(statuses, [408, 408], "{plan:?}: {records:?}");
        }
        server.advance(seconds(3.0)).await;
        nothing_is_left(server);
    });
}

#[test]
fn a_body_may_be_slow_while_its_response_is_on_its_way() {
    // As calls of gRPC that stream in both directions.
    let plan = Plan {
        kind: Kind::Streaming,
        read: 10,
        size: 20,
        chunk: 1,
        pause: 9_000,
        ..Plan::default()
    };
    run_with(LIMITS, "", FILES, async |server| {
        let plan = Plan { id: 1, ..plan.clone() };
        let content = crate::testing::handler::content(plan.id, 0..20);
        let mut client = Http2::new(server.connect(), 1000);
        let (id, mut bytes) = client.begin(&Message::new("POST", plan.target()));
        bytes[4] &= !dunlin_http::http2::frame::flag::END_STREAM;
        client.end.send(&bytes);
        client.data(id, &content[..10], false);
        for byte in &content[10..] {
            server.advance(seconds(15.0)).await;
            client.data(id, &[*byte], false);
        }
        server.advance(seconds(60.0)).await;
        client.receive(usize::MAX);
        let reply = &client.replies[&id];
        assert_eq!((reply.status, reply.body.len(), reply.end), (200, 20, End::Complete));
        drop(client);

        let plan = Plan { id: 2, ..plan };
        let content = crate::testing::handler::content(plan.id, 0..20);
        let mut client = Http1::new(server.connect());
        let bytes = client.begin(&Message::new("POST", plan.target()).body(content));
        let (start, rest) = bytes.split_at(bytes.len() - 10);
        client.end.send(start);
        for byte in rest {
            server.advance(seconds(15.0)).await;
            client.end.send(&[*byte]);
        }
        server.advance(seconds(60.0)).await;
        client.receive(usize::MAX);
        assert_eq!((client.replies[0].status, client.replies[0].body.len()), (200, 20));
        drop(client);
        server.settle().await;
        nothing_is_left(server);
    });
}

#[test]
fn a_client_without_progress_is_disconnected() {
    let plans = [
        Plan { id: 1, size: 100_000, ..Plan::default() },
        Plan { id: 2, kind: Kind::Streaming, size: 100_000, chunk: 1000, ..Plan::default() },
    ];
    run_with(LIMITS, "", FILES, async |server| {
        for plan in plans {
            let mut client = Http1::new(server.connect());
            client.end.set_capacity(500);
            client.send(&Message::get(plan.target()));
            // It reads a byte from time to time.
            for _ in 0..3 {
                server.advance(seconds(5.0)).await;
                client.receive(1);
                assert!(!client.is_closed, "{plan:?}");
            }
            server.advance(seconds(9.5)).await;
            client.receive(usize::MAX);
            assert!(client.is_closed, "{plan:?}");
            assert_eq!(client.replies[0].end, End::Aborted);
            let records = server.records();
            assert_eq!((records.len(), records[0].status), (1, 200), "{records:?}");
            assert!(records[0].bytes < 600, "{records:?}");
            nothing_is_left(server);
        }
    });
}

#[test]
fn a_handler_may_take_longer_than_any_timeout_of_the_client() {
    let plan = Plan { id: 3, kind: Kind::Streaming, delay: 60_000, size: 5, ..Plan::default() };
    let job = Plan { kind: Kind::Future, ..plan.clone() };
    run_with(LIMITS, "", FILES, async |server| {
        let mut first = Http1::new(server.connect());
        first.send(&Message::get(plan.target()));
        let mut second = Http1::new(server.connect());
        second.send(&Message::get(job.target()));
        let mut third = Http2::new(server.connect(), 1000);
        let id = third.send(&Message::get(plan.target()));
        server.advance(seconds(61.0)).await;
        for client in [&mut first, &mut second] {
            client.receive(usize::MAX);
            assert_eq!(client.replies[0].end, End::Complete);
        }
        third.receive(usize::MAX);
        assert_eq!(third.replies[&id].end, End::Complete);
    });
}

#[test]
fn an_idle_http2_connection_gets_goaway_and_a_frame_has_a_timeout() {
    run_with(LIMITS, "", FILES, async |server| {
        let mut idle = Http2::new(server.connect(), 1000);
        let mut partial = Http2::new(server.connect(), 1000);
        idle.send(&Message::get("/a.txt"));
        let (_, bytes) = partial.begin(&Message::get("/a.txt"));
        partial.end.send(&bytes[..bytes.len() - 1]);
        server.settle().await;
        // A frame that it has to acknowledge would make it active.
        idle.receive(usize::MAX);
        server.advance(seconds(3.8)).await;
        partial.receive(usize::MAX);
        assert_eq!(partial.goaway, None);
        server.advance(seconds(0.5)).await;
        partial.receive(usize::MAX);
        assert!(partial.goaway.is_some());
        server.advance(seconds(3.5)).await;
        idle.receive(usize::MAX);
        assert_eq!(idle.goaway, None);
        server.advance(seconds(0.7)).await;
        idle.receive(usize::MAX);
        assert_eq!(idle.goaway.map(|(code, _)| code), Some(0));
        server.advance(seconds(3.0)).await;
        nothing_is_left(server);
    });
}
