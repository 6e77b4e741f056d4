//! Exchanges over byte streams in memory that hold a few bytes, against the server of another implementation.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use dunlin_http::{BodySize, RequestHead};
use tokio::io::duplex;

use super::Http2;
use crate::body::{Body, Full};
use crate::event::{Event, Failure};

/// Makes one exchange to its end: the status and the body.
async fn exchange(http2: &Http2, path: &str, body: Full) -> Result<(u16, Vec<u8>), Failure> {
    let head = RequestHead::new("POST", "a", path);
    let stream = http2.open(&head, body.size()).await?;
    let mut stream = stream.expect("the connection is usable");
    let mut sending = stream.begin(body);
    let (mut status, mut received) = (0, Vec::new());
    loop {
        let event = poll_fn(|context| {
            if let Poll::Ready(Err(failure)) = stream.poll_send(context, &mut sending) {
                return Poll::Ready(Err(failure));
            }
            stream.poll_event(context)
        });
        match event.await? {
            Event::Interim(_) => {}
            Event::Head(head) => status = head.status,
            Event::Data(data) => received.extend_from_slice(&data),
            Event::End(_) => return Ok((status, received)),
        }
    }
}

#[test]
fn exchanges_survive_short_reads_and_writes() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for size in [1, 2, 7, 9, 100, 20_000] {
            let (client, server) = duplex(size);
            let http2 = Http2::start(client, false, Duration::from_secs(60));
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(server).await.unwrap();
                while let Some(Ok((request, mut response))) = connection.accept().await {
                    tokio::spawn(async move {
                        let (mut body, mut all) = (request.into_body(), Vec::new());
                        while let Some(data) = body.data().await {
                            all.extend_from_slice(&data.unwrap());
                        }
                        let head = http::Response::builder().status(202).body(()).unwrap();
                        let mut out = response.send_response(head, false).unwrap();
                        out.send_data(Bytes::from(all), true).unwrap();
                    });
                }
            });
            let long = vec![b'x'; 20_000];
            let (first, second) = tokio::join!(
                exchange(&http2, "/a", Full::new("abc")),
                exchange(&http2, "/b", Full::new(long.clone())),
            );
            assert_eq!(first.unwrap(), (202, b"abc".to_vec()), "size {size}");
            assert_eq!(second.unwrap(), (202, long), "size {size}");
            assert!(http2.is_usable());
        }
    });
}

#[test]
fn the_end_of_the_byte_stream_ends_all_exchanges() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, server) = duplex(1000);
        let http2 = Http2::start(client, false, Duration::from_secs(60));
        tokio::spawn(async move {
            let mut connection = h2::server::handshake(server).await.unwrap();
            drop(connection.accept().await);
        });
        let failure = exchange(&http2, "/", Full::new("abc")).await.unwrap_err();
        assert!(failure.is_without_response, "{failure:?}");
        assert!(!http2.is_usable());
    });
}

#[test]
fn who_no_longer_waits_for_a_stream_leaves_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, server) = duplex(1000);
        let http2 = Http2::start(client, false, Duration::from_secs(60));
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        tokio::spawn(async move {
            let mut builder = h2::server::Builder::new();
            let handshake = builder.max_concurrent_streams(1).handshake::<_, Bytes>(server);
            let mut connection = handshake.await.unwrap();
            let (_, mut first) = connection.accept().await.unwrap().unwrap();
            ended.await.unwrap();
            let head = http::Response::builder().status(204).body(()).unwrap();
            first.send_response(head, true).unwrap();
            while connection.accept().await.is_some() {}
        });
        let head = RequestHead::new("GET", "a", "/");
        let open = async || http2.open(&head, BodySize::Empty).await.unwrap().unwrap();
        let mut first = open().await;
        let mut sending = first.begin(Full::new(""));
        // The limit is known when the server has responded to the settings: a second stream waits.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let late = async || tokio::time::timeout(Duration::from_millis(20), open()).await;
        for _ in 0..3 {
            assert!(late().await.is_err());
            assert!(http2.shared.state().waiting.is_empty());
        }
        let (second, response) = tokio::join!(open(), async {
            end.send(()).unwrap();
            poll_fn(|context| {
                let _ = first.poll_send(context, &mut sending);
                first.poll_event(context)
            })
            .await
        });
        assert!(matches!(response.unwrap(), Event::Head(head) if head.status == 204));
        drop((first, second));
        assert!(http2.shared.state().waiting.is_empty());
    });
}
