//! The engine of an HTTP/1 client: responses in one piece and split at every byte.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use dunlin_http::http1::client::{Http1ClientConnection, Http1ClientEvent, MalformedResponse};
use dunlin_http::{BodySize, FieldLines, RequestHead};
use proptest::prelude::*;

/// Events that a client reads from the bytes of a server.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Read {
    interim: Vec<u16>,
    status: u16,
    body: Vec<u8>,
    trailers: Vec<u8>,
    is_complete: bool,
    is_reusable: bool,
    rest: Vec<u8>,
}

/// Sends a request of that method and feeds `input` in pieces that end at `cuts`; then the server closes, if `closes`.
fn read(
    method: &str,
    input: &[u8],
    cuts: &[usize],
    closes: bool,
) -> Result<Read, MalformedResponse> {
    let mut connection = Http1ClientConnection::default();
    let mut request = RequestHead::new(method, "a", "/");
    if method == "GET" {
        request.fields.push("Upgrade", "x");
    }
    connection.send_head(&request, BodySize::Empty, &mut Vec::new()).unwrap();
    let mut read = Read::default();
    let mut pending = Vec::new();
    let mut start = 0;
    for end in cuts.iter().copied().chain([input.len()]) {
        pending.extend_from_slice(&input[start..end]);
        start = end;
        let is_end = closes && end == input.len();
        while !read.is_complete && !connection.is_tunnel() {
            let (used, event) = connection.receive(&pending, is_end)?;
            let needs_input = event == Http1ClientEvent::NeedInput;
            match event {
                Http1ClientEvent::NeedInput => {}
                Http1ClientEvent::Interim(head) => read.interim.push(head.status),
                Http1ClientEvent::Head(head) => read.status = head.status,
                Http1ClientEvent::Data(range) => read.body.extend_from_slice(&pending[range]),
                Http1ClientEvent::End(trailers) => {
                    read.is_complete = true;
                    read.trailers = trailers.as_bytes().to_vec();
                }
            }
            pending.drain(..used);
            if needs_input {
                break;
            }
        }
    }
    read.is_reusable = connection.is_reusable();
    read.rest = pending;
    Ok(read)
}

/// Reads `input` whole and in pieces of every size, which has to give the same.
fn read_always(method: &str, input: &[u8], closes: bool) -> Result<Read, MalformedResponse> {
    let whole = read(method, input, &[], closes);
    for size in 1..input.len() {
        let cuts: Vec<usize> = (1..=input.len() / size).map(|count| count * size).collect();
        let pieces = read(method, input, &cuts, closes);
        assert_eq!(pieces, whole, "in pieces of {size}: {}", input.escape_ascii());
    }
    whole
}

#[test]
fn the_framing_of_a_response_follows_its_head_and_the_request() {
    let complete = |status, body: &[u8], is_reusable| {
        let body = body.to_vec();
        Ok(Read { status, body, is_reusable, is_complete: true, ..Read::default() })
    };
    let fixed = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
    assert_eq!(read_always("POST", fixed, false), complete(200, b"abc", true));
    let empty = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(read_always("POST", empty, false), complete(200, b"", true));
    for head in [&b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"[..], b"HTTP/1.1 200 OK\r\n\r\n"] {
        assert_eq!(read_always("HEAD", head, false), complete(200, b"", true));
    }
    for status in ["204 No Content", "304 Not Modified"] {
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: 3\r\n\r\n");
        let number = status[..3].parse().unwrap();
        assert_eq!(read_always("POST", head.as_bytes(), false), complete(number, b"", true));
    }
    let until_close = b"HTTP/1.1 200 OK\r\n\r\nabc";
    assert_eq!(read_always("POST", until_close, true), complete(200, b"abc", false));
}

#[test]
fn chunks_and_trailers_are_decoded() {
    let input = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        2;x=y\r\nde\r\n1\r\nf\r\n0\r\nDigest: x\r\nB:\r\n\r\n";
    let read = read_always("POST", input, false).unwrap();
    assert_eq!((&*read.body, read.is_complete, read.is_reusable), (&b"def"[..], true, true));
    assert_eq!(read.trailers, b"Digest: x\r\nB: \r\n");
}

