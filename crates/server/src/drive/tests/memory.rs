//! The memory that connections hold, whatever clients take and handlers send.

use std::time::Duration;

use dunlin_memory::thread;

use crate::testing::handler::{Kind, Plan, running};
use crate::testing::{End, Http1, Http2, Message, TestServer, run, run_with};

const FILES: &[(&str, &[u8])] = &[("a.txt", b"the content of a")];
/// Bound of a connection with one response: the queue of the handler, the queue of the exchange, and a chunk of each.
const BOUND: i64 = 320 * 1024;

/// Returns a streamed response, in chunks of that size.
fn streamed(size: usize, chunk: usize) -> Plan {
    Plan { id: 1, kind: Kind::Streaming, size, chunk, ..Plan::default() }
}

#[track_caller]
fn assert_bounded(what: &str) {
    let held = thread::held();
    assert!((0..=BOUND).contains(&held), "{what}: {held} bytes are held");
}

/// Has a client take `each` bytes at a time until the response of `plan` has ended. Returns the bytes that it has taken.
async fn take_slowly(server: &TestServer, plan: &Plan, each: usize) -> usize {
    let mut client = Http1::new(server.connect());
    client.end.set_capacity(20_000);
    client.send(&Message::get(plan.target()).with("connection", "close"));
    let mut taken = 0;
    while !client.end.is_closed() {
        server.settle().await;
        assert_bounded(&format!("{plan:?}, {taken} bytes taken"));
        taken += client.end.take(each).len();
        if client.end.waiting() == 0 {
            server.advance(Duration::from_millis(100)).await;
        }
    }
    taken + client.end.take(usize::MAX).len()
}

#[test]
fn a_response_is_released_while_a_slow_client_takes_it() {
    run("", FILES, async |server| {
        for (size, chunk) in
            [(50_000, 1), (1_000_000, 700), (8_000_000, 16_000), (4_000_000, 60_000)]
        {
            for states_length in [false, true] {
                let plan = Plan { states_length, ..streamed(size, chunk) };
                assert!(take_slowly(server, &plan, 8_000).await > size, "{plan:?}");
            }
        }
        assert_eq!((thread::held(), running()), (0, 0));
    });
}

#[test]
fn a_response_is_released_while_a_slow_client_of_http2_takes_it() {
    run("", FILES, async |server| {
        for (size, chunk) in
            [(50_000, 1), (1_000_000, 700), (4_000_000, 16_000), (4_000_000, 60_000)]
        {
            let mut client = Http2::new(server.connect(), 1 << 20);
            client.end.set_capacity(20_000);
            let id = client.send(&Message::get(streamed(size, chunk).target()));
            while client.replies[&id].end == End::Open {
                server.settle().await;
                assert_bounded(&format!("chunks of {chunk} bytes"));
                client.receive(8_000);
            }
            assert_eq!(client.replies[&id].body.len(), size);
            drop(client);
            server.settle().await;
        }
        assert_eq!((thread::held(), running()), (0, 0));
    });
}

#[test]
fn a_client_that_takes_nothing_costs_no_more_than_its_queues() {
    run("", FILES, async |server| {
        for chunk in [1, 700, 60_000] {
            let target = streamed(1 << 22, chunk).target();
            let mut first = Http1::new(server.connect());
            first.end.set_capacity(1);
            first.send(&Message::get(&*target));
            server.advance(Duration::from_secs(1)).await;
            assert_bounded("HTTP/1");
            first.end.reset();
            server.settle().await;
            let mut second = Http2::new(server.connect(), 10);
            second.send(&Message::get(&*target));
            server.advance(Duration::from_secs(1)).await;
            assert_bounded("HTTP/2, with a closed window");
            second.end.reset();
            server.settle().await;
            assert_eq!(thread::held(), 0, "chunks of {chunk} bytes");
        }
    });
}

#[test]
fn the_bodies_of_one_connection_share_its_room() {
    let plan = streamed(200_000, 10_000);
    // The queue of such a handler has room for two chunks.
    const QUEUE: i64 = 20_500;
    run("", FILES, async |server| {
        let mut client = Http2::new(server.connect(), 0);
        client.opens_windows = false;
        let streams: Vec<u32> =
            (0..100).map(|_| client.send(&Message::get(plan.target()))).collect();
        server.settle().await;
        client.receive(usize::MAX);
        let held = thread::held();
        assert!(held <= 100 * QUEUE + BOUND, "{held} bytes are held for 100 streams");
        // Each goes on once its window is open.
        for &stream in streams.iter().rev() {
            client.opens_windows = true;
            client.open_window(0, 1 << 21);
            client.open_window(stream, 1 << 21);
            while client.replies[&stream].end == End::Open {
                server.settle().await;
                client.receive(usize::MAX);
            }
            assert_eq!(client.replies[&stream].body.len(), 200_000);
        }
        drop(client);
        server.settle().await;
        assert_eq!((thread::held(), running()), (0, 0));
    });
}

#[test]
fn a_throttled_response_waits_in_its_source() {
    for (rate, bytes_per_second) in
        [("1KB/s", 1_000), ("100KB/s", 100_000), ("1MB/s", 1_000_000), ("100MB/s", 100_000_000)]
    {
        for key in ["bandwidth", "per_connection"] {
            let route =
                format!("[[site.route]]\npath = '/test'\nthrottle = {{ {key} = '{rate}' }}");
            run(&route, FILES, async |server| {
                let size = 3_000_000;
                let mut first = Http1::new(server.connect());
                first.send(&Message::get(streamed(size, 16_000).target()));
                let mut taken = 0;
                for _ in 0..200 {
                    server.advance(Duration::from_millis(10)).await;
                    loop {
                        assert_bounded(&format!("{key} of {rate}"));
                        let bytes = first.end.take(usize::MAX).len();
                        taken += bytes;
                        if bytes == 0 {
                            break;
                        }
                        server.settle().await;
                    }
                }
                let expected = size.min(2 * bytes_per_second);
                assert!(taken * 10 > expected * 8, "{key} of {rate}: {taken} bytes");
                assert!(taken < expected * 12 / 10 + 10_000, "{key} of {rate}: {taken} bytes");
                first.end.reset();
                server.settle().await;
                assert_eq!(thread::held(), 0);
            });
        }
    }
}

#[test]
fn new_requests_are_rejected_while_the_memory_is_exhausted_unless_the_cache_has_their_file() {
    run_with("server_field = false", "", FILES, async |server| {
        let mut warm = Http1::new(server.connect());
        warm.send(&Message::get("/a.txt"));
        server.settle().await;
        let mut slow = Http1::new(server.connect());
        slow.end.set_capacity(1);
        slow.send(&Message::get(streamed(1 << 20, 10_000).target()));
        server.settle().await;
        thread::set_limit(Some(10_000));
        let mut client = Http1::new(server.connect());
        let get = async |client: &mut Http1, target: &str| {
            client.send(&Message::get(target));
            server.settle().await;
            client.receive(usize::MAX);
            client.replies.last().cloned().expect("a response")
        };
        let rejected = get(&mut client, &streamed(10, 1).target()).await;
        assert_eq!((rejected.status, rejected.field("retry-after")), (503, Some("1")));
        assert_eq!(get(&mut client, "/a.txt").await.status, 200);
        assert_eq!(get(&mut client, "/missing.txt").await.status, 503);
        slow.end.reset();
        server.settle().await;
        assert_eq!(get(&mut client, &streamed(10, 1).target()).await.status, 200);
        thread::set_limit(None);
        assert_eq!(server.records().last().map(|record| record.status), Some(200));
    });
}
