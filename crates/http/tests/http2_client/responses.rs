//! Responses, whole and split at every byte, and errors of connections.

use dunlin_http::http2::Http2ErrorCode;
use dunlin_http::http2::frame::{flag, kind};
use dunlin_http::http2::hpack::Indexing;

use super::support::{END, OK, Server, exchange};

#[test]
fn responses_of_several_streams_are_separated() {
    let mut server = Server::new(&[]);
    server
        .headers(1, &[(":status", "103"), ("link", "</a>")], 0)
        .headers(3, &[(":status", "204")], END)
        .headers(1, &[(":status", "200"), ("content-length", "5"), ("x", "y")], 0)
        .data(1, b"hel", 0)
        .headers(5, OK, 0)
        .data(1, b"lo", END)
        .data(5, b"five", 0)
        .headers(5, &[("digest", "z")], END);
    let (seen, result) = exchange(&["GET", "GET", "GET"], &server);
    assert_eq!(result, Ok(()));
    assert_eq!(
        seen,
        [
            "1 interim 103",
            "3 head 204  end",
            "1 head 200 content-length: 5;x: y;",
            "1 data hel",
            "5 head 200 ",
            "1 data lo",
            "1 end",
            "5 data five",
            "5 trailers digest: z",
        ]
    );
}

#[test]
fn sections_in_several_frames_and_padding_are_read() {
    let mut server = Server::new(&[]);
    let mut block = Vec::new();
    server.encoder.field(b":status", b"200", Indexing::Without, &mut block);
    server.encoder.field(b"a", b"b", Indexing::Without, &mut block);
    let (first, rest) = block.split_at(2);
    let (second, third) = rest.split_at(1);
    let padded = [&[3], first, &[0, 0, 0]].concat();
    server
        .frame(kind::HEADERS, flag::PADDED, 1, &padded)
        .frame(kind::CONTINUATION, 0, 1, second)
        .frame(kind::CONTINUATION, flag::END_HEADERS, 1, third)
        .data(1, b"\x02xy\0\0", flag::PADDED | END);
    let (seen, result) = exchange(&["GET"], &server);
    assert_eq!(result, Ok(()));
    assert_eq!(seen, ["1 head 200 a: b;", "1 data xy", "1 end"]);
}

