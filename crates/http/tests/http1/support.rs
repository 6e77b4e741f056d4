//! Feeds the engine with messages in pieces.

use dunlin_http::http1::{BodyEvent, Http1Connection, Persistence, leading_empty_lines};
use dunlin_http::{Head, Limits, Request};

/// Requests and the error that a connection reads from its input.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Read {
    /// Method, target, body and persistence of each request.
    pub(crate) requests: Vec<(String, String, String, Persistence)>,
    pub(crate) rejected: Option<u16>,
}

/// Feeds `input` in pieces that end at `cuts`.
pub(crate) fn read_in_pieces(input: &[u8], cuts: &[usize], limits: &Limits) -> Read {
    let mut read = Read::default();
    let mut connection = Http1Connection::default();
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
pub(crate) fn read(input: &[u8]) -> Read {
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
pub(crate) fn rejected(input: &[u8], status: u16) {
    let read = read(input);
    let text = String::from_utf8_lossy(input).into_owned();
    assert_eq!(read.rejected, Some(status), "{text:?}");
    assert!(read.requests.is_empty(), "{text:?} was served all the same");
}

#[track_caller]
pub(crate) fn served(input: &[u8], expected: &[(&str, &str, &str)]) -> Vec<Persistence> {
    let read = read(input);
    assert_eq!(read.rejected, None, "{:?}", String::from_utf8_lossy(input));
    let got: Vec<_> =
        read.requests.iter().map(|r| (r.0.as_str(), r.1.as_str(), r.2.as_str())).collect();
    assert_eq!(got, expected);
    read.requests.iter().map(|request| request.3).collect()
}
