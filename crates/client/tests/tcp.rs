//! The client against servers at sockets, which respond with given bytes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use dunlin_client::{
    Body, Client, Empty, Error, ErrorKind, Full, Origin, Phase, PoolLimits, Request, Timeouts,
};
use dunlin_http::BodySize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The behaviour of a server on a connection.
type Serve = fn(&mut Peer) -> io::Result<()>;

/// A server's end of a connection.
struct Peer {
    stream: TcpStream,
    requests: Sender<(usize, String)>,
    connection: usize,
}

impl Peer {
    /// Reads a head, and reports it; an error at the end of the connection.
    fn head(&mut self) -> io::Result<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let text = String::from_utf8_lossy(&head).into_owned();
        drop(self.requests.send((self.connection, text)));
        Ok(())
    }

    fn send(&mut self, text: &str) -> io::Result<()> {
        self.stream.write_all(text.as_bytes())
    }

    /// Serves one request.
    fn serve(&mut self, response: &str) -> io::Result<()> {
        self.head()?;
        self.send(response)
    }
}

/// Starts a server, each connection of which `serve` handles on a thread. Gives the heads that arrive, with the number of
/// their connection.
fn server(serve: Serve) -> (Origin, Receiver<(usize, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (requests, seen) = channel();
    std::thread::spawn(move || {
        for (connection, stream) in listener.incoming().enumerate() {
            let mut peer = Peer { stream: stream.unwrap(), requests: requests.clone(), connection };
            std::thread::spawn(move || drop(serve(&mut peer)));
        }
    });
    (Origin::tcp("127.0.0.1", port), seen)
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

async fn get(client: &Client, origin: &Origin, path: &str) -> Result<(u16, Bytes), Error> {
    let mut exchange = client.send(Request::new(origin, "GET", path), Empty).await?;
    let head = exchange.final_head().await?;
    Ok((head.status, exchange.collect(1 << 20).await?))
}

fn with_timeouts(origin: &Origin, timeouts: Timeouts) -> Request {
    Request { timeouts, ..Request::new(origin, "GET", "/") }
}

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn requests_in_turn_use_one_connection() {
    let (origin, seen) = server(|peer| {
        loop {
            peer.serve(OK)?;
        }
    });
    run(async {
        let client = Client::default();
        for _ in 0..3 {
            assert_eq!(get(&client, &origin, "/a?b").await.unwrap(), (200, "ok".into()));
        }
    });
    for _ in 0..3 {
        let (connection, head) = seen.recv().unwrap();
        let start = format!("GET /a?b HTTP/1.1\r\nHost: {}\r\n\r\n", origin.authority());
        assert_eq!((connection, head), (0, start));
    }
}

#[test]
fn a_connection_whose_framing_forbids_it_is_not_reused() {
    let responses: [Serve; 3] = [
        |peer| peer.serve("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"),
        |peer| peer.serve("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        |peer| peer.serve("HTTP/1.1 200 OK\r\n\r\nok"),
    ];
    for serve in responses {
        let (origin, seen) = server(serve);
        run(async {
            let client = Client::default();
            for _ in 0..2 {
                assert_eq!(get(&client, &origin, "/").await.unwrap().1, "ok");
            }
        });
        assert_eq!((seen.recv().unwrap().0, seen.recv().unwrap().0), (0, 1));
    }
}

#[test]
fn an_exchange_that_is_dropped_closes_its_connection() {
    let (origin, seen) = server(|peer| {
        loop {
            peer.serve(OK)?;
        }
    });
    run(async {
        let client = Client::default();
        drop(client.send(Request::new(&origin, "GET", "/"), Empty).await.unwrap());
        get(&client, &origin, "/").await.unwrap();
    });
    assert_eq!((seen.recv().unwrap().0, seen.recv().unwrap().0), (0, 1));
}

#[test]
fn an_idle_connection_that_has_ended_is_replaced() {
    // The server closes each connection after one response without announcing it.
    let (origin, seen) = server(|peer| peer.serve(OK));
    run(async {
        let client = Client::default();
        for _ in 0..20 {
            assert_eq!(get(&client, &origin, "/").await.unwrap().1, "ok");
        }
    });
    assert_eq!(seen.try_iter().count(), 20);
}

#[test]
fn a_request_that_an_idle_connection_did_not_deliver_is_repeated_if_it_may_be() {
    // The first connection ends with its second request, unread.
    let serve: Serve = |peer| {
        peer.serve(OK)?;
        if peer.connection == 0 {
            return peer.head();
        }
        peer.serve(OK)
    };
    let (origin, _seen) = server(serve);
    let again = |origin: Origin, method: &'static str| async move {
        let client = Client::default();
        get(&client, &origin, "/").await?;
        let request = Request::new(&origin, method, "/");
        client.send(request, Full::new("body")).await?.final_head().await
    };
    assert_eq!(run(again(origin, "PUT")).unwrap().status, 200);
    let (origin, _seen) = server(serve);
    let error = run(again(origin.clone(), "POST")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection);
    assert!(error.to_string().starts_with(&format!("{origin}: ")), "{error}");
}

#[test]
fn requests_wait_when_an_origin_has_all_its_connections() {
    let (origin, seen) = server(|peer| {
        loop {
            peer.serve(OK)?;
        }
    });
    run(async {
        let client = Client::new(PoolLimits { connections: 1, ..PoolLimits::default() });
        let mut first = client.send(Request::new(&origin, "GET", "/"), Empty).await.unwrap();
        let wait = Some(Duration::from_millis(20));
        let request = with_timeouts(&origin, Timeouts { wait, ..Timeouts::default() });
        let error = client.send(request, Empty).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout(Phase::Wait));
        let (second, rest) =
            tokio::join!(get(&client, &origin, "/"), async { first.collect(10).await });
        assert_eq!((second.unwrap().1, rest.unwrap()), ("ok".into(), "ok".into()));
    });
    assert!(seen.try_iter().all(|(connection, _)| connection == 0));
}

#[test]
fn idle_connections_are_closed_when_their_time_is_over() {
    let (origin, seen) = server(|peer| {
        loop {
            let result = peer.serve(OK);
            if result.is_err() {
                drop(peer.requests.send((peer.connection, "closed".into())));
                return result;
            }
        }
    });
    run(async {
        let idle_time = Duration::from_millis(20);
        let client = Client::new(PoolLimits { idle_time, ..PoolLimits::default() });
        get(&client, &origin, "/").await.unwrap();
        seen.recv().unwrap();
        // The client closes it without another request.
        let end = tokio::task::spawn_blocking(move || seen.recv().unwrap().1);
        assert_eq!(end.await.unwrap(), "closed");
        drop(client);
    });
}

#[test]
fn each_phase_has_its_limit_of_time() {
    let short = Some(Duration::from_millis(30));
    let fail = |serve: Serve, timeouts: Timeouts| {
        let (origin, _seen) = server(serve);
        run(async {
            let mut exchange =
                Client::default().send(with_timeouts(&origin, timeouts), Empty).await?;
            exchange.collect(100).await
        })
        .unwrap_err()
        .kind()
    };
    let silent: Serve = |peer| {
        peer.head()?;
        peer.head()
    };
    let stuck: Serve = |peer| {
        peer.serve("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok")?;
        peer.head()
    };
    // Bytes keep coming, so that no phase takes too long.
    let endless: Serve = |peer| {
        peer.serve("HTTP/1.1 200 OK\r\n\r\n")?;
        loop {
            peer.send("x")?;
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let first_byte = Timeouts { first_byte: short, ..Timeouts::default() };
    assert_eq!(fail(silent, first_byte), ErrorKind::Timeout(Phase::FirstByte));
    let between_bytes = Timeouts { between_bytes: short, ..Timeouts::default() };
    assert_eq!(fail(stuck, between_bytes), ErrorKind::Timeout(Phase::BetweenBytes));
    let total = Timeouts { total: Some(Duration::from_millis(60)), ..Timeouts::default() };
    assert!(matches!(fail(endless, total), ErrorKind::Timeout(Phase::Total) | ErrorKind::TooLarge));
    assert_eq!(fail(silent, total), ErrorKind::Timeout(Phase::Total));
}

/// A body that never has its second chunk.
struct Endless(bool);

impl Body for Endless {
    fn size(&self) -> BodySize {
        BodySize::Unknown
    }

    fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Pending;
        }
        Poll::Ready(Some(Ok("abc".into())))
    }
}

#[test]
fn request_and_response_stream_at_the_same_time() {
    let (origin, _seen) = server(|peer| {
        peer.head()?;
        let mut chunk = [0; 8];
        peer.stream.read_exact(&mut chunk)?;
        assert_eq!(&chunk, b"3\r\nabc\r\n");
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")?;
        peer.head()
    });
    run(async {
        let request = Request::new(&origin, "POST", "/");
        let mut exchange = Client::default().send(request, Endless(false)).await.unwrap();
        assert_eq!(exchange.final_head().await.unwrap().status, 200);
        assert_eq!(exchange.data().await.unwrap().unwrap(), "abc");
    });
}

#[test]
fn a_response_before_the_end_of_a_large_request_is_received() {
    struct Large;
    impl Body for Large {
        fn size(&self) -> BodySize {
            BodySize::Known(1 << 30)
        }
        fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
            Poll::Ready(Some(Ok(vec![0; 1 << 16].into())))
        }
    }
    let (origin, _seen) = server(|peer| {
        peer.serve("HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n")?;
        std::thread::sleep(Duration::from_millis(100));
        peer.stream.shutdown(Shutdown::Both)
    });
    run(async {
        let request = Request::new(&origin, "POST", "/");
        let mut exchange = Client::default().send(request, Large).await.unwrap();
        assert_eq!(exchange.final_head().await.unwrap().status, 413);
        assert_eq!(exchange.collect(10).await.unwrap(), "");
    });
}