/// Method, fields and flags of a response, and why it is malformed.
type Case = (&'static str, &'static [(&'static str, &'static str)], u8, &'static str);

#[test]
fn malformed_responses_end_their_stream_only() {
    let cases: [Case; 12] = [
        ("GET", &[("a", "b")], END, "the status is missing"),
        ("GET", &[(":status", "20")], END, "the status is malformed"),
        ("GET", &[(":status", "101")], 0, "only HTTP/1 has a 101 response"),
        ("GET", &[(":status", "200"), (":status", "200")], END, "a pseudo-field is repeated"),
        ("GET", &[("a", "b"), (":status", "200")], END, "a pseudo-field is repeated"),
        ("GET", &[(":status", "200"), (":path", "/")], END, "a pseudo-field is not one"),
        ("GET", &[(":status", "200"), ("A", "b")], END, "a field is malformed"),
        ("GET", &[(":status", "200"), ("connection", "close")], END, "a field concerns"),
        ("GET", &[(":status", "200"), ("content-length", "x")], 0, "Content-Length is malformed"),
        ("GET", &[(":status", "200"), ("content-length", "5")], END, "the body is shorter"),
        ("GET", &[(":status", "100")], END, "the stream ends before the final response"),
        ("HEAD", &[(":status", "99")], END, "the status is malformed"),
    ];
    for (method, fields, flags, reason) in cases {
        let mut server = Server::new(&[]);
        server.headers(1, fields, flags).headers(3, OK, END);
        let (seen, result) = exchange(&[method, "GET"], &server);
        assert_eq!(result, Ok(()), "{fields:?}");
        assert!(seen[0].starts_with(&format!("1 reset false {reason}")), "{seen:?}");
        assert_eq!(seen[1], "3 head 200  end");
    }
}

#[test]
fn bodies_have_the_announced_length() {
    let length: &[(&str, &str)] = &[(":status", "200"), ("content-length", "3")];
    for (data, reason) in [(&b"ab"[..], "the body is shorter"), (b"abcd", "the body is longer")] {
        let mut server = Server::new(&[]);
        server.headers(1, length, 0).data(1, data, END);
        let (seen, result) = exchange(&["GET"], &server);
        assert_eq!(result, Ok(()));
        assert!(seen[1].starts_with(&format!("1 reset false {reason}")), "{seen:?}");
    }
    // The length of a response to HEAD is that of another one.
    let mut server = Server::new(&[]);
    server.headers(1, length, END);
    assert_eq!(exchange(&["HEAD"], &server).0, ["1 head 200 content-length: 3; end"]);
    let mut server = Server::new(&[]);
    server.headers(1, length, 0).data(1, b"", END);
    let (seen, _) = exchange(&["HEAD"], &server);
    assert_eq!(seen, ["1 head 200 content-length: 3;", "1 data ", "1 end"]);
}

#[test]
fn connection_errors_end_the_connection() {
    let fails = |build: &dyn Fn(&mut Server)| {
        let mut server = Server::new(&[]);
        build(&mut server);
        exchange(&["GET"], &server).1.unwrap_err().code
    };
    let code = Http2ErrorCode::ProtocolError;
    assert_eq!(
        fails(&|server| {
            server.headers(3, OK, END);
        }),
        code,
        "a stream that is idle"
    );
    assert_eq!(
        fails(&|server| {
            server.headers(2, OK, END);
        }),
        code,
        "a stream of the server"
    );
    assert_eq!(
        fails(&|server| {
            server.data(0, b"x", 0);
        }),
        code
    );
    assert_eq!(
        fails(&|server| {
            server.frame(kind::PUSH_PROMISE, 4, 1, &[0; 9]);
        }),
        code
    );
    assert_eq!(
        fails(&|server| {
            server.frame(kind::CONTINUATION, 4, 1, b"");
        }),
        code
    );
    assert_eq!(
        fails(&|server| {
            server.frame(kind::HEADERS, 0, 1, b"").frame(kind::PING, 0, 0, &[0; 8]);
        }),
        code
    );
    let code = Http2ErrorCode::FrameSizeError;
    assert_eq!(
        fails(&|server| {
            server.frame(kind::PING, 0, 0, b"x");
        }),
        code
    );
    assert_eq!(
        fails(&|server| {
            server.frame(kind::SETTINGS, 0, 0, b"x");
        }),
        code
    );
    assert_eq!(
        fails(&|server| {
            server.frame(kind::DATA, 0, 1, &[0; 16_385]);
        }),
        code
    );
    let code = Http2ErrorCode::FlowControlError;
    assert_eq!(
        fails(&|server| {
            server.frame(kind::WINDOW_UPDATE, 0, 0, &[0; 4]);
        }),
        code
    );
    assert_eq!(
        fails(&|server| {
            server.frame(kind::SETTINGS, 0, 0, &[0, 4, 255, 0, 0, 0]);
        }),
        code
    );
    let code = Http2ErrorCode::CompressionError;
    assert_eq!(
        fails(&|server| {
            server.frame(kind::HEADERS, 4, 1, &[0xff, 0xff]);
        }),
        code
    );
    let code = Http2ErrorCode::EnhanceYourCalm;
    assert_eq!(
        fails(&|server| {
            server.frame(kind::HEADERS, 0, 1, b"");
            for _ in 0..50 {
                server.frame(kind::CONTINUATION, 0, 1, b"");
            }
        }),
        code
    );
    // The first frame has to be SETTINGS.
    let mut server = Server::default();
    server.frame(kind::PING, 0, 0, &[0; 8]);
    assert!(exchange(&["GET"], &server).1.is_err());
}
