//! The HTTP/1 engine, byte in and event out: each message in one piece and split at every byte.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use dunlin_http::http1::{BodyEvent, Connection, Persistence, leading_empty_lines};
use dunlin_http::{FieldName, Head, Limits, Request};
use proptest::prelude::*;

/// Requests and the error that a connection reads from its input.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Read {
    /// Method, target, body and persistence of each request.
    requests: Vec<(String, String, String, Persistence)>,
    rejected: Option<u16>,
}

/// Feeds `input` in pieces that end at `cuts`.
fn read_in_pieces(input: &[u8], cuts: &[usize], limits: &Limits) -> Read {
    let mut read = Read::default();
    let mut connection = Connection::default();
    let mut head = Head::default();
    let mut pending = Vec::new();
    let mut in_body = false;
    let mut start = 0;
    for &end in cuts.iter().chain([&input.len()]) {
        pending.extend_from_slice(&input[start..end]);
        start = end;
        loop {
            if in_body {
                match connection.body(&pending) {
                    Err(error) => {
                        read.rejected = Some(error.status);
                        return read;
                    }
                    Ok((used, event)) => {
                        let (done, more) = match event {
                            BodyEvent::More => (false, true),
                            BodyEvent::Data(data) => {
                                let text = String::from_utf8_lossy(data).into_owned();
                                read.requests.last_mut().unwrap().2.push_str(&text);
                                (false, false)
                            }
                            BodyEvent::End => (true, false),
                        };
                        pending.drain(..used);
                        in_body = !done;
                        if more {
                            break;
                        }
                    }
                }
                continue;
            }
            pending.drain(..leading_empty_lines(&pending));
            if pending.is_empty() {
                break;
            }
            match connection.head(&pending, limits, &mut head) {
                Err(error) => {
                    read.rejected = Some(error.status);
                    return read;
                }
                Ok(None) => break,
                Ok(Some(length)) => {
                    let request = Request::new(&pending[..length], &head);
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    read.requests.push((
                        text(request.method_text()),
                        text(request.target()),
                        String::new(),
                        connection.persistence(),
                    ));
                    pending.drain(..length);
                    in_body = true;
                }
            }
        }
    }
    read
}

/// Reads the input in one piece, at every split in two, and byte by byte: the results must be equal.
fn read(input: &[u8]) -> Read {
    let limits = Limits::default();
    let whole = read_in_pieces(input, &[], &limits);
    for cut in 0..input.len() {
        let split = read_in_pieces(input, &[cut], &limits);
        assert_eq!(split, whole, "split at {cut}: {}", String::from_utf8_lossy(input));
    }
    let every: Vec<usize> = (0..input.len()).collect();
    assert_eq!(read_in_pieces(input, &every, &limits), whole, "byte by byte");
    whole
}

#[track_caller]
fn rejected(input: &[u8], status: u16) {
    let read = read(input);
    let text = String::from_utf8_lossy(input).into_owned();
    assert_eq!(read.rejected, Some(status), "{text:?}");
    assert!(read.requests.is_empty(), "{text:?} was served all the same");
}

#[track_caller]
fn served(input: &[u8], expected: &[(&str, &str, &str)]) -> Vec<Persistence> {
    let read = read(input);
    assert_eq!(read.rejected, None, "{:?}", String::from_utf8_lossy(input));
    let got: Vec<_> =
        read.requests.iter().map(|r| (r.0.as_str(), r.1.as_str(), r.2.as_str())).collect();
    assert_eq!(got, expected);
    read.requests.iter().map(|request| request.3).collect()
}

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

