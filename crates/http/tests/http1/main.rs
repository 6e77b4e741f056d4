//! The HTTP/1 engine, byte in and event out: each message in one piece and split at every byte.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod chunks;
mod support;

use dunlin_http::http1::{BodyEvent, Http1Connection, Persistence};
use dunlin_http::{FieldName, Head, Limits, Request};
use proptest::prelude::*;

use self::support::{Read, read_in_pieces, rejected, served};

#[test]
fn requests_follow_each_other_at_any_depth() {
    let one = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
    let expected = vec![("GET", "/a", ""); 20];
    served(one.repeat(20).as_bytes(), &expected);
}

#[test]
fn bodies_are_delimited_by_length_or_chunks_and_never_taken_for_requests() {
    served(
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\nGET /evil HTTPGET /b HTTP/1.1\r\nHost: x\r\n\r\n",
        &[("POST", "/a", "GET /evil HTTP"), ("GET", "/b", "")],
    );
    served(
        b"GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\nHost: x\r\n\r\n",
        &[("GET", "/a", "abc"), ("GET", "/b", "")],
    );
    served(
        b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;a=b;c=\"d\"\r\n world\r\n0;x\r\nTrailer-Field: 1\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n",
        &[("POST", "/a", "hello world"), ("GET", "/b", "")],
    );
    served(
        b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n000A\r\n0123456789\r\n0\r\n\r\n",
        &[("POST", "/a", "0123456789")],
    );
    served(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", &[("POST", "/", "")]);
}

#[test]
fn persistence_is_that_of_the_version_and_the_connection_field() {
    use Persistence::{Close, Keep, KeepExplicit};
    for (head, expected) in [
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", Keep),
        ("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", Close),
        ("GET / HTTP/1.1\r\nHost: x\r\nConnection: x, Close\r\n\r\n", Close),
        ("GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n", Close),
        ("GET / HTTP/1.0\r\n\r\n", Close),
        ("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", KeepExplicit),
        ("GET / HTTP/1.7\r\nHost: x\r\n\r\n", Keep),
    ] {
        assert_eq!(served(head.as_bytes(), &[("GET", "/", "")]), [expected], "{head:?}");
    }
}

#[test]
fn empty_lines_before_a_request_are_dropped() {
    served(
        b"\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n\r\nGET /b HTTP/1.1\r\nHost: x\r\n\r\n",
        &[("GET", "/", ""), ("GET", "/b", "")],
    );
}

#[test]
fn ambiguous_messages_are_rejected() {
    for fields in [
        "Content-Length: 3\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 3",
        "Content-Length: 3\r\nContent-Length: 3",
        "Content-Length: 3\r\nContent-Length: 4",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 5,5",
        "Content-Length: 0x5",
        "Content-Length: 5 5",
        "Content-Length:",
        "Content-Length: 99999999999999999999",
        "Content-Length: 18446744073709551617",
        "Content-Length: 9223372036854775808",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding: xchunked, x",
        "Transfer-Encoding: chunked,",
        "Transfer-Encoding: ,chunked",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: chun\tked",
        "Transfer-Encoding: chunked\x0b",
        "Transfer-Encoding:\x0bchunked",
        "Transfer-Encoding:",
        "Transfer-Encoding : chunked",
        " Transfer-Encoding: chunked",
        "X: a\r\n b",
        "X: a\r\n\tb",
        "X : a",
        "X\t: a",
        ": a",
        "X",
        "X y: a",
        "X(y): a",
        "X: a\0b",
        "X: a\x01b",
        "X: a\x7fb",
        "X: a\rb",
        "X: a\nY: b",
        "Host: y",
        "\u{80}: a",
    ] {
        let message = format!("POST / HTTP/1.1\r\nHost: x\r\n{fields}\r\n\r\n");
        // \u{80} is two bytes in UTF-8, neither of which a name may hold.
        rejected(message.as_bytes(), 400);
    }
    rejected(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501);
    rejected(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400);
}

#[test]
fn exactly_one_well_formed_host_is_required() {
    rejected(b"GET / HTTP/1.1\r\n\r\n", 400);
    rejected(b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400);
    rejected(b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400);
    rejected(b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400);
    rejected(b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400);
    rejected(b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400);
    for version in ["1.0", "1.1"] {
        for host in [
            "",
            " ",
            ":",
            ":80",
            "a%",
            "a%4",
            "a%4g",
            "%",
            "a%:80",
            "a:x",
            "a:65536",
            "a:80:80",
            "a, b",
            "[::1",
            "[::1]x",
            "[::1%25lo]",
            "[v1]",
            "[]",
            "a\"b",
            "<a>",
            "a\\b",
            "http://a",
            "a?b",
            "a#b",
            "\u{e4}",
        ] {
            rejected(format!("GET / HTTP/{version}\r\nHost: {host}\r\n\r\n").as_bytes(), 400);
        }
        for host in [
            "a", "a.", "A:80", "a:", "a:00080", "[::1]", "[::1]:80", "[v1.a:b]", "a%20b", "%61:1",
            "a_b~!",
        ] {
            let message = format!("GET / HTTP/{version}\r\nHost: {host}\r\n\r\n");
            served(message.as_bytes(), &[("GET", "/", "")]);
        }
    }
    served(b"GET / HTTP/1.0\r\n\r\n", &[("GET", "/", "")]);
}

/// Returns the fields of one request, as `name=value`.
fn fields_of(message: &str, head: &mut Head) -> String {
    let message = message.as_bytes();
    let length = Http1Connection::default().head(message, &Limits::default(), head).unwrap();
    assert_eq!(length, Some(message.len()));
    let request = Request::new(message, head).to_owned();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let request = request.as_request();
    let fields = request.fields().map(|(name, value)| format!("{}={}", text(name), text(value)));
    let fields: Vec<_> = fields.collect();
    let host = request.field(FieldName::Host).map(text);
    assert_eq!(request.values(FieldName::Host).map(text).next(), host);
    fields.join(" ")
}

#[test]
fn the_authority_of_an_absolute_target_replaces_host() {
    let mut head = Head::default();
    for (message, fields) in [
        ("GET http://a.test/x HTTP/1.1\r\nHost: evil.test\r\nA: b\r\n\r\n", "Host=a.test A=b"),
        (
            "GET HTTPS://a.test:81?x HTTP/1.1\r\nA: b\r\nhost: evil.test\r\n\r\n",
            "A=b host=a.test:81",
        ),
        ("OPTIONS http://[::1] HTTP/1.1\r\nHost: evil.test\r\n\r\n", "Host=[::1]"),
        ("GET http://a.test/ HTTP/1.0\r\n\r\n", "Host=a.test"),
        ("GET http://a.test/ HTTP/1.0\r\nA: b\r\n\r\n", "A=b Host=a.test"),
        // The same fields once more, with and without an authority in the target.
        ("GET /?http://a.test/x HTTP/1.1\r\nHost: b.test\r\nA: b\r\n\r\n", "Host=b.test A=b"),
        ("GET http://a.test/x HTTP/1.1\r\nHost: b.test\r\nA: b\r\n\r\n", "Host=a.test A=b"),
        ("GET http://c.test/x HTTP/1.1\r\nHost: b.test\r\nA: b\r\n\r\n", "Host=c.test A=b"),
        ("GET /y HTTP/1.1\r\nHost: b.test\r\nA: b\r\n\r\n", "Host=b.test A=b"),
        ("GET //a.test/y HTTP/1.1\r\nHost: b.test\r\nA: b\r\n\r\n", "Host=b.test A=b"),
    ] {
        assert_eq!(fields_of(message, &mut Head::default()), fields, "{message:?}");
        assert_eq!(fields_of(message, &mut head), fields, "{message:?} behind others");
    }
    // Host has to be there and well-formed all the same (RFC 9112 §3.2).
    rejected(b"GET http://a.test/ HTTP/1.1\r\n\r\n", 400);
    rejected(b"GET http://a.test/ HTTP/1.1\r\nHost: a b\r\n\r\n", 400);
    rejected(b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\nHost: a.test\r\n\r\n", 400);
}

#[test]
fn request_lines_have_one_form() {
    for line in [
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        "GET / x HTTP/1.1",
        " GET / HTTP/1.1",
        "GET /",
        "GET / HTTP/1.10",
        "GET / HTTP/11",
        "GET / HTTP/1.",
        "GET / http/1.1",
        "GET / HTTP/1.1 ",
        "GET\t/\tHTTP/1.1",
        "G(T / HTTP/1.1",
        "HTTP/1.1",
        "GET HTTP/1.1",
    ] {
        rejected(format!("{line}\r\nHost: x\r\n\r\n").as_bytes(), 400);
    }
    rejected(b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505);
    rejected(b"GET / HTTP/0.9\r\nHost: x\r\n\r\n", 505);
    rejected(b"GET / HTTP/1.1\nHost: x\n\n", 400);
    rejected(b"GET / HTTP/1.1\r\nHost: x\n\r\n", 400);
    rejected(b"\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", 400);
    rejected(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400);
}

#[test]
fn lf_alone_ends_lines_where_that_is_allowed() {
    let limits = Limits { bare_lf: true, ..Limits::default() };
    let strict = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nbGET /c HTTP/1.1\r\nHost: y\r\n\r\n";
    let expected = read_in_pieces(strict, &[], &limits);
    assert_eq!((expected.requests.len(), expected.rejected), (2, None));
    for message in [
        &b"POST /a HTTP/1.1\nHost: x\nContent-Length: 1\n\nbGET /c HTTP/1.1\nHost: y\n\n"[..],
        b"POST /a HTTP/1.1\r\nHost: x\nContent-Length: 1\r\n\nbGET /c HTTP/1.1\nHost: y\r\n\r\n",
    ] {
        let every: Vec<usize> = (0..message.len()).collect();
        for cuts in [&[][..], &every] {
            assert_eq!(read_in_pieces(message, cuts, &limits), expected);
        }
    }
    // CR alone ends nothing.
    let read = read_in_pieces(b"GET / HTTP/1.1\rHost: x\n\n", &[], &limits);
    assert_eq!(read.rejected, Some(400));
}

#[test]
fn limits_apply_to_complete_and_incomplete_messages() {
    let limits = Limits { head_size: 1024, target_size: 256, fields: 5, ..Limits::default() };
    let long_target = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(300));
    let endless_target = format!("GET /{}", "a".repeat(400));
    let long_field = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "a".repeat(1024));
    let endless_field = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}", "a".repeat(1024));
    let many = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(5));
    let enough = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(4));
    for (message, status) in [
        (&long_target, Some(414)),
        (&endless_target, Some(414)),
        (&long_field, Some(431)),
        (&endless_field, Some(431)),
        (&many, Some(431)),
        (&enough, None),
    ] {
        let every: Vec<usize> = (0..message.len()).collect();
        for cuts in [&[][..], &every] {
            let read = read_in_pieces(message.as_bytes(), cuts, &limits);
            assert_eq!(read.rejected, status, "{message}");
        }
    }
}

