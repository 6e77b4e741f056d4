//! HTTP/2: frames that are cut at each byte, windows that open byte by byte, streams and connections that are cancelled.

use std::collections::BTreeMap;
use std::time::Duration;

use dunlin_http::http2::Http2ErrorCode;

use crate::testing::handler::{Kind, Plan, content, running};
use crate::testing::{End, Http2, Message, TestReply, TestServer, run, run_with};

const FILES: &[(&str, &[u8])] = &[("a.txt", b"the content of a"), ("b.txt", b"and that of b")];
const WINDOW: u32 = 65_535;

fn requests() -> Vec<Message> {
    let exchange =
        Plan { id: 4, kind: Kind::Streaming, read: 100, size: 40, chunk: 7, ..Plan::default() };
    let ready = Plan { id: 2, size: 30, ..Plan::default() };
    let job = Plan { id: 3, kind: Kind::Future, size: 30, ..Plan::default() };
    vec![
        Message::get("/a.txt"),
        Message::get("/missing.txt"),
        Message::new("POST", ready.target()).body(content(2, 0..20)),
        Message::get(job.target()),
        Message::new("POST", exchange.target()).streamed(content(4, 0..30)),
        Message::new("HEAD", "/b.txt"),
        Message::get("/b.txt"),
    ]
}

#[track_caller]
fn nothing_is_left(server: &TestServer) {
    assert_eq!((server.open(), running()), ((0, 0), 0), "connections and handlers that are left");
}

/// Returns the frames of a client that sends all requests at once. The bytes are collected rather than sent.
fn all_bytes(server: &TestServer) -> Vec<u8> {
    let end = server.connect();
    let mut client = Http2::new(end, WINDOW);
    for message in requests() {
        client.send(&message);
    }
    let bytes = client.end.take_back();
    client.end.reset();
    bytes
}

fn receive_all(client: &mut Http2) -> BTreeMap<u32, TestReply> {
    client.receive(usize::MAX);
    client.replies.clone()
}

#[test]
fn requests_get_equal_responses_at_every_split() {
    run("", FILES, async |server| {
        let mut client = Http2::new(server.connect(), WINDOW);
        for message in requests() {
            client.send(&message);
            server.settle().await;
        }
        let expected = receive_all(&mut client);
        assert!(expected.values().all(|reply| reply.end == End::Complete), "{expected:?}");
        drop(client);
        server.settle().await;
        server.records();
        let bytes = all_bytes(server);
        server.settle().await;
        server.records();
        for cut in 1..bytes.len() {
            let mut client = Http2::replaying(server.connect(), requests().len() as u32);
            client.end.send(&bytes[..cut]);
            server.settle().await;
            client.end.send(&bytes[cut..]);
            server.settle().await;
            assert_eq!(receive_all(&mut client), expected, "cut behind {cut} bytes");
            drop(client);
            server.settle().await;
            assert_eq!(server.records().len(), expected.len(), "cut behind {cut} bytes");
        }
        nothing_is_left(server);
    });
}

#[test]
fn responses_are_alike_when_each_read_and_write_has_few_bytes() {
    run("", FILES, async |server| {
        for (read, written, capacity) in [(1, 1, 1), (1, 7, 3), (3, 1, 100), (usize::MAX, 5, 5)] {
            let mut client = Http2::new(server.connect(), WINDOW);
            client.end.set_max(read, written);
            client.end.set_capacity(capacity);
            for message in requests() {
                client.send(&message);
            }
            for _ in 0..10_000 {
                server.settle().await;
                if client.end.waiting() == 0 {
                    break;
                }
                client.receive(usize::MAX);
            }
            let ends: Vec<_> =
                client.replies.values().map(|reply| (reply.status, reply.end)).collect();
            let statuses = [200, 404, 200, 200, 200, 200, 200];
            assert_eq!(ends, statuses.map(|status| (status, End::Complete)));
            drop(client);
            server.settle().await;
            assert_eq!(server.records().len(), 7);
        }
        nothing_is_left(server);
    });
}