/// The fields of one request, as `name=value`.
fn fields_of(message: &str, head: &mut Head) -> String {
    let message = message.as_bytes();
    let length = Connection::default().head(message, &Limits::default(), head).unwrap();
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
fn chunks_are_strict() {
    let head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in [
        "+1\r\na\r\n0\r\n\r\n",
        "-1\r\na\r\n0\r\n\r\n",
        "0x1\r\na\r\n0\r\n\r\n",
        " 1\r\na\r\n0\r\n\r\n",
        "1 \r\na\r\n0\r\n\r\n",
        "\r\na\r\n0\r\n\r\n",
        ";x\r\na\r\n0\r\n\r\n",
        "g\r\na\r\n0\r\n\r\n",
        "1\na\r\n0\r\n\r\n",
        "1\r\na\n0\r\n\r\n",
        "1\r\nab\r\n0\r\n\r\n",
        "1;a\nb\r\na\r\n0\r\n\r\n",
        "1;a\rb\r\na\r\n0\r\n\r\n",
        "10000000000000000\r\na",
        "0\r\nX : y\r\n\r\n",
        "0\r\n X: y\r\n\r\n",
        "0\r\nX\r\n\r\n",
        "0\r\nX: y\n\r\n",
        "0\r\nX: y\r\n z\r\n\r\n",
        "0\r\n: y\r\n\r\n",
        "0\r\nX\u{e4}: y\r\n\r\n",
        "0\r\nX: a\0\r\n\r\n",
        "0\r\nX: a\rb\r\n\r\n",
        "0\r\n\n",
        "0\r\n\rX\r\n\r\n",
        "0\r\nContent-Length: 3\r\n\r\n",
        "0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "0\r\nHost: y\r\n\r\n",
    ] {
        let message = format!("{head}{body}");
        let read = read(message.as_bytes());
        assert_eq!(read.rejected, Some(400), "{body:?}");
        assert_eq!(read.requests.len(), 1, "{body:?}");
    }
    for endless in ["1;", "1;a=", "1;a=\"", "1 "] {
        let filler = if endless == "1 " { " " } else { "x" };
        let endless = format!("{head}{endless}{}", filler.repeat(20_000));
        let read = read_in_pieces(endless.as_bytes(), &[], &Limits::default());
        assert_eq!(read.rejected, Some(431));
    }
}

#[test]
fn chunk_extensions_keep_to_their_grammar() {
    let head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    for extension in [
        ";a",
        ";a;b",
        ";a=b",
        ";a=b;c=\"d\"",
        ";a=\"\"",
        ";a=\"b c;d=\u{e4}\t\"",
        ";a=\"\\\"\\\\\\x\"",
        " ;a",
        "\t ; \ta",
        ";a =b",
        ";a= b",
        ";a \t= \"b\" ;c ; d",
        ";!#$%&'*+-.^_`|~0",
        ";a=0",
        ";a=\";\"",
    ] {
        let message = format!("{head}1{extension}\r\na\r\n0{extension}\r\n\r\n");
        served(message.as_bytes(), &[("POST", "/", "a")]);
    }
    for extension in [
        ";",
        ";;",
        "; ",
        ";=",
        ";a=",
        ";a= ",
        ";a;",
        ";a; ",
        ";a=b;",
        " ",
        "\t",
        " a",
        "a=b",
        "=b",
        ";=b",
        ";a==b",
        ";a=b=c",
        ";a=\"b",
        ";a=\"b\\\"",
        ";a=\"b\"c",
        ";a=b\"c",
        ";a=b\"c\"",
        ";a\"b\"",
        ";\"a\"",
        ";\"a\"=b",
        ";[]",
        ";a[",
        ";a=[",
        ";bad[=x",
        ";a b",
        ";a=b c",
        ";a ",
        ";a=b ",
        ";a=\"b\" ",
        ";a,b",
        ";a=(b)",
        ";a/b",
        ";a=b/c",
        ";a:b",
        ";a@b",
        ";\u{e4}",
        ";a=\u{e4}",
        ";a=\"\0\"",
        ";a=\"\x7f\"",
        ";a=\"\\\x01\"",
        ";a=\"\n\"",
        ";a=\"\r\"",
        ";\0",
        ";a\x0b",
        ";a\rb",
        ";a\nb",
    ] {
        for chunk in ["1{}\r\na\r\n0\r\n\r\n", "0{}\r\n\r\n"] {
            let body = chunk.replace("{}", extension);
            let read = read(format!("{head}{body}").as_bytes());
            assert_eq!(read.rejected, Some(400), "{body:?}");
            assert_eq!(read.requests.len(), 1, "{body:?}");
        }
    }
    let endless = format!("{head}1;{}", "x".repeat(20_000));
    let read = read_in_pieces(endless.as_bytes(), &[], &Limits::default());
    assert_eq!(read.rejected, Some(431));
}

#[test]
fn limits_apply_to_complete_and_incomplete_messages() {
    let limits = Limits { head_size: 1024, target_size: 256, fields: 5 };
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
    let mut connection = Connection::default();
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
    Connection::default().head(message, &Limits::default(), &mut head).unwrap();
    let request = Request::new(message, &head);
    assert_eq!(request.field(FieldName::Accept), Some(&b"text/html"[..]));
    assert_eq!(request.values(FieldName::Accept).collect::<Vec<_>>(), [&b"text/html"[..], b"b"]);
    assert!(request.is_repeated(FieldName::Accept) && !request.has(FieldName::Range));
    assert_eq!(request.fields().count(), 4);
    assert_eq!(request.to_owned().as_request().target(), b"/");
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
            let length = Connection::default().head(text.as_bytes(), &limits, head)?;
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

#[test]
fn trailer_fields_are_kept_until_they_are_taken() {
    let mut connection = Connection::default();
    let mut head = Head::default();
    let request = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    connection.head(request, &Limits::default(), &mut head).unwrap();
    let body = b"1\r\nx\r\n0\r\nDigest:  y \r\nB: \r\n\r\nGET";
    let mut at = 0;
    loop {
        let (used, event) = connection.body(&body[at..]).unwrap();
        at += used;
        if event == BodyEvent::End {
            break;
        }
    }
    assert_eq!(&body[at..], b"GET");
    assert_eq!(connection.take_trailers().as_bytes(), b"Digest: y\r\nB: \r\n");
    assert!(connection.take_trailers().is_empty());
}