#[test]
fn interim_responses_come_before_the_final_one() {
    let input = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
        HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na";
    let read = read_always("POST", input, false).unwrap();
    assert_eq!((read.interim, read.status, &*read.body), (vec![100, 103], 200, &b"a"[..]));
    let endless = b"HTTP/1.1 102 Processing\r\n\r\n".repeat(200);
    assert!(self::read("POST", &endless, &[], false).is_err());
}

#[test]
fn the_connection_persists_only_if_both_sides_agree() {
    let reusable = |head: &str| read("HEAD", head.as_bytes(), &[], false).unwrap().is_reusable;
    assert!(reusable("HTTP/1.1 200 OK\r\n\r\n"));
    assert!(!reusable("HTTP/1.1 200 OK\r\nConnection: x, Close\r\n\r\n"));
    assert!(!reusable("HTTP/1.0 200 OK\r\n\r\n"));
    assert!(reusable("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n"));
    let mut connection = Http1ClientConnection::default();
    let mut request = RequestHead::new("HEAD", "a", "/");
    request.fields.push("Connection", "close");
    connection.send_head(&request, BodySize::Empty, &mut Vec::new()).unwrap();
    let input = b"HTTP/1.1 200 OK\r\n\r\n";
    let (used, _) = connection.receive(input, false).unwrap();
    assert!(matches!(connection.receive(&input[used..], false), Ok((0, Http1ClientEvent::End(_)))));
    assert!(!connection.is_reusable());
}

#[test]
fn a_switch_of_protocols_leaves_the_bytes_to_the_other_one() {
    let input = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nother";
    let read = read_always("GET", input, false).unwrap();
    assert_eq!((read.status, &*read.rest, read.is_reusable), (101, &b"other"[..], false));
    assert!(self::read("POST", input, &[], false).is_err(), "unasked");
    let tunnel = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nother";
    let read = read_always("CONNECT", tunnel, false).unwrap();
    assert_eq!((read.status, &*read.rest), (200, &b"other"[..]));
    let rejected = b"HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno";
    assert_eq!(read_always("CONNECT", rejected, false).unwrap().body, b"no");
}

#[test]
fn ambiguous_and_cut_responses_are_errors() {
    for (input, closes) in [
        (&b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"[..], false),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", false),
        (b"HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\n", false),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n\r\n", false),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", false),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", false),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            false,
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", false),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 3\r\n\r\n",
            false,
        ),
        (b"\r\nHTTP/1.1 200 OK\r\n\r\n", false),
        (b"HTTP/2 200\r\n\r\n", false),
        (b"", true),
        (b"HTTP/1.1 200 OK\r\nA: b\r\n", true),
        (b"HTTP/1.1 100 Continue\r\n\r\n", true),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", true),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", true),
    ] {
        assert!(read_always("POST", input, closes).is_err(), "{}", input.escape_ascii());
    }
    let mut large = b"HTTP/1.1 200 OK\r\nA: ".to_vec();
    large.resize(70_000, b'a');
    assert!(read("POST", &large, &[], false).is_err());
    large.extend_from_slice(b"\r\n\r\n");
    assert!(read("POST", &large, &[], false).is_err());
}

