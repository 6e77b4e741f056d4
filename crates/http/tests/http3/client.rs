//! The client's engine: what a server can send, in pieces of any size.

use dunlin_http::http3::client::{Http3ClientConnection, Http3ClientEvent};
use dunlin_http::http3::frame::{kind, setting};
use dunlin_http::http3::{Http3Error, Http3ErrorCode, OwnStream};
use dunlin_http::{BodySize, FieldLines, RequestHead};

use crate::support::{control, data, frame, frames, header, headers, section, settings, varint};

const OK: &[(&str, &str)] = &[(":status", "200")];
/// Unidirectional streams of the server.
const CONTROL: u64 = 3;
const ENCODER: u64 = 7;

/// Bytes of streams, and whether each stream ends with them.
type Streams = Vec<(u64, Vec<u8>, bool)>;
/// The events of a client, one line each; data of the same stream is joined.
type Seen = Vec<String>;

fn show(fields: &FieldLines) -> String {
    String::from_utf8_lossy(fields.as_bytes()).replace("\r\n", ";")
}

/// Feeds bytes of a stream in pieces of `size` bytes.
fn feed(
    client: &mut Http3ClientConnection,
    (stream, bytes, is_end): &(u64, Vec<u8>, bool),
    size: usize,
    seen: &mut Seen,
) -> Result<(), Http3Error> {
    let mut pieces: Vec<&[u8]> = bytes.chunks(size).collect();
    if bytes.is_empty() {
        pieces.push(b"");
    }
    let count = pieces.len();
    for (number, piece) in pieces.into_iter().enumerate() {
        let mut at = 0;
        loop {
            let event = client.receive(*stream, piece, &mut at, *is_end && number + 1 == count)?;
            let line = match event {
                Http3ClientEvent::NeedInput => break,
                Http3ClientEvent::Blocked => panic!("nothing blocks here"),
                Http3ClientEvent::Settings => "settings".into(),
                Http3ClientEvent::Interim { stream, head } => {
                    format!("{stream} interim {}", head.status)
                }
                Http3ClientEvent::Head { stream, head, is_end } => {
                    let end = if is_end { " end" } else { "" };
                    format!("{stream} head {} {}{end}", head.status, show(&head.fields))
                }
                Http3ClientEvent::Data { stream, data, is_end } => {
                    let text = String::from_utf8_lossy(&piece[data]).into_owned();
                    let line = format!("{stream} data ");
                    match seen.last_mut().filter(|last| last.starts_with(&line)) {
                        Some(last) => last.push_str(&text),
                        None if !text.is_empty() => seen.push(line + &text),
                        None => {}
                    }
                    if !is_end {
                        continue;
                    }
                    format!("{stream} end")
                }
                Http3ClientEvent::Trailers { stream, fields } => {
                    format!("{stream} trailers {}", show(&fields))
                }
                Http3ClientEvent::Reset { stream, code, reason } => {
                    seen.push(format!("{stream} reset {code} {reason}"));
                    return Ok(());
                }
                Http3ClientEvent::Stop { stream, code } => {
                    seen.push(format!("{stream} stop {code}"));
                    return Ok(());
                }
                Http3ClientEvent::GoAway => "goaway".into(),
            };
            seen.push(line);
        }
    }
    Ok(())
}