#[test]
fn a_body_is_sent_as_the_window_opens_byte_by_byte() {
    let streamed = Plan { id: 7, kind: Kind::Streaming, size: 50, chunk: 9, ..Plan::default() };
    let whole = Plan { id: 8, size: 50, ..Plan::default() };
    run("", &[("a.txt", &[b'x'; 50])], async |server| {
        for target in [streamed.target(), whole.target(), "/a.txt".to_owned(), "/a.txt".to_owned()]
        {
            let mut client = Http2::new(server.connect(), 0);
            client.opens_windows = false;
            let id = client.send(&Message::get(&target));
            for have in 0..50 {
                server.settle().await;
                client.receive(usize::MAX);
                assert_eq!(client.replies[&id].body.len(), have, "{target}");
                client.open_window(id, 1);
            }
            server.settle().await;
            client.receive(usize::MAX);
            assert_eq!(
                (client.replies[&id].body.len(), client.replies[&id].end),
                (50, End::Complete)
            );
            assert_eq!(server.records().len(), 1);
        }
        server.settle().await;
        nothing_is_left(server);
    });
}

#[test]
fn a_client_that_resets_at_each_byte_leaves_at_most_one_record_for_each_request() {
    run("", FILES, async |server| {
        let bytes = all_bytes(server);
        server.settle().await;
        server.records();
        for cut in 0..=bytes.len() {
            let client = Http2::replaying(server.connect(), requests().len() as u32);
            client.end.send(&bytes[..cut]);
            server.settle().await;
            client.end.reset();
            server.settle().await;
            let records = server.records();
            let mut targets: Vec<_> = records.iter().map(|record| &record.target).collect();
            targets.sort();
            targets.dedup();
            // Two requests are for one target.
            assert!(targets.len() + 1 >= records.len(), "cut behind {cut}: {records:?}");
            assert_eq!(server.open(), (0, 0), "cut behind {cut}");
        }
        nothing_is_left(server);
    });
}

#[test]
fn a_cancelled_stream_is_recorded_once_and_ends_its_handler() {
    let plans = [
        Plan { id: 1, kind: Kind::Future, delay: 1000, ..Plan::default() },
        Plan { id: 2, kind: Kind::Streaming, delay: 1000, ..Plan::default() },
        Plan { id: 3, kind: Kind::Streaming, read: 10, ..Plan::default() },
        Plan {
            id: 4,
            kind: Kind::Streaming,
            size: 100_000,
            chunk: 10,
            pause: 10,
            ..Plan::default()
        },
        Plan { id: 5, size: 1_000_000, ..Plan::default() },
    ];
    run("", FILES, async |server| {
        for plan in plans {
            let mut client = Http2::new(server.connect(), 1000);
            client.opens_windows = false;
            let message = match plan.read {
                0 => Message::get(plan.target()),
                _ => Message::new("POST", plan.target()),
            };
            let (id, mut head) = client.begin(&message);
            if plan.read > 0 {
                // The body has not arrived.
                head[4] &= !dunlin_http::http2::frame::flag::END_STREAM;
            }
            client.end.send(&head);
            server.advance(Duration::from_millis(100)).await;
            assert_eq!(server.records(), [], "{plan:?}");
            client.cancel(id);
            server.advance(Duration::from_millis(100)).await;
            let records = server.records();
            assert_eq!(records.len(), 1, "{plan:?}: {records:?}");
            assert_eq!(running(), 0, "{plan:?}");
        }
        server.settle().await;
        nothing_is_left(server);
    });
}

#[test]
fn a_window_that_stays_closed_ends_the_stream_and_not_the_connection() {
    run_with("http1.send_timeout = '5s'", "", &[("a.txt", &[b'x'; 500])], async |server| {
        let mut client = Http2::new(server.connect(), 100);
        client.opens_windows = false;
        let id = client.send(&Message::get("/a.txt"));
        server.advance(Duration::from_millis(4800)).await;
        client.receive(usize::MAX);
        assert_eq!(client.replies[&id].end, End::Open);
        server.advance(Duration::from_millis(500)).await;
        client.receive(usize::MAX);
        assert_eq!(client.replies[&id].end, End::Aborted);
        let records = server.records();
        assert_eq!((records.len(), records[0].status, records[0].bytes), (1, 200, 100));
        let next = client.send(&Message::new("HEAD", "/a.txt"));
        server.settle().await;
        client.receive(usize::MAX);
        assert_eq!((client.replies[&next].status, client.replies[&next].end), (200, End::Complete));
    });
}