#[test]
fn unknown_expectations_are_rejected() {
    let mut connection = Http1Connection::default();
    let mut head = Head::default();
    let message =
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-Continue\r\n\r\n";
    let length = connection.head(message, &Limits::default(), &mut head).unwrap();
    assert_eq!(length, Some(message.len()));
    assert!(connection.expects_continue());
    assert_eq!(connection.body(b"abc"), Ok((3, BodyEvent::Data(b"abc"))));
    assert!(!connection.expects_continue(), "the body came before a 100 response");
    rejected(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: more\r\n\r\n", 417);
}

#[test]
fn input_that_is_not_http_is_rejected_at_every_split() {
    let limits = Limits::default();
    for cuts in [&[][..], &[1], &[1, 2, 3]] {
        let read = read_in_pieces(b"abc\0", cuts, &limits);
        assert_eq!(read, Read { requests: Vec::new(), rejected: Some(400) }, "cut at {cuts:?}");
    }
}

#[test]
fn fields_are_found_by_name_in_any_case_and_on_every_line() {
    let message = b"GET / HTTP/1.1\r\nhost: x\r\nACCEPT:\t text/html \r\nX: 1\r\naccept: b\r\n\r\n";
    let mut head = Head::default();
    Http1Connection::default().head(message, &Limits::default(), &mut head).unwrap();
    let request = Request::new(message, &head);
    assert_eq!(request.field(FieldName::Accept), Some(&b"text/html"[..]));
    assert_eq!(request.values(FieldName::Accept).collect::<Vec<_>>(), [&b"text/html"[..], b"b"]);
    assert!(request.is_repeated(FieldName::Accept) && !request.has(FieldName::Range));
    assert_eq!(request.fields().count(), 4);
    assert_eq!(request.to_owned().as_request().target(), b"/");
}

#[test]
fn all_cookies_are_in_one_field_for_a_recipient_behind_the_server() {
    let joined = |lines: &str| {
        let message = format!("GET / HTTP/1.1\r\nHost: x\r\n{lines}X: 1\r\n\r\n");
        let mut head = Head::default();
        Http1Connection::default().head(message.as_bytes(), &Limits::default(), &mut head).unwrap();
        let request = Request::new(message.as_bytes(), &head);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields = request.joined_fields().map(|(name, value)| text(name) + "=" + &text(&value));
        fields.collect::<Vec<_>>().join(" ")
    };
    let cookies = "Cookie: a=1\r\nA: 1\r\ncookie: b=2\r\nCOOKIE:\r\nCookie: c=3; d=4\r\n";
    assert_eq!(joined(cookies), "Host=x Cookie=a=1; b=2; c=3; d=4 A=1 X=1");
    assert_eq!(joined("Cookie: \r\nCookie: a=1\r\n"), "Host=x Cookie=a=1 X=1");
    assert_eq!(joined("Cookie: a=1\r\n"), "Host=x Cookie=a=1 X=1");
    assert_eq!(joined("Cookie:\r\ncookie:\r\n"), "Host=x X=1");
    assert_eq!(joined(""), "Host=x X=1");
}

proptest! {
    #[test]
    fn every_split_gives_the_same_result(
        parts in proptest::collection::vec(prop_oneof![
            Just("GET /a HTTP/1.1\r\n"), Just("POST /b HTTP/1.1\r\n"), Just("Host: x\r\n"),
            Just("Content-Length: 3\r\n"), Just("Transfer-Encoding: chunked\r\n"), Just("\r\n"),
            Just("abc"), Just("3\r\nabc\r\n"), Just("0\r\n\r\n"), Just("Connection: close\r\n"),
            Just("X: y\r"), Just("\n"), Just(" "), Just(":"), Just("\0"), Just("1;a=\"b\\"), Just(";"), Just("\"\r\na\r\n"),
            Just("GET http://a.test/ HTTP/1.1\r\n"),
        ], 0..12),
        cuts in proptest::collection::vec(0_usize..200, 0..6),
    ) {
        let input = parts.concat().into_bytes();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(input.len())).collect();
        cuts.sort_unstable();
        let limits = Limits::default();
        prop_assert_eq!(read_in_pieces(&input, &cuts, &limits), read_in_pieces(&input, &[], &limits));
    }

    #[test]
    fn earlier_requests_do_not_change_the_result(
        heads in proptest::collection::vec((
            prop_oneof![
                Just("GET /a HTTP/1.1\r\n"), Just("POST /longer HTTP/1.0\r\n"), Just("GET  / HTTP/1.1\r\n"),
                Just("GET http://a.test/ HTTP/1.1\r\n"), Just("GET https://b.test:1 HTTP/1.0\r\n"),
            ],
            prop_oneof![
                Just("Host: x\r\n\r\n"), Just("Host: x\r\n\r\nbody"), Just("Host: x\r\nA: b\r\n\r\n"), Just("\r\n"),
                Just("Host: x\r\nCookie: a\r\nCookie: b\r\nContent-Length: 3\r\n\r\n"), Just("Host: x\r\n"), Just("Host : x\r\n\r\n"),
            ],
            1_usize..4,
        ), 1..8),
    ) {
        let seen = |text: &str, fields: usize, head: &mut Head| {
            let limits = Limits { fields, ..Limits::default() };
            let length = Http1Connection::default().head(text.as_bytes(), &limits, head)?;
            Ok::<_, dunlin_http::RequestError>(length.map(|length| {
                let request = Request::new(&text.as_bytes()[..length], head);
                let fields: Vec<_> = request.fields().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
                let host = request.field(FieldName::Host).map(<[u8]>::to_vec);
                (length, request.target().to_vec(), request.version(), fields, host, request.is_repeated(FieldName::ContentLength))
            }))
        };
        let mut kept = Head::default();
        for (line, fields, max) in heads {
            let text = [line, fields].concat();
            prop_assert_eq!(seen(&text, max, &mut kept), seen(&text, max, &mut Head::default()));
        }
    }

    #[test]
    fn any_bytes_are_safe(input: Vec<u8>) {
        read_in_pieces(&input, &[], &Limits::default());
    }
}
