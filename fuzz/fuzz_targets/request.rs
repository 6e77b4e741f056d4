#![no_main]
//! Bytes of a connection: heads and bodies, in one piece and in two.

use dunlin_http::semantics::target::{self, Target};
use dunlin_http::semantics::host;
use dunlin_http::http1::{BodyEvent, Http1Connection, leading_empty_lines};
use dunlin_http::{FieldName, Head, Limits, Request};
use libfuzzer_sys::fuzz_target;

/// Requests and body bytes, and the status of the error that ended the connection.
fn read(pieces: &[&[u8]]) -> (usize, Vec<u8>, Option<u16>) {
    let (mut connection, mut head, limits) = (Http1Connection::default(), Head::default(), Limits::default());
    let (mut requests, mut body, mut pending, mut in_body) = (0, Vec::new(), Vec::new(), false);
    for piece in pieces {
        pending.extend_from_slice(piece);
        loop {
            if in_body {
                match connection.body(&pending) {
                    Err(refusal) => return (requests, body, Some(refusal.status)),
                    Ok((used, event)) => {
                        if let BodyEvent::Data(data) = &event {
                            body.extend_from_slice(data);
                        }
                        let (more, end) = (event == BodyEvent::More, event == BodyEvent::End);
                        pending.drain(..used);
                        in_body = !end;
                        if more {
                            break;
                        }
                    }
                }
            } else {
                pending.drain(..leading_empty_lines(&pending));
                if pending.is_empty() {
                    break;
                }
                match connection.head(&pending, &limits, &mut head) {
                    Err(refusal) => return (requests, body, Some(refusal.status)),
                    Ok(None) => break,
                    Ok(Some(length)) => {
                        requests += 1;
                        let request = Request::new(&pending[..length], &head);
                        let host = request.field(FieldName::Host);
                        assert!(host.is_none_or(host::is_authority));
                        if let Ok(Target::Absolute { authority, .. }) =
                            target::parse(request.method(), request.target())
                        {
                            assert_eq!(host, Some(authority));
                        }
                        pending.drain(..length);
                        in_body = true;
                    }
                }
            }
        }
    }
    (requests, body, None)
}

fuzz_target!(|input: (u16, &[u8])| {
    let (cut, data) = input;
    let (first, second) = data.split_at(usize::from(cut).min(data.len()));
    assert_eq!(read(&[data]), read(&[first, second]));
});