#[test]
fn early_hints_wait_for_room_in_the_socket_without_running_the_task() {
    let plan =
        Plan { id: 6, kind: Kind::Streaming, delay: 1000, size: 5, hints: true, ..Plan::default() };
    run("", FILES, async |server| {
        let mut client = Http2::new(server.connect(), WINDOW);
        server.settle().await;
        // The client reads nothing: not even the server's settings are sent.
        client.end.set_capacity(1);
        let id = client.send(&Message::get(plan.target()));
        server.settle().await;
        client.end.set_capacity(10_000);
        server.advance(Duration::from_millis(1100)).await;
        client.receive(usize::MAX);
        let reply = &client.replies[&id];
        assert_eq!((&reply.interim[..], reply.status, reply.end), (&[103][..], 200, End::Complete));
    });
}

#[test]
fn uploads_do_not_use_up_the_window_of_their_connection() {
    let streaming = Plan { id: 1, kind: Kind::Streaming, ..Plan::default() };
    let plans = [
        ("read", Plan { read: 1 << 20, ..streaming.clone() }),
        ("read in part", Plan { read: 10, ..streaming.clone() }),
        ("not read", streaming),
        ("discarded", Plan { kind: Kind::Future, delay: 10, ..Plan::default() }),
    ];
    run("", FILES, async |server| {
        for (name, plan) in plans {
            let mut client = Http2::new(server.connect(), WINDOW);
            // Twice the window of a connection, in all.
            for number in 0..150 {
                let message = Message::new("POST", plan.target()).streamed(content(1, 0..15_000));
                let id = client.send(&message);
                server.settle().await;
                server.advance(Duration::from_millis(20)).await;
                client.receive(usize::MAX);
                assert_eq!(client.unsent(id), 0, "{name}: upload {number}");
                let reply = &client.replies[&id];
                assert_eq!((reply.status, reply.end), (200, End::Complete), "{name}: {number}");
            }
            drop(client);
            server.settle().await;
        }
        nothing_is_left(server);
    });
}

#[test]
fn cancelled_uploads_do_not_use_up_the_window_of_their_connection() {
    // The handler reads nothing before the client cancels.
    let plan = Plan { id: 1, kind: Kind::Streaming, delay: 1000, ..Plan::default() };
    run("", FILES, async |server| {
        let mut client = Http2::new(server.connect(), WINDOW);
        server.settle().await;
        client.receive(usize::MAX);
        for number in 0..40 {
            let message = Message::new("POST", plan.target()).streamed(content(1, 0..70_000));
            let id = client.send(&message);
            server.settle().await;
            client.receive(usize::MAX);
            server.settle().await;
            assert_eq!(client.unsent(id), 70_000 - WINDOW as usize, "upload {number}");
            client.cancel(id);
            server.settle().await;
            client.receive(usize::MAX);
        }
        drop(client);
        server.settle().await;
        nothing_is_left(server);
    });
}

#[test]
fn a_long_request_body_is_reset_without_an_error_after_the_response() {
    let plan = Plan { id: 1, kind: Kind::Streaming, delay: 50, ..Plan::default() };
    run("", FILES, async |server| {
        let mut client = Http2::new(server.connect(), WINDOW);
        let message = Message::new("POST", plan.target()).streamed(content(1, 0..1_000_000));
        let id = client.send(&message);
        server.settle().await;
        server.advance(Duration::from_millis(100)).await;
        for _ in 0..10 {
            client.receive(usize::MAX);
            server.settle().await;
        }
        let reply = &client.replies[&id];
        assert_eq!((reply.status, reply.end), (200, End::Complete));
        assert_eq!(client.resets.get(&id), Some(&(Http2ErrorCode::NoError as u32)));
        let next = client.send(&Message::get("/a.txt"));
        server.settle().await;
        client.receive(usize::MAX);
        assert_eq!((client.replies[&next].status, client.replies[&next].end), (200, End::Complete));
    });
}
