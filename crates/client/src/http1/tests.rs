//! Exchanges over a byte stream in memory that reads and writes short.

use std::future::poll_fn;

use bytes::Bytes;
use dunlin_http::FieldLines;

use super::*;
use crate::body::{Empty, Full};
use crate::test_stream::{Step, TestStream};

/// Result of an exchange.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    interim: Vec<u16>,
    status: u16,
    body: Vec<u8>,
    trailers: Vec<u8>,
}

/// A body of chunks, each of which comes with the second poll.
struct Chunks {
    size: BodySize,
    chunks: Vec<&'static str>,
    trailers: FieldLines,
    is_ready: bool,
}

impl Chunks {
    fn new(size: BodySize, chunks: &[&'static str]) -> Self {
        let chunks = chunks.iter().copied().rev().collect();
        Self { size, chunks, trailers: FieldLines::new(), is_ready: false }
    }
}

impl Body for Chunks {
    fn size(&self) -> BodySize {
        self.size
    }

    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        self.is_ready = !self.is_ready;
        if self.is_ready {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(self.chunks.pop().map(|chunk| match chunk {
            "" => Err(io::Error::other("no more")),
            chunk => Ok(Bytes::from_static(chunk.as_bytes())),
        }))
    }

    fn trailers(&mut self) -> FieldLines {
        std::mem::take(&mut self.trailers)
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

/// Makes one exchange to its end.
async fn exchange(
    http1: &mut Http1<TestStream>,
    head: &RequestHead,
    body: impl Body,
) -> Result<Seen, Failure> {
    let mut sending = http1.begin(head, body)?;
    let mut seen = Seen::default();
    loop {
        let event = poll_fn(|context| {
            if let Poll::Ready(Err(failure)) = http1.poll_send(context, &mut sending) {
                return Poll::Ready(Err(failure));
            }
            http1.poll_event(context)
        });
        match event.await? {
            Event::Interim(head) => {
                seen.interim.push(head.status);
                sending.state = SendState::Streaming;
            }
            Event::Head(head) => seen.status = head.status,
            Event::Data(data) => seen.body.extend_from_slice(&data),
            Event::End(trailers) => {
                seen.trailers = trailers.as_bytes().to_vec();
                return Ok(seen);
            }
        }
    }
}

/// Returns every combination of sizes of reads and writes, with and without blocking.
fn ways() -> impl Iterator<Item = (usize, bool)> {
    [1, 2, 3, 7, 1000].into_iter().flat_map(|size| [(size, false), (size, true)])
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn get() -> RequestHead {
    RequestHead::new("GET", "a", "/")
}

#[test]
fn an_exchange_survives_short_reads_and_writes() {
    let response = "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        5\r\nhello\r\n0\r\nT: 1\r\n\r\n";
    let request = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nU: 2\r\n\r\n";
    for (size, blocks) in ways() {
        let script = [Step::Await(request.len()), Step::Send(response.into())];
        let mut http1 = Http1::new(TestStream::new(size, blocks, script));
        let mut body = Chunks::new(BodySize::Unknown, &["abc", "de"]);
        body.trailers.push("U", "2");
        let head = RequestHead::new("POST", "a", "/");
        let seen = block_on(exchange(&mut http1, &head, body)).unwrap();
        let trailers = b"T: 1\r\n".to_vec();
        let wanted = Seen { interim: vec![103], status: 200, body: b"hello".to_vec(), trailers };
        assert_eq!(seen, wanted, "size {size}, blocks {blocks}");
        assert_eq!(http1.stream.written, request.as_bytes());
        assert!(http1.is_reusable());
    }
}

#[test]
fn a_connection_serves_one_request_after_the_other() {
    let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec();
    for (size, blocks) in ways() {
        let script = (1..=3)
            .flat_map(|count| [Step::Await(count * GET.len()), Step::Send(response.clone())]);
        let mut http1 = Http1::new(TestStream::new(size, blocks, script));
        for _ in 0..3 {
            assert_eq!(block_on(exchange(&mut http1, &get(), Empty)).unwrap().body, b"ok");
            assert!(http1.is_reusable());
            http1.shrink();
        }
    }
}

#[test]
fn a_connection_with_bytes_behind_the_response_is_not_reused() {
    let response =
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n".to_vec();
    let mut http1 = Http1::new(TestStream::new(1000, false, [Step::Send(response)]));
    assert_eq!(block_on(exchange(&mut http1, &get(), Empty)).unwrap().body, b"ok");
    assert!(!http1.is_reusable());
}

#[test]
fn a_response_before_the_end_of_the_request_is_received() {
    // The server responds to the head, and resets the connection before it has read the body.
    let response = b"HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno".to_vec();
    for (size, blocks) in ways() {
        let script = [Step::Send(response.clone()), Step::Reset];
        let mut stream = TestStream::new(size, blocks, script);
        stream.room = 1000;
        let mut http1 = Http1::new(stream);
        let body = Full::new(vec![b'x'; 100_000]);
        let seen = block_on(exchange(&mut http1, &RequestHead::new("POST", "a", "/"), body));
        assert_eq!((seen.as_ref().unwrap().status, &*seen.unwrap().body), (413, &b"no"[..]));
        assert!(!http1.is_reusable());
    }
}

#[test]
fn a_connection_that_ends_without_a_byte_has_no_response() {
    for step in [Step::Close, Step::Reset] {
        let mut http1 = Http1::new(TestStream::new(1000, false, [Step::Await(1), step.clone()]));
        let failure = block_on(exchange(&mut http1, &get(), Empty)).unwrap_err();
        assert!(failure.is_without_response, "{failure:?}");
        let some = Step::Send(b"HTTP/1.1 2".to_vec());
        let mut http1 = Http1::new(TestStream::new(1000, false, [some, step]));
        let failure = block_on(exchange(&mut http1, &get(), Empty)).unwrap_err();
        assert!(!failure.is_without_response, "{failure:?}");
        assert_eq!(failure.kind, ErrorKind::Connection);
    }
}

#[test]
fn a_failed_body_or_a_wrong_length_ends_the_exchange() {
    let head = RequestHead::new("POST", "a", "/");
    for (size, chunks, kind) in [
        (BodySize::Unknown, &["abc", ""][..], ErrorKind::RequestBody),
        (BodySize::Known(5), &["abc"], ErrorKind::InvalidRequest),
        (BodySize::Known(2), &["abc"], ErrorKind::InvalidRequest),
    ] {
        let mut http1 = Http1::new(TestStream::new(1000, false, []));
        let result = block_on(exchange(&mut http1, &head, Chunks::new(size, chunks)));
        assert_eq!(result.unwrap_err().kind, kind);
    }
}

#[test]
fn a_body_waits_for_100_if_the_request_says_so() {
    let mut head = RequestHead::new("PUT", "a", "/");
    head.fields.push("Expect", "100-continue");
    let start = "PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
    let final_response = Step::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec());
    for (size, blocks) in ways() {
        let script = [
            Step::Await(start.len()),
            Step::Send(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec()),
            Step::Await(start.len() + 3),
            final_response.clone(),
        ];
        let mut http1 = Http1::new(TestStream::new(size, blocks, script));
        let seen = block_on(exchange(&mut http1, &head, Full::new("abc"))).unwrap();
        assert_eq!((seen.interim, seen.status), (vec![100], 200));
        // A final response instead: the body is not sent.
        let script = [Step::Await(start.len()), final_response.clone()];
        let mut http1 = Http1::new(TestStream::new(size, blocks, script));
        let seen = block_on(exchange(&mut http1, &head, Full::new("abc"))).unwrap();
        assert_eq!((seen.interim, seen.status), (vec![], 200));
        assert_eq!(http1.stream.written, start.as_bytes());
        assert!(!http1.is_reusable());
    }
}
