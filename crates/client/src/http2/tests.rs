//! Exchanges over byte streams in memory that hold a few bytes, against the server of another implementation.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use dunlin_http::http2::frame::{self, FrameHeader, flag, kind};
use dunlin_http::{BodySize, ChunkQueue, RequestHead};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use super::{Http2, State};
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
fn a_connection_without_idle_time_ends_with_its_last_stream() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, server) = duplex(1000);
        let http2 = Http2::start(client, false, Duration::ZERO);
        let ended = tokio::spawn(async move {
            let mut connection = h2::server::handshake(server).await.unwrap();
            while let Some(Ok((_, mut response))) = connection.accept().await {
                let head = http::Response::builder().status(204).body(()).unwrap();
                response.send_response(head, true).unwrap();
            }
        });
        // It waits for its first stream.
        tokio::task::yield_now().await;
        assert!(http2.is_usable());
        assert_eq!(exchange(&http2, "/", Full::new("")).await.unwrap().0, 204);
        ended.await.unwrap();
        assert!(!http2.is_usable());
    });
}

/// Has a server respond at once to the first request, and to the second one that much later; `None` for a server that is gone by
/// then. Returns the result of the second exchange, which begins a minute after the first one, and the time that it took.
fn exchange_after_a_minute(late: Option<Duration>) -> (Result<u16, Failure>, Duration) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (client, server) = duplex(1000);
        let http2 = Http2::start(client, false, Duration::from_secs(600));
        tokio::spawn(async move {
            let mut connection = h2::server::handshake(server).await.unwrap();
            let respond = |mut response: h2::server::SendResponse<Bytes>| {
                let head = http::Response::builder().status(204).body(()).unwrap();
                response.send_response(head, true).unwrap();
            };
            respond(connection.accept().await.unwrap().unwrap().1);
            match late {
                Some(late) => {
                    let (_, second) = connection.accept().await.unwrap().unwrap();
                    tokio::spawn(async move {
                        tokio::time::sleep(late).await;
                        respond(second);
                    });
                    while connection.accept().await.is_some() {}
                }
                None => {
                    let first_is_over = Duration::from_secs(30);
                    let _ = tokio::time::timeout(first_is_over, connection.accept()).await;
                    std::future::pending::<()>().await;
                }
            }
        });
        assert_eq!(exchange(&http2, "/", Full::new("")).await.unwrap().0, 204);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let began = tokio::time::Instant::now();
        let result = exchange(&http2, "/", Full::new("")).await.map(|(status, _)| status);
        assert_eq!(http2.is_usable(), result.is_ok());
        (result, began.elapsed())
    })
}

#[test]
fn a_request_to_a_server_that_is_gone_fails_soon() {
    let (result, time) = exchange_after_a_minute(None);
    let failure = result.unwrap_err();
    assert!(failure.is_without_response && failure.reason.contains("PING"), "{failure:?}");
    assert!(time <= Duration::from_secs(20), "{time:?}");
}

#[test]
fn a_server_that_is_there_may_take_its_time() {
    let late = Duration::from_secs(300);
    let (result, time) = exchange_after_a_minute(Some(late));
    assert_eq!(result.unwrap(), 204);
    assert!(time >= late, "{time:?}");
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

/// Returns the bytes that a connection holds of what its server has sent, and of what it is to send.
fn held(state: &State) -> usize {
    let of_streams = state.streams.values().map(|stream| {
        let heads = stream.heads.iter().map(|event| match event {
            Event::Interim(head) | Event::Head(head) => head.fields.as_bytes().len(),
            _ => 0,
        });
        let end = stream.end.as_ref().map_or(0, |trailers| trailers.as_bytes().len());
        heads.sum::<usize>() + stream.data.held() + end
    });
    of_streams.sum::<usize>() + state.engine.held() + state.out.capacity()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    FrameHeader { length: payload.len(), kind, flags, stream }.write(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// `:status: 200`.
const OK: &[u8] = &[0x88];

/// Sends `input` to a connection whose two exchanges take nothing, and reads what it sends only if `reads`. Returns the most
/// that it held, and whether it is usable at the end.
fn hostile(input: &[Vec<u8>], reads: bool) -> (usize, bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, server) = duplex(4096);
        let http2 = Http2::start(client, false, Duration::from_secs(60));
        let (mut from_client, mut to_client) = tokio::io::split(server);
        let mut settings = Vec::new();
        frame::write_settings(&[], &mut settings);
        let head = RequestHead::new("GET", "a", "/");
        let first = http2.open(&head, BodySize::Empty).await.unwrap().unwrap();
        to_client.write_all(&settings).await.unwrap();
        http2.settled().await;
        let second = http2.open(&head, BodySize::Empty).await.unwrap().unwrap();
        if reads {
            tokio::spawn(async move {
                while from_client.read(&mut [0; 4096]).await.is_ok_and(|count| count > 0) {}
            });
        }
        let mut most = 0;
        for frames in input {
            for part in frames.chunks(4096) {
                let sent = tokio::time::timeout(Duration::from_secs(5), to_client.write_all(part));
                if !matches!(sent.await, Ok(Ok(()))) {
                    break;
                }
                tokio::task::yield_now().await;
                most = most.max(held(&http2.shared.state()));
            }
        }
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        let is_usable = http2.is_usable();
        drop((first, second));
        (most.max(held(&http2.shared.state())), is_usable)
    })
}

