//! FastCGI records (FastCGI Specification 1.0). No I/O.

/// The version of records, and the one request id: a connection carries one request at a time.
const VERSION: u8 = 1;
const REQUEST: u16 = 1;

const BEGIN_REQUEST: u8 = 1;
const ABORT_REQUEST: u8 = 2;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

const HEADER: usize = 8;
/// Largest content of a record that the server writes: a multiple of 8 needs no padding.
const CONTENT: usize = 65_528;

/// Begins a request in the role of a responder (§5.1).
pub(super) fn begin(keep_alive: bool, output: &mut Vec<u8>) {
    const RESPONDER: u8 = 1;
    header(BEGIN_REQUEST, 8, output);
    output.extend_from_slice(&[0, RESPONDER, u8::from(keep_alive), 0, 0, 0, 0, 0]);
}

/// The variables and the end of their stream (§5.2). A variable may span records.
pub(super) fn params<'a>(
    variables: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    output: &mut Vec<u8>,
) {
    let start = output.len();
    // Nearly always one record holds them all; its header is filled in afterwards.
    output.extend_from_slice(&[0; HEADER]);
    for (name, value) in variables {
        length(name.len(), output);
        length(value.len(), output);
        output.extend_from_slice(name);
        output.extend_from_slice(value);
    }
    let size = output.len() - start - HEADER;
    if size == 0 {
        output.truncate(start);
    } else if size <= CONTENT {
        let mut first = Vec::with_capacity(HEADER);
        header(PARAMS, size, &mut first);
        output[start..start + HEADER].copy_from_slice(&first);
    } else {
        let all = output.split_off(start);
        stream(PARAMS, &all[HEADER..], output);
    }
    header(PARAMS, 0, output);
}

/// A part of the request's body (§5.3).
pub(super) fn stdin(bytes: &[u8], output: &mut Vec<u8>) {
    stream(STDIN, bytes, output);
}

/// The end of the request's body.
pub(super) fn end_stdin(output: &mut Vec<u8>) {
    header(STDIN, 0, output);
}

/// Aborts the request (§5.4).
pub(super) fn abort() -> Vec<u8> {
    let mut output = Vec::with_capacity(HEADER);
    header(ABORT_REQUEST, 0, &mut output);
    output
}

fn header(kind: u8, size: usize, output: &mut Vec<u8>) {
    let [id, low_id] = REQUEST.to_be_bytes();
    // The content is at most `CONTENT`.
    let [high, low] = u16::try_from(size).unwrap_or(u16::MAX).to_be_bytes();
    output.extend_from_slice(&[VERSION, kind, id, low_id, high, low, 0, 0]);
}

fn stream(kind: u8, bytes: &[u8], output: &mut Vec<u8>) {
    for part in bytes.chunks(CONTENT) {
        header(kind, part.len(), output);
        output.extend_from_slice(part);
    }
}

/// A length: one byte up to 127, four bytes above (§3.4).
fn length(length: usize, output: &mut Vec<u8>) {
    match u8::try_from(length) {
        Ok(short @ 0..=127) => output.push(short),
        _ => {
            let long = u32::try_from(length).unwrap_or(u32::MAX) | 1 << 31;
            output.extend_from_slice(&long.to_be_bytes());
        }
    }
}

/// An event in a worker's output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event<'a> {
    /// More input is needed.
    More,
    /// A part of the response.
    Stdout(&'a [u8]),
    /// A part of the standard error.
    Stderr(&'a [u8]),
    /// The request has ended.
    End(EndRequest),
}

/// The end of a request (§5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EndRequest {
    /// The exit status of the application.
    pub(super) status: i32,
    /// The worker has run the request, or why it rejected it.
    pub(super) protocol: ProtocolStatus,
}

/// A protocol status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProtocolStatus {
    Complete,
    /// It takes one request per connection.
    CannotMultiplex,
    /// It has no resources left.
    Overloaded,
    /// It does not implement the role of a responder.
    UnknownRole,
    /// Another number.
    Unknown,
}

/// Decodes a worker's records, however they are split.
#[derive(Debug, Default)]
pub(super) struct Reader {
    header: [u8; HEADER],
    /// Bytes of the header so far.
    have: usize,
    /// Content and padding of the record that are missing.
    content: usize,
    padding: usize,
    /// The content of END_REQUEST so far.
    end: [u8; 8],
    end_have: usize,
}