/// Opens a stream for each method and feeds what a server sends, whole and in pieces of each size, which has to give the same. The
/// end of a stream may come with the last bytes or alone.
fn exchange(methods: &[&str], streams: &Streams) -> (Seen, Result<(), Http3Error>) {
    let run = |size: usize, is_late: bool| {
        let (mut client, mut seen) = (Http3ClientConnection::new(), Seen::new());
        for (number, method) in methods.iter().enumerate() {
            let head = RequestHead::new(method, "a", "/");
            client
                .open(4 * number as u64, &head, "https", BodySize::Empty, &mut Vec::new())
                .unwrap();
        }
        let mut result = Ok(());
        for stream in streams {
            if result.is_ok() && is_late && stream.2 {
                let (id, bytes, _) = stream.clone();
                result = feed(&mut client, &(id, bytes, false), size, &mut seen);
                if result.is_ok() && !seen.last().is_some_and(|last| last.contains("reset")) {
                    result = feed(&mut client, &(id, Vec::new(), true), size, &mut seen);
                }
            } else if result.is_ok() {
                result = feed(&mut client, stream, size, &mut seen);
            }
        }
        (seen, result)
    };
    let whole = run(usize::MAX >> 1, false);
    for size in (1..40).chain([100, 1000]) {
        assert_eq!(run(size, false), whole, "in pieces of {size}");
    }
    whole
}

#[test]
fn responses_of_several_streams_are_separated() {
    let (seen, result) = exchange(
        &["GET", "GET", "HEAD"],
        &vec![
            (CONTROL, control(&[]), false),
            (0, headers(&[(":status", "103"), ("link", "</a>")]), false),
            (4, headers(&[(":status", "204")]), true),
            (8, headers(&[(":status", "200"), ("content-length", "100")]), true),
            (0, headers(&[(":status", "200"), ("content-length", "5"), ("x", "y")]), false),
            (0, [frame(0x21, b"grease"), data(b"he"), data(b"llo")].concat(), false),
            (0, headers(&[("sum", "1")]), true),
        ],
    );
    assert_eq!(result, Ok(()));
    assert_eq!(
        seen,
        [
            "settings",
            "0 interim 103",
            "4 head 204  end",
            "8 head 200 content-length: 100; end",
            "0 head 200 content-length: 5;x: y;",
            "0 data hello",
            "0 trailers sum: 1;",
        ]
    );
}

#[test]
fn malformed_responses_end_their_stream_only() {
    type Case<'a> = (&'a str, Vec<u8>, bool, &'a str);
    let cases: [Case<'_>; 14] = [
        ("GET", headers(&[("a", "b")]), true, "the status is missing"),
        ("GET", headers(&[(":status", "20")]), true, "the status is malformed"),
        ("GET", headers(&[(":status", "101")]), false, "101"),
        ("GET", headers(&[(":status", "200"), (":status", "200")]), true, "repeated"),
        ("GET", headers(&[("a", "b"), (":status", "200")]), true, "behind a field"),
        ("GET", headers(&[(":status", "200"), (":path", "/")]), true, "not one of a response"),
        ("GET", headers(&[(":status", "200"), ("A", "b")]), true, "malformed"),
        ("GET", headers(&[(":status", "200"), ("connection", "x")]), true, "the connection"),
        ("GET", headers(&[(":status", "100")]), true, "before the final response"),
        ("GET", vec![], true, "before the final response"),
        ("GET", headers(&[(":status", "200"), ("content-length", "1")]), true, "shorter"),
        (
            "GET",
            [headers(&[(":status", "200"), ("content-length", "0")]), data(b"a")].concat(),
            false,
            "longer",
        ),
        ("HEAD", [headers(OK), data(b"a")].concat(), false, "longer"),
        ("GET", [headers(OK), headers(&[(":status", "200")])].concat(), true, "trailers"),
    ];
    for (method, bytes, is_end, reason) in cases {
        let streams =
            vec![(CONTROL, control(&[]), false), (0, bytes, is_end), (4, headers(OK), true)];
        let (seen, result) = exchange(&[method, "GET"], &streams);
        assert_eq!(result, Ok(()), "{reason}");
        let reset = &seen[seen.len() - 2];
        assert!(reset.starts_with("0 reset H3_MESSAGE_ERROR"), "{reason}: {seen:?}");
        assert!(reset.contains(reason), "{reason}: {seen:?}");
        assert_eq!(seen[seen.len() - 1], "4 head 200  end");
    }
    for size in [33_000 * 2, 140_000] {
        let large = headers(&[(":status", "200"), ("x", &"\u{1}".repeat(size))]);
        let (seen, result) = exchange(&["GET"], &vec![(0, large, true)]);
        assert!(result.is_ok() && seen[0].contains("larger than 64 KB"), "{seen:?}");
    }
}