#[test]
fn small_frames_take_the_memory_of_their_window() {
    let window = 256 * 1024;
    let head = frame(kind::HEADERS, flag::END_HEADERS, 1, OK);
    let data = frame(kind::DATA, 0, 1, b"x").repeat(window);
    let (most, is_usable) = hostile(&[head, data], true);
    assert!(is_usable);
    assert!(most >= window && most as u64 <= ChunkQueue::most_held(window as u64) + 4096, "{most}");
}

#[test]
fn a_flood_ends_the_connection_whether_the_server_reads_or_not() {
    let link = [&[0x08, 3][..], b"103", &[0, 1, b'a', 1, b'b']].concat();
    let interim = frame(kind::HEADERS, flag::END_HEADERS, 1, &link);
    for reads in [true, false] {
        for (flood, ends) in [
            (frame(kind::PING, 0, 0, &[0; 8]), true),
            (frame(kind::SETTINGS, 0, 0, &[]), true),
            (frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]), true),
            // The stream ends; what follows it has no effect, again and again.
            (interim.clone(), true),
        ] {
            let (most, is_usable) = hostile(&[flood.repeat(20_000)], reads);
            assert_eq!(is_usable, !ends, "{flood:?}");
            assert!(most < 64 * 1024, "{most}: {flood:?}");
        }
    }
}

/// Frames of a hostile server for the streams 1 and 3.
fn hostile_frames() -> impl Strategy<Value = Vec<u8>> {
    let block = (0_u8..62).prop_map(|index| vec![0x80 | index, 0, 1, b'a', 1, b'b']);
    let payload = prop_oneof![
        2 => proptest::collection::vec(any::<u8>(), 0..20),
        2 => (1_usize..16_384).prop_map(|length| vec![b'x'; length]),
        2 => block,
        1 => Just(OK.to_vec()),
    ];
    let flags = prop_oneof![Just(0), Just(flag::END_HEADERS), any::<u8>()];
    (0_u8..10, flags, prop_oneof![Just(1_u32), Just(3), Just(0)], payload, 1_usize..300).prop_map(
        |(kind, flags, stream, payload, repeats)| {
            frame(kind, flags, stream, &payload)
                .repeat(repeats.min(1 + 100_000 / payload.len().max(9)))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Exchanges that take nothing make a connection hold no more than its windows and two heads for each.
    #[test]
    fn what_a_connection_holds_is_bounded(
        frames in proptest::collection::vec(hostile_frames(), 0..20),
        reads: bool,
    ) {
        let start = [1, 3].map(|stream| frame(kind::HEADERS, flag::END_HEADERS, stream, OK)).concat();
        let frames: Vec<_> = [start].into_iter().chain(frames).collect();
        let (most, _) = hostile(&frames, reads);
        let bound = 2 * ChunkQueue::most_held(256 * 1024) + 4 * 64 * 1024 + 512 * 1024;
        prop_assert!(most as u64 <= bound, "{most}");
    }
}