impl Reader {
    /// Decodes from the front of `bytes`; returns how many were used, and an event.
    ///
    /// # Errors
    /// A description of the malformed record.
    pub(super) fn take<'a>(&mut self, bytes: &'a [u8]) -> Result<(usize, Event<'a>), &'static str> {
        let mut at = 0;
        loop {
            if self.have < HEADER {
                let count = (HEADER - self.have).min(bytes.len() - at);
                self.header[self.have..self.have + count].copy_from_slice(&bytes[at..at + count]);
                self.have += count;
                at += count;
                if self.have < HEADER {
                    return Ok((at, Event::More));
                }
                self.begin_record()?;
            }
            let kind = self.header[1];
            if self.content > 0 {
                let count = self.content.min(bytes.len() - at);
                let part = &bytes[at..at + count];
                self.content -= count;
                at += count;
                match kind {
                    _ if count == 0 => return Ok((at, Event::More)),
                    _ if !self.is_of_request() => {}
                    STDOUT => return Ok((at, Event::Stdout(part))),
                    STDERR => return Ok((at, Event::Stderr(part))),
                    END_REQUEST => self.add_to_end(part),
                    // Other records are ignored (§3.5).
                    _ => {}
                }
                if self.content > 0 {
                    return Ok((at, Event::More));
                }
            }
            let count = self.padding.min(bytes.len() - at);
            self.padding -= count;
            at += count;
            if self.padding > 0 {
                return Ok((at, Event::More));
            }
            self.have = 0;
            if kind == END_REQUEST && self.is_of_request() {
                return Ok((at, Event::End(self.ended())));
            }
        }
    }

    /// Returns `true` if the last record is complete.
    pub(super) fn is_between_records(&self) -> bool {
        self.have == 0
    }

    fn begin_record(&mut self) -> Result<(), &'static str> {
        let [version, kind, _, _, high, low, padding, _] = self.header;
        if version != VERSION {
            return Err("its worker does not speak FastCGI 1");
        }
        self.content = usize::from(u16::from_be_bytes([high, low]));
        self.padding = usize::from(padding);
        self.end_have = 0;
        if kind == END_REQUEST && self.is_of_request() && self.content < self.end.len() {
            return Err("its worker's END_REQUEST is too short");
        }
        Ok(())
    }

    fn is_of_request(&self) -> bool {
        u16::from_be_bytes([self.header[2], self.header[3]]) == REQUEST
    }

    fn add_to_end(&mut self, part: &[u8]) {
        let count = part.len().min(self.end.len() - self.end_have);
        self.end[self.end_have..self.end_have + count].copy_from_slice(&part[..count]);
        self.end_have += count;
    }

    fn ended(&self) -> EndRequest {
        let [a, b, c, d, protocol, ..] = self.end;
        EndRequest {
            status: i32::from_be_bytes([a, b, c, d]),
            protocol: match protocol {
                0 => ProtocolStatus::Complete,
                1 => ProtocolStatus::CannotMultiplex,
                2 => ProtocolStatus::Overloaded,
                3 => ProtocolStatus::UnknownRole,
                _ => ProtocolStatus::Unknown,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(kind: u8, id: u16, content: &[u8], padding: u8, output: &mut Vec<u8>) {
        let [id, low_id] = id.to_be_bytes();
        let [high, low] = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
        output.extend_from_slice(&[VERSION, kind, id, low_id, high, low, padding, 0]);
        output.extend_from_slice(content);
        output.resize(output.len() + usize::from(padding), 0xAA);
    }

    #[derive(Debug, Default, PartialEq, Eq)]
    struct Read {
        stdout: Vec<u8>,
        stderr: Vec<u8>,
        ended: Vec<EndRequest>,
    }

    /// Reads `pieces` one after the other.
    fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Read, &'static str> {
        let mut reader = Reader::default();
        let mut read = Read::default();
        for piece in pieces {
            let mut at = 0;
            while at < piece.len() {
                let (used, event) = reader.take(&piece[at..])?;
                assert!(used > 0);
                at += used;
                match event {
                    Event::More => assert_eq!(at, piece.len()),
                    Event::Stdout(bytes) => read.stdout.extend_from_slice(bytes),
                    Event::Stderr(bytes) => read.stderr.extend_from_slice(bytes),
                    Event::End(ended) => {
                        assert!(reader.is_between_records());
                        read.ended.push(ended);
                    }
                }
            }
        }
        Ok(read)
    }

    /// Reads name-value pairs as a worker does.
    fn pairs(mut bytes: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let mut lengths = [0; 2];
            for length in &mut lengths {
                let size = if bytes[0] < 128 { 1 } else { 4 };
                *length = bytes[..size].iter().fold(0, |sum, &b| sum << 8 | usize::from(b));
                *length &= 0x7FFF_FFFF;
                bytes = &bytes[size..];
            }
            let (name, rest) = bytes.split_at(lengths[0]);
            let (value, rest) = rest.split_at(lengths[1]);
            found.push((name.to_vec(), value.to_vec()));
            bytes = rest;
        }
        found
    }

    /// Returns the content of a stream and whether it was ended.
    fn content(mut bytes: &[u8], kind: u8) -> (Vec<u8>, bool) {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            assert_eq!(bytes[..4], [VERSION, kind, 0, 1]);
            let size = usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
            let padding = usize::from(bytes[6]);
            all.extend_from_slice(&bytes[HEADER..HEADER + size]);
            bytes = &bytes[HEADER + size + padding..];
            if size == 0 {
                return (all, bytes.is_empty());
            }
        }
        (all, false)
    }

    #[test]
    fn records_of_other_requests_are_skipped_and_malformed_ones_rejected() {
        let mut bytes = Vec::new();
        record(STDOUT, 2, b"another's", 3, &mut bytes);
        record(10, 0, b"a management record", 0, &mut bytes);
        record(STDOUT, 1, b"mine", 0, &mut bytes);
        record(END_REQUEST, 1, &[0, 0, 0, 7, 2, 0, 0, 0], 8, &mut bytes);
        let read_all = read([&bytes[..]]).expect("records");
        assert_eq!(read_all.stdout, b"mine");
        assert_eq!(
            read_all.ended,
            [EndRequest { status: 7, protocol: ProtocolStatus::Overloaded }]
        );
        assert!(read([&b"HTTP/1.1 200 OK\r\n"[..]]).is_err());
        let mut short = Vec::new();
        record(END_REQUEST, 1, &[0; 7], 0, &mut short);
        assert!(read([&short[..]]).is_err());
    }

    proptest! {
        #[test]
        fn records_are_read_however_they_are_cut(
            parts in proptest::collection::vec(
                (
                    prop_oneof![Just(STDOUT), Just(STDERR)],
                    proptest::collection::vec(any::<u8>(), 0..300),
                    any::<u8>(),
                ),
                0..8,
            ),
            status in any::<i32>(),
            cut in 1_usize..40,
        ) {
            let mut bytes = Vec::new();
            let mut wanted = Read::default();
            for (kind, part, padding) in &parts {
                record(*kind, 1, part, *padding, &mut bytes);
                let stream = if *kind == STDOUT { &mut wanted.stdout } else { &mut wanted.stderr };
                stream.extend_from_slice(part);
            }
            let mut end = status.to_be_bytes().to_vec();
            end.extend_from_slice(&[0; 4]);
            record(END_REQUEST, 1, &end, 5, &mut bytes);
            wanted.ended.push(EndRequest { status, protocol: ProtocolStatus::Complete });
            prop_assert!(read(bytes.chunks(cut)).is_ok_and(|all| all == wanted));
            prop_assert!(read(bytes.chunks(1)).is_ok_and(|all| all == wanted));
            prop_assert!(read([&bytes[..]]).is_ok_and(|all| all == wanted));
        }

        #[test]
        fn variables_of_any_length_arrive(
            sizes in proptest::collection::vec(
                (1_usize..300, prop_oneof![0_usize..300, 60_000_usize..140_000]), 0..5,
            ),
        ) {
            let list: Vec<_> =
                sizes.iter().map(|&(name, value)| (vec![b'N'; name], vec![b'v'; value])).collect();
            let mut output = Vec::new();
            params(list.iter().map(|(name, value)| (&name[..], &value[..])), &mut output);
            let (all, ended) = content(&output, PARAMS);
            prop_assert!(ended);
            prop_assert_eq!(pairs(&all), list);
        }

        #[test]
        fn a_body_arrives_in_records(size in 0_usize..200_000) {
            let body: Vec<u8> = (0..size).map(|at| at as u8).collect();
            let mut output = Vec::new();
            stdin(&body, &mut output);
            end_stdin(&mut output);
            prop_assert_eq!(content(&output, STDIN), (body, true));
        }

        #[test]
        fn any_output_of_a_worker_is_read_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = read(bytes.chunks(7));
        }
    }
}