#[test]
fn requests_are_framed_by_the_size_of_their_bodies() {
    let head = |method, size| {
        let mut out = Vec::new();
        let mut head = RequestHead::new(method, "a:81", "/x");
        head.fields.push("X", "y");
        Http1ClientConnection::default().send_head(&head, size, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let start = |method| format!("{method} /x HTTP/1.1\r\nHost: a:81\r\nX: y\r\n");
    assert_eq!(head("GET", BodySize::Empty), start("GET") + "\r\n");
    assert_eq!(head("POST", BodySize::Empty), start("POST") + "Content-Length: 0\r\n\r\n");
    assert_eq!(head("GET", BodySize::Known(5)), start("GET") + "Content-Length: 5\r\n\r\n");
    let chunked = start("PUT") + "Transfer-Encoding: chunked\r\n\r\n";
    assert_eq!(head("PUT", BodySize::Unknown), chunked);
}

#[test]
fn bodies_are_as_long_as_announced() {
    let post = RequestHead::new("POST", "a", "/");
    let mut out = Vec::new();
    let mut connection = Http1ClientConnection::default();
    connection.send_head(&post, BodySize::Known(3), &mut out).unwrap();
    connection.begin_data(2, &mut out).unwrap();
    assert!(connection.end_body(&FieldLines::new(), &mut out).is_err());
    assert!(connection.begin_data(2, &mut out).is_err());
    connection.begin_data(1, &mut out).unwrap();
    connection.end_body(&FieldLines::new(), &mut out).unwrap();
    assert!(connection.is_sent());

    let mut connection = Http1ClientConnection::default();
    connection.send_head(&post, BodySize::Unknown, &mut Vec::new()).unwrap();
    assert!(!connection.is_sent());
    let mut out = Vec::new();
    connection.begin_data(26, &mut out).unwrap();
    out.extend_from_slice(b"abcdefghijklmnopqrstuvwxyz");
    out.extend_from_slice(connection.end_data());
    let mut trailers = FieldLines::new();
    trailers.push("T", "1");
    connection.end_body(&trailers, &mut out).unwrap();
    assert_eq!(out, b"1a\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\nT: 1\r\n\r\n");
}

#[test]
fn one_request_is_under_way_at_a_time() {
    let mut connection = Http1ClientConnection::default();
    let get = RequestHead::new("GET", "a", "/");
    connection.send_head(&get, BodySize::Empty, &mut Vec::new()).unwrap();
    assert!(connection.send_head(&get, BodySize::Empty, &mut Vec::new()).is_err());
    // A response before the end of the request leaves a connection that cannot be reused.
    let mut connection = Http1ClientConnection::default();
    connection.send_head(&get, BodySize::Known(9), &mut Vec::new()).unwrap();
    let input = b"HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n";
    connection.receive(input, false).unwrap();
    assert!(matches!(connection.receive(b"", false), Ok((0, Http1ClientEvent::End(_)))));
    assert!(!connection.is_reusable() && !connection.is_sent());
    assert!(connection.send_head(&get, BodySize::Empty, &mut Vec::new()).is_err());
}

proptest! {
    /// For any bytes at any split, the client does not panic and reads the same events.
    #[test]
    fn any_bytes_are_read_in_one_way(
        parts in proptest::collection::vec(
            prop_oneof![
                Just(&b"HTTP/1.1 200 OK\r\n"[..]), Just(&b"HTTP/1.0 404 x\r\n"[..]), Just(&b"HTTP/1.1 100\r\n"[..]),
                Just(&b"Content-Length: 3\r\n"[..]), Just(&b"Transfer-Encoding: chunked\r\n"[..]),
                Just(&b"Connection: close\r\n"[..]), Just(&b"\r\n"[..]), Just(&b"\n"[..]), Just(&b"\r"[..]),
                Just(&b"3\r\nabc\r\n"[..]), Just(&b"0\r\n"[..]), Just(&b"A: b\r\n"[..]), Just(&b" c\r\n"[..]),
                Just(&b"\0"[..]), Just(&b"abc"[..]),
            ],
            0..12,
        ),
        closes in any::<bool>(),
        size in 1..9_usize,
    ) {
        let mut input = b"HTTP/1.1 ".to_vec();
        input.extend_from_slice(b"200 OK\r\n");
        input.extend(parts.concat());
        let cuts: Vec<usize> = (1..=input.len() / size).map(|count| count * size).collect();
        prop_assert_eq!(read("POST", &input, &cuts, closes), read("POST", &input, &[], closes));
    }
}