#[test]
fn frames_that_break_the_rules_end_the_connection() {
    use Http3ErrorCode::{
        ClosedCriticalStream, FrameError, FrameUnexpected, IdError, MissingSettings,
        QpackDecompressionFailed, SettingsError, StreamCreationError,
    };
    let after_settings = |bytes: Vec<u8>| vec![(CONTROL, [control(&[]), bytes].concat(), false)];
    let message = |bytes: Vec<u8>| vec![(0, bytes, false)];
    for (what, code, streams) in [
        ("DATA before a head", FrameUnexpected, message(data(b"x"))),
        (
            "DATA behind an interim response",
            FrameUnexpected,
            message([headers(&[(":status", "103")]), data(b"x")].concat()),
        ),
        (
            "DATA behind trailers",
            FrameUnexpected,
            message([headers(OK), headers(&[("a", "b")]), data(b"x")].concat()),
        ),
        ("SETTINGS on a request", FrameUnexpected, message(settings(&[]))),
        ("a frame of HTTP/2", FrameUnexpected, message(frame(6, b"12345678"))),
        ("PUSH_PROMISE", IdError, message(frame(kind::PUSH_PROMISE, &[0, 0, 0]))),
        ("a push stream", IdError, vec![(CONTROL, vec![1, 0], false)]),
        ("an end within a frame", FrameError, vec![(0, headers(OK)[..3].to_vec(), true)]),
        ("a section of nothing", QpackDecompressionFailed, message(frame(kind::HEADERS, b""))),
        ("no settings", MissingSettings, vec![(CONTROL, [vec![0], data(b"")].concat(), false)]),
        ("a setting of HTTP/2", SettingsError, vec![(CONTROL, control(&[(2, 0)]), false)]),
        ("MAX_PUSH_ID", FrameUnexpected, after_settings(frame(kind::MAX_PUSH_ID, &[1]))),
        ("PRIORITY_UPDATE", FrameUnexpected, after_settings(frame(kind::PRIORITY_UPDATE, &[0]))),
        ("CANCEL_PUSH", IdError, after_settings(frame(kind::CANCEL_PUSH, &[0]))),
        ("GOAWAY of a push", IdError, after_settings(frame(kind::GOAWAY, &[1]))),
        (
            "a GOAWAY that goes up",
            IdError,
            after_settings([frame(kind::GOAWAY, &[0]), frame(kind::GOAWAY, &[4])].concat()),
        ),
        (
            "a second control stream",
            StreamCreationError,
            vec![(3, vec![0], false), (7, vec![0], false)],
        ),
        ("a request of the server", StreamCreationError, vec![(1, headers(OK), false)]),
        ("a stream of the client", StreamCreationError, vec![(2, vec![0], false)]),
        (
            "the end of the control stream",
            ClosedCriticalStream,
            vec![(CONTROL, control(&[]), true)],
        ),
    ] {
        let (_, result) = exchange(&["GET"], &streams);
        assert_eq!(result.map_err(|failure| failure.code), Err(code), "{what}");
    }
    let connect = [headers(OK), headers(&[("a", "b")])].concat();
    let (_, result) = exchange(&["CONNECT"], &message(connect));
    assert_eq!(result.unwrap_err().code, FrameUnexpected);
    let mut client = Http3ClientConnection::new();
    assert_eq!(client.stop_received(2).unwrap_err().code, ClosedCriticalStream);
    assert!(!client.is_usable());
    assert!(client.receive(0, b"", &mut 0, false).is_err());
    let mut client = Http3ClientConnection::new();
    feed(&mut client, &(CONTROL, control(&[]), false), 9, &mut Seen::new()).unwrap();
    assert_eq!(client.reset_received(CONTROL, 0).unwrap_err().code, ClosedCriticalStream);
}

