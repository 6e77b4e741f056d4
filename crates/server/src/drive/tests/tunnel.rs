//! Tunnels by extended CONNECT (RFC 8441).

use std::time::Duration;

use dunlin_http::http2::Http2ErrorCode;

use crate::testing::handler::{Kind, Plan, running};
use crate::testing::{End, Http2, Message, TestServer, run, run_with};

const FILES: &[(&str, &[u8])] = &[("a.txt", b"a")];
const WINDOW: u32 = 65_535;

#[track_caller]
fn nothing_is_left(server: &TestServer) {
    assert_eq!((server.open(), running()), ((0, 0), 0), "connections and handlers that are left");
}

fn connect(target: impl Into<String>) -> Message {
    Message::new("CONNECT", target).with(":protocol", "echo")
}

fn tunnel() -> Plan {
    Plan { id: 1, kind: Kind::Tunnel, ..Plan::default() }
}

#[test]
fn bytes_flow_in_both_directions_until_the_client_ends_its_side() {
    run("", FILES, async |server| {
        let mut client = Http2::new(server.connect(), WINDOW);
        let id = client.open(&connect(tunnel().target()));
        // It may send before it has the response.
        client.data(id, b"early", false);
        server.settle().await;
        client.receive(usize::MAX);
        let reply = &client.replies[&id];
        assert_eq!((reply.status, &reply.body[..], reply.end), (200, &b"early"[..], End::Open));
        assert_eq!(reply.field("upgrade"), None);
        for byte in b"and more" {
            client.data(id, &[*byte], false);
            server.settle().await;
        }
        client.data(id, b"", true);
        server.settle().await;
        client.receive(usize::MAX);
        let reply = &client.replies[&id];
        assert_eq!((&reply.body[..], reply.end), (&b"earlyand more"[..], End::Complete));
        let records = server.records();
        assert_eq!((records.len(), records[0].status, records[0].bytes), (1, 200, 13));
        drop(client);
        server.settle().await;
        nothing_is_left(server);
    });
}

#[test]
fn a_tunnel_has_no_limits_of_a_body() {
    let limits = "http1 = { idle_timeout = '8s', body_timeout = '5s', body_rate = '10B/s' }";
    let route = "[[site.route]]\npath = '/*'\nbody_size = '10B'";
    run_with(limits, route, FILES, async |server| {
        let mut client = Http2::new(server.connect(), WINDOW);
        let id = client.open(&connect(Plan { delay: 20_000, ..tunnel() }.target()));
        server.settle().await;
        server.advance(Duration::from_secs(21)).await;
        for _ in 0..5 {
            client.data(id, b"twelve bytes", false);
            server.advance(Duration::from_secs(30)).await;
        }
        client.receive(usize::MAX);
        let reply = &client.replies[&id];
        assert_eq!((reply.status, reply.body.len(), reply.end), (200, 60, End::Open));
        drop(client);
        server.settle().await;
        nothing_is_left(server);
    });
}

#[test]
fn a_client_that_does_not_receive_holds_the_handler_up() {
    run("", FILES, async |server| {
        let mut client = Http2::new(server.connect(), 0);
        client.opens_windows = false;
        let id = client.open(&connect(tunnel().target()));
        server.settle().await;
        client.receive(usize::MAX);
        client.data(id, &[b'x'; 16_000], false);
        for _ in 0..5 {
            client.data(id, &[b'x'; 9_000], false);
            server.settle().await;
        }
        client.receive(usize::MAX);
        assert_eq!(client.replies[&id].body, b"");
        client.open_window(id, 61_000);
        server.settle().await;
        client.receive(usize::MAX);
        assert_eq!(client.replies[&id].body.len(), 61_000);
        drop(client);
        server.settle().await;
        nothing_is_left(server);
    });
}

#[test]
fn what_has_no_tunnels_responds_501() {
    let streaming = Plan { id: 1, kind: Kind::Streaming, size: 10, chunk: 5, ..Plan::default() };
    let late = Plan { kind: Kind::Future, delay: 10, ..streaming.clone() };
    let ready = Plan { kind: Kind::Ready, ..streaming.clone() };
    run("", FILES, async |server| {
        let targets = ["/a.txt".to_owned(), "/missing".to_owned()];
        let plans = [streaming, late, ready].map(|plan| plan.target());
        for target in targets.into_iter().chain(plans) {
            let mut client = Http2::new(server.connect(), WINDOW);
            let id = client.open(&connect(&target));
            server.settle().await;
            server.advance(Duration::from_millis(20)).await;
            if !target.starts_with("/a") {
                client.data(id, b"", true);
                server.settle().await;
            }
            client.receive(usize::MAX);
            let reply = &client.replies[&id];
            assert_eq!((reply.status, reply.end), (501, End::Complete), "{target}");
        }
        server.settle().await;
        nothing_is_left(server);
    });
}

#[test]
fn a_tunnel_that_breaks_is_cancelled_for_the_client() {
    run("", FILES, async |server| {
        let mut client = Http2::new(server.connect(), WINDOW);
        let id = client.open(&connect(Plan { fail: Some(5), ..tunnel() }.target()));
        for _ in 0..2 {
            client.data(id, b"four", false);
            server.settle().await;
        }
        client.receive(usize::MAX);
        let reply = &client.replies[&id];
        assert_eq!((reply.status, &reply.body[..], reply.end), (200, &b"four"[..], End::Aborted));
        assert_eq!(client.resets.get(&id), Some(&(Http2ErrorCode::Cancel as u32)));
        // A client that cancels ends the handler.
        let id = client.open(&connect(tunnel().target()));
        server.settle().await;
        assert_eq!(running(), 1);
        client.cancel(id);
        server.settle().await;
        assert_eq!(running(), 0);
        drop(client);
        server.settle().await;
        nothing_is_left(server);
    });
}
