//! HTTP/1: reads and writes that are cut at each byte, and clients that leave at each byte.

use std::time::Duration;

use crate::testing::handler::{self, Kind, Plan, running};
use crate::testing::http1::lengths;
use crate::testing::{End, Http1, Message, TestReply, TestServer, run};

const FILES: &[(&str, &[u8])] = &[("a.txt", b"the content of a"), ("b.txt", b"and that of b")];

/// Requests of each way through the adapter: a cached file, a missing file, a response at once that waits for the
/// request's body, one that is made later, a streamed one.
fn requests() -> Vec<Message> {
    let exchange =
        Plan { id: 4, kind: Kind::Streaming, read: 100, size: 40, chunk: 7, ..Plan::default() };
    let ready = Plan { id: 2, size: 30, ..Plan::default() };
    let job = Plan { id: 3, kind: Kind::Future, size: 30, ..Plan::default() };
    let content = |id, length| handler::content(id, 0..length);
    vec![
        Message::get("/a.txt"),
        Message::get("/missing.txt"),
        Message::new("POST", ready.target()).body(content(2, 20)),
        Message::get(job.target()),
        Message::new("POST", exchange.target()).streamed(content(4, 30)),
        Message::new("HEAD", "/b.txt"),
        Message::get("/b.txt"),
    ]
}

/// Returns the responses to the requests, with one connection and one request at a time.
async fn expected(server: &TestServer) -> Vec<TestReply> {
    let mut replies = Vec::new();
    for message in requests() {
        let mut client = Http1::new(server.connect());
        client.send(&message);
        server.settle().await;
        client.receive(usize::MAX);
        assert_eq!(client.replies[0].end, End::Complete, "{message:?}");
        replies.append(&mut client.replies);
    }
    server.settle().await;
    server.records();
    replies
}

fn all_bytes(client: &mut Http1) -> Vec<u8> {
    requests().iter().flat_map(|message| client.begin(message)).collect()
}

#[track_caller]
fn nothing_is_left(server: &TestServer) {
    assert_eq!((server.open(), running()), ((0, 0), 0), "connections and handlers that are left");
}

#[test]
fn pipelined_requests_get_equal_responses_at_every_split() {
    run("", FILES, async |server| {
        let expected = expected(server).await;
        let length = all_bytes(&mut Http1::new(server.connect())).len();
        for cut in 1..length {
            let mut client = Http1::new(server.connect());
            let bytes = all_bytes(&mut client);
            client.end.send(&bytes[..cut]);
            server.settle().await;
            client.end.send(&bytes[cut..]);
            server.settle().await;
            client.receive(usize::MAX);
            assert_eq!(client.replies, expected, "cut behind {cut} bytes");
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
        let expected = expected(server).await;
        for (read, written, capacity) in [(1, 1, 1), (1, 7, 3), (3, 1, 100), (usize::MAX, 5, 5)] {
            let mut client = Http1::new(server.connect());
            client.end.set_max(read, written);
            client.end.set_capacity(capacity);
            let bytes = all_bytes(&mut client);
            client.end.send(&bytes);
            for _ in 0..10_000 {
                server.settle().await;
                if client.end.waiting() == 0 {
                    break;
                }
                client.receive(usize::MAX);
            }
            assert_eq!(client.replies, expected, "{read}, {written}, {capacity}");
            drop(client);
            server.settle().await;
            assert_eq!(server.records().len(), expected.len());
        }
        nothing_is_left(server);
    });
}

#[test]
fn a_response_that_blocks_at_each_byte_is_recorded_once_with_the_bytes_that_were_taken() {
    let plan = Plan { id: 9, size: 20_000, ..Plan::default() };
    run("", FILES, async |server| {
        for capacity in (1..400).chain([10_000, 20_000]) {
            let mut client = Http1::new(server.connect());
            client.end.set_capacity(capacity);
            client.send(&Message::get(plan.target()));
            server.settle().await;
            assert_eq!(server.records(), [], "the response has not been sent yet");
            client.end.reset();
            server.settle().await;
            let records = server.records();
            assert_eq!(records.len(), 1, "{records:?}");
            let head = 20_000_usize.saturating_sub(records[0].bytes as usize);
            assert!(records[0].bytes as usize <= capacity && head > 0, "{records:?}");
            assert_eq!(records[0].status, 200, "the head has begun to leave");
        }
        nothing_is_left(server);
    });
}

#[test]
fn a_client_that_ends_or_resets_at_each_byte_leaves_one_record_for_each_request() {
    for resets in [false, true] {
        run("", FILES, async |server| {
            let length = all_bytes(&mut Http1::new(server.connect())).len();
            for cut in 0..=length {
                let mut client = Http1::new(server.connect());
                let bytes = all_bytes(&mut client);
                client.end.send(&bytes[..cut]);
                server.settle().await;
                if resets {
                    client.end.reset();
                } else {
                    client.end.end();
                }
                server.settle().await;
                client.receive(usize::MAX);
                let begun = requests()
                    .iter()
                    .scan(0, |at, message| {
                        *at += lengths(message).0;
                        let is_complete = *at <= cut;
                        *at += lengths(message).1;
                        Some(is_complete)
                    })
                    .filter(|is_complete| *is_complete)
                    .count();
                let records = server.records();
                assert_eq!(records.len(), begun, "cut behind {cut}: {records:?}");
                drop(client);
                server.advance(Duration::from_secs(3)).await;
            }
            nothing_is_left(server);
        });
    }
}

#[test]
fn a_streamed_response_that_fails_is_seen_to_be_incomplete() {
    run("", FILES, async |server| {
        for states_length in [false, true] {
            let plan = Plan {
                id: 5,
                kind: Kind::Streaming,
                size: 1000,
                chunk: 100,
                states_length,
                fail: Some(500),
                ..Plan::default()
            };
            let mut client = Http1::new(server.connect());
            client.send(&Message::get(plan.target()));
            server.settle().await;
            client.receive(usize::MAX);
            assert_eq!(client.replies[0].end, End::Aborted);
            assert!(client.is_closed);
            let records = server.records();
            assert_eq!(records.len(), 1, "{records:?}");
        }
        nothing_is_left(server);
    });
}

#[test]
fn a_rejected_request_for_a_head_gets_no_body_and_its_record_names_it() {
    run("", FILES, async |server| {
        let mut client = Http1::new(server.connect());
        client.send(&Message::new("HEAD", "/a.txt").with("expect", "something-else"));
        server.settle().await;
        client.receive(usize::MAX);
        let reply = &client.replies[0];
        assert_eq!((reply.status, reply.end), (417, End::Complete));
        let records = server.records();
        assert_eq!((records.len(), &*records[0].target, records[0].status), (1, "/a.txt", 417));
    });
}