#[test]
fn a_server_that_goes_away_leaves_requests_unprocessed() {
    let (mut client, mut seen) = (Http3ClientConnection::new(), Seen::new());
    let get = RequestHead::new("GET", "a", "/");
    for stream in [0, 4, 8, 12] {
        client.open(stream, &get, "https", BodySize::Empty, &mut Vec::new()).unwrap();
    }
    let first = [control(&[]), frame(kind::GOAWAY, &varint((1 << 62) - 4))].concat();
    feed(&mut client, &(CONTROL, first, false), 99, &mut seen).unwrap();
    assert_eq!((client.unprocessed(), client.is_usable()), (None, false));
    assert!(client.open(16, &get, "https", BodySize::Empty, &mut Vec::new()).is_err());
    feed(&mut client, &(CONTROL, frame(kind::GOAWAY, &[8]), false), 99, &mut seen).unwrap();
    assert_eq!(
        [client.unprocessed(), client.unprocessed(), client.unprocessed()],
        [Some(8), Some(12), None]
    );
    assert_eq!(client.reset_received(0, Http3ErrorCode::RequestRejected.value()), Ok(Some(true)));
    assert_eq!(client.reset_received(4, Http3ErrorCode::InternalError.value()), Ok(Some(false)));
    assert_eq!((client.reset_received(4, 0), client.open_streams()), (Ok(None), 0));
    assert_eq!(seen, ["settings", "goaway", "goaway"]);
}

#[test]
fn requests_are_written_with_their_bodies_and_trailers() {
    let (mut client, mut out) = (Http3ClientConnection::new(), Vec::new());
    assert!(!client.is_sending(0));
    let mut post = RequestHead::new("POST", "a.example", "/x");
    post.fields.push("Connection", "close");
    post.fields.push("X-Own", "y");
    client.open(0, &post, "https", BodySize::Unknown, &mut out).unwrap();
    assert!(client.open(0, &post, "https", BodySize::Empty, &mut out).is_err(), "the same stream");
    assert!(client.open(2, &post, "https", BodySize::Empty, &mut out).is_err(), "not a request's");
    assert!(
        client
            .open(4, &RequestHead::new("G T", "a", "/"), "https", BodySize::Empty, &mut out)
            .is_err()
    );
    assert!(client.is_sending(0));
    out.extend_from_slice(client.send_data(0, 3, false).unwrap().as_bytes());
    out.extend_from_slice(b"abc");
    assert_eq!(client.send_data(0, 0, false), None);
    let mut trailers = FieldLines::new();
    trailers.push("Sum", "1");
    client.end_body(0, &trailers, &mut out);
    client.end_body(0, &trailers, &mut out);
    assert_eq!((client.is_sending(0), client.send_data(0, 3, false)), (false, None));
    let sent = frames(&out);
    let kinds: Vec<u64> = sent.iter().map(|frame| frame.0).collect();
    assert_eq!(kinds, [kind::HEADERS, kind::DATA, kind::HEADERS]);
    assert_eq!(sent[2].1, section(&[("sum", "1")]));
    // The server needs no more of it, and responds.
    client.open(4, &post, "https", BodySize::Known(10), &mut out).unwrap();
    assert_eq!((client.stop_received(4), client.stop_received(4)), (Ok(true), Ok(false)));
    assert!(!client.is_sending(4));
    assert!(client.reset(4) && !client.reset(4));
    client.close();
    client.close();
    let control = client.pending(OwnStream::Control);
    assert!(control.ends_with(&frame(kind::GOAWAY, &[0])), "{control:?}");
}