#[test]
fn a_switch_of_protocols_returns_the_byte_stream() {
    let (origin, _seen) = server(|peer| {
        peer.serve(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\nhi",
        )?;
        let mut bytes = [0; 4];
        peer.stream.read_exact(&mut bytes)?;
        peer.stream.write_all(&bytes)
    });
    run(async {
        let mut request = Request::new(&origin, "GET", "/");
        request.head.fields.push("Connection", "Upgrade");
        request.head.fields.push("Upgrade", "echo");
        let mut exchange = Client::default().send(request, Empty).await.unwrap();
        assert_eq!(exchange.final_head().await.unwrap().status, 101);
        let mut stream = exchange.upgrade().unwrap();
        stream.write_all(b"ping").await.unwrap();
        let mut all = String::new();
        stream.read_to_string(&mut all).await.unwrap();
        assert_eq!(all, "hiping");
    });
}

#[test]
fn servers_at_unix_sockets_are_reached() {
    let path = std::env::temp_dir().join(format!("dunlin-client-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 35];
        stream.read_exact(&mut head).unwrap();
        stream.write_all(OK.as_bytes()).unwrap();
        String::from_utf8_lossy(&head).into_owned()
    });
    let origin = Origin::unix(&path);
    assert_eq!(run(get(&Client::default(), &origin, "/")).unwrap().1, "ok");
    assert_eq!(server.join().unwrap(), "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    std::fs::remove_file(&path).unwrap();
    let error = run(get(&Client::default(), &origin, "/")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect);
    assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
}

#[test]
fn errors_name_the_server_and_what_failed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = Origin::tcp("127.0.0.1", listener.local_addr().unwrap().port());
    drop(listener);
    let error = run(get(&Client::default(), &origin, "/")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connect);
    assert!(error.to_string().starts_with(&format!("{origin}: connecting failed: ")), "{error}");

    let (origin, _seen) = server(|peer| peer.serve("SSH-2.0-x\r\n"));
    let error = run(get(&Client::default(), &origin, "/")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert_eq!(error.to_string(), format!("{origin}: the response is not HTTP/1"));

    let (origin, _seen) =
        server(|peer| peer.serve("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"));
    let error = run(get(&Client::default(), &origin, "/")).unwrap_err();
    assert_eq!(error.reason(), "the server closed the connection within a body");

    let error = run(get(&Client::default(), &origin, "/a b")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);

    let (origin, _seen) = server(|peer| peer.serve(OK));
    let error = run(async {
        let mut exchange = Client::default().send(Request::new(&origin, "GET", "/"), Empty).await?;
        exchange.collect(1).await
    });
    assert_eq!(error.unwrap_err().kind(), ErrorKind::TooLarge);
}