#[test]
fn extended_connect_needs_the_settings_of_the_server() {
    let mut tunnel = RequestHead::new("CONNECT", "a.example", "/chat");
    tunnel.protocol = Some("websocket".into());
    for (pairs, accepts) in [(vec![], false), (vec![(setting::ENABLE_CONNECT_PROTOCOL, 1)], true)] {
        let mut client = Http3ClientConnection::new();
        assert_eq!(client.accepts_extended_connect(), None);
        let open = |client: &mut Http3ClientConnection, stream| {
            client.open(stream, &tunnel, "https", BodySize::Unknown, &mut Vec::new()).is_ok()
        };
        assert!(!open(&mut client, 0));
        feed(&mut client, &(CONTROL, control(&pairs), false), 99, &mut Seen::new()).unwrap();
        assert_eq!(client.accepts_extended_connect(), Some(accepts));
        assert_eq!(open(&mut client, 0), accepts);
    }
}

#[test]
fn a_response_waits_for_its_entries_within_bounds() {
    let mut client = Http3ClientConnection::new();
    let get = RequestHead::new("GET", "a", "/");
    let blocked = frame(kind::HEADERS, &[2, 0, 0xd9, 0x80]);
    for number in 0..16 {
        client.open(4 * number, &get, "https", BodySize::Empty, &mut Vec::new()).unwrap();
        let mut at = 0;
        let event = client.receive(4 * number, &blocked, &mut at, true);
        assert_eq!((event, at), (Ok(Http3ClientEvent::Blocked), blocked.len()));
    }
    assert_eq!(client.held(), 16 * 4);
    assert!(client.reset(0));
    client.receive(ENCODER, b"\x02\x3f\xe1\x1f\x41a\x01b", &mut 0, false).unwrap();
    for number in 1..16 {
        assert_eq!(client.next_unblocked(), Some(4 * number));
        let event = client.receive(4 * number, b"", &mut 0, true);
        let Ok(Http3ClientEvent::Head { head, is_end: true, .. }) = event else {
            panic!("{event:?}")
        };
        assert_eq!(show(&head.fields), "a: b;");
    }
    assert_eq!((client.next_unblocked(), client.held(), client.open_streams()), (None, 0, 0));
    // One more than permitted.
    let mut client = Http3ClientConnection::new();
    let end = (0..20).find(|number| {
        client.open(4 * number, &get, "https", BodySize::Empty, &mut Vec::new()).unwrap();
        client.receive(4 * number, &blocked, &mut 0, true).is_err()
    });
    assert_eq!(end, Some(16));
    let start = [header(kind::HEADERS, 120_000), vec![0; 100_000]].concat();
    let mut client = Http3ClientConnection::new();
    let end = (0..20).find(|number| {
        client.open(4 * number, &get, "https", BodySize::Empty, &mut Vec::new()).unwrap();
        client.receive(4 * number, &start, &mut 0, false).is_err()
    });
    assert_eq!(end, Some(10));
}

#[test]
fn floods_of_a_server_end_the_connection() {
    let (mut client, mut seen) = (Http3ClientConnection::new(), Seen::new());
    let get = RequestHead::new("GET", "a", "/");
    client.open(0, &get, "https", BodySize::Empty, &mut Vec::new()).unwrap();
    let interims = headers(&[(":status", "103")]).repeat(101);
    feed(&mut client, &(0, interims, false), 1000, &mut seen).unwrap();
    assert!(seen.last().unwrap().contains("too many interim responses"));
    let grease = (4, [headers(OK), frame(0x21, b"").repeat(300)].concat(), false);
    client.open(4, &get, "https", BodySize::Empty, &mut Vec::new()).unwrap();
    let failure = feed(&mut client, &grease, 1000, &mut seen).unwrap_err();
    assert!(failure.is_abuse());
    let mut client = Http3ClientConnection::new();
    let unknown =
        (0..).find(|number| client.receive(4 * number + 3, &varint(0x21), &mut 0, false).is_err());
    assert_eq!(unknown, Some(200));
}
