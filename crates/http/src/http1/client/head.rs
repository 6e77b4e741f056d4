//! Reading the head of a response (RFC 9112 §4, §5).
//!
//! The grammar is followed to the letter, apart from what the RFC lets a client accept: a line may end with LF alone
//! (§2.2), the space behind a status code may be missing when there is no reason phrase, and a folded field value is
//! joined (§5.2).

use super::MalformedResponse;
use super::framing::FramingFields;
use crate::field_lines::ReadLines;
use crate::message::ResponseHead;
use crate::request::Version;
use crate::semantics::bytes::{find, find_control};
use crate::semantics::token::token_length;
use crate::semantics::{is_field_value, is_token};

/// Returns the length of the head that begins `input`, with the empty line; `None` if its end has not arrived. The first
/// `scanned` bytes are known to hold no end; the function advances it.
///
/// # Errors
/// If `input` does not begin like a response of HTTP/1.
pub(super) fn length(
    input: &[u8],
    scanned: &mut usize,
) -> Result<Option<usize>, MalformedResponse> {
    check_start(input)?;
    // Each pass looks at a line end and what follows it.
    let mut at = *scanned;
    while let Some(found) = find(b'\n', &input[at..]) {
        let next = at + found + 1;
        match &input[next..] {
            [b'\n', ..] => return Ok(Some(next + 1)),
            [b'\r', b'\n', ..] => return Ok(Some(next + 2)),
            [] | [b'\r'] => {
                *scanned = at + found;
                return Ok(None);
            }
            _ => at = next,
        }
    }
    *scanned = input.len();
    Ok(None)
}

fn check_start(input: &[u8]) -> Result<(), MalformedResponse> {
    const START: &[u8] = b"HTTP/1.";
    let seen = input.len().min(START.len());
    let is_http1 = input[..seen] == START[..seen];
    is_http1.then_some(()).ok_or(MalformedResponse("the response is not HTTP/1"))
}

/// A head, and the framing that its fields state, which matters for a final response only.
pub(super) type Parsed = (ResponseHead, Result<FramingFields, MalformedResponse>);

/// Reads a head from the front of `input`. Returns it with its length, the empty line included; `None` if its end has not arrived.
///
/// # Errors
/// If the head, or what has arrived of it, is malformed.
pub(super) fn parse(input: &[u8]) -> Result<Option<(usize, Parsed)>, MalformedResponse> {
    parse_with(stored_line, input)
}

/// As [`parse`]. `stored` gives the offsets of the colon and of the end of a line that begins a text, if the line is stored as it is.
#[inline]
fn parse_with(
    stored: impl Fn(&[u8]) -> Option<(usize, usize)>,
    input: &[u8],
) -> Result<Option<(usize, Parsed)>, MalformedResponse> {
    check_start(input)?;
    let mut lines = Lines { input, at: 0 };
    let Some(line) = lines.next() else { return Ok(None) };
    let (status, version) = status_line(line)?;
    let mut fields = ReadLines::of(input);
    let mut framing = FramingFields::default();
    let mut is_framed = Ok(());
    let mut has_folded = false;
    loop {
        let rest = &input[lines.at..];
        if let Some((colon, next)) = stored(rest) {
            let (name, value) = (&rest[..colon], &rest[colon + 2..next - 2]);
            is_framed = is_framed.and_then(|()| framing.add(name, value));
            fields.push_line(lines.at..lines.at + next, lines.at + colon);
            lines.at += next;
            continue;
        }
        if let Some((name, value, next)) = field_line(rest) {
            is_framed = is_framed.and_then(|()| framing.add(name, value));
            fields.copied().push_parsed(name, value);
            lines.at += next;
            continue;
        }
        let Some(line) = lines.next() else { return Ok(None) };
        match line.first() {
            None => break,
            Some(b' ' | b'\t') if fields.is_empty() => {
                return Err(MalformedResponse("the first field is folded"));
            }
            Some(b' ' | b'\t') => {
                let more = checked_value(line.trim_ascii())?;
                fields.copied().extend_last_value(b" ");
                fields.copied().extend_last_value(more);
                has_folded = true;
            }
            Some(_) => return Err(malformed_field(line)),
        }
    }
    let fields = fields.finish();
    if has_folded {
        framing = FramingFields::default();
        is_framed = fields.iter().try_for_each(|(name, value)| framing.add(name, value));
    }
    let head = ResponseHead { status, version, fields };
    Ok(Some((lines.at, (head, is_framed.map(|()| framing)))))
}

/// The lines of a head.
struct Lines<'a> {
    input: &'a [u8],
    at: usize,
}

impl<'a> Lines<'a> {
    /// Returns the next line without its end, if that has arrived.
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = &self.input[self.at..];
        let end = find(b'\n', rest)?;
        self.at += end + 1;
        Some(without_cr(&rest[..end]))
    }
}

/// Returns the offsets of the colon and of the end of the line that begins `rest`, if it is well-formed and exactly as
/// [`FieldLines`](crate::FieldLines) store it.
#[inline]
fn stored_line(rest: &[u8]) -> Option<(usize, usize)> {
    let colon = token_length(rest);
    let [b':', b' ', value @ ..] = &rest[colon..] else { return None };
    let end = find_control(value)?;
    let [b'\r', b'\n', ..] = &value[end..] else { return None };
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let is_padded = is_blank(value.first()) || end > 0 && is_blank(value.get(end - 1));
    (colon > 0 && !is_padded).then_some((colon, colon + 2 + end + 2))
}

/// Returns name and value of the well-formed field that begins `rest`, and the length of its line.
#[inline]
fn field_line(rest: &[u8]) -> Option<(&[u8], &[u8], usize)> {
    if matches!(rest.first(), None | Some(b'\r' | b'\n' | b' ' | b'\t')) {
        return None;
    }
    // A name has no line feed, so that the line cannot end before its colon.
    let colon = find(b':', rest)?;
    let name = &rest[..colon];
    let value = &rest[colon + 1..];
    if !is_token(name) {
        return None;
    }
    let end = find(b'\n', value)?;
    let value = without_cr(&value[..end]).trim_ascii();
    is_field_value(value).then_some((name, value, colon + end + 2))
}

/// Returns what is wrong with a line that is no field.
fn malformed_field(line: &[u8]) -> MalformedResponse {
    let Some(colon) = find(b':', line) else {
        return MalformedResponse("a field has no colon");
    };
    match is_token(&line[..colon]) {
        false => MalformedResponse("a field name is malformed"),
        true => MalformedResponse("a field value has a control character"),
    }
}

fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn checked_value(value: &[u8]) -> Result<&[u8], MalformedResponse> {
    let control = MalformedResponse("a field value has a control character");
    if is_field_value(value) { Ok(value) } else { Err(control) }
}

/// `HTTP-version SP status-code SP [ reason-phrase ]` (RFC 9112 §4).
fn status_line(line: &[u8]) -> Result<(u16, Version), MalformedResponse> {
    let malformed = MalformedResponse("the status line is malformed");
    let [
        b'H',
        b'T',
        b'T',
        b'P',
        b'/',
        b'1',
        b'.',
        minor @ b'0'..=b'9',
        b' ',
        a @ b'1'..=b'9',
        b @ b'0'..=b'9',
        c @ b'0'..=b'9',
        rest @ ..,
    ] = line
    else {
        return Err(malformed);
    };
    if !matches!(rest.first(), None | Some(b' ')) || !is_field_value(rest) {
        return Err(malformed);
    }
    let digit = |byte: &u8| u16::from(byte - b'0');
    let version = if *minor == b'0' { Version::Http10 } else { Version::Http11 };
    Ok((digit(a) * 100 + digit(b) * 10 + digit(c), version))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Heads of parts that well-formed and malformed lines have.
    fn heads() -> impl Strategy<Value = Vec<u8>> {
        let parts = [
            &b"A: b\r\n"[..],
            b"Content-Length: 12\r\n",
            b"content-length: 7\r\n",
            b"Connection: close\r\n",
            b"A:b\r\n",
            b"A: \r\n",
            b"A:\r\n",
            b"A",
            b":",
            b" ",
            b"\t",
            b"\r",
            b"\n",
            b"\r\n",
            b"\x0c",
            b"\x7f",
            b"\xff",
            b"a long value of words",
        ];
        let parts = prop::collection::vec(prop::sample::select(parts.to_vec()), 0..8);
        parts.prop_map(|parts| [b"HTTP/1.1 200 OK\r\n", &*parts.concat(), b"\r\n"].concat())
    }

    proptest! {
        #[test]
        fn lines_that_are_copied_together_are_read_as_others(head in heads()) {
            let whole = parse(&head);
            let general = parse_with(|_| None, &head);
            prop_assert_eq!(format!("{whole:?}"), format!("{general:?}"));
        }
    }

    #[test]
    fn the_end_of_a_head_is_found_however_it_arrives() {
        for head in [
            &b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\nA: b\n\n",
            b"HTTP/1.1 200\r\n\r\n",
        ] {
            let mut scanned = 0;
            for end in 0..head.len() {
                assert_eq!(length(&head[..end], &mut scanned), Ok(None), "{end}");
            }
            assert_eq!(length(head, &mut scanned), Ok(Some(head.len())));
            let mut more = head.to_vec();
            more.extend_from_slice(b"\r\n\r\n");
            assert_eq!(length(&more, &mut 0), Ok(Some(head.len())));
        }
        assert!(length(b"SSH-2", &mut 0).is_err());
        assert!(length(b"HTTP/2", &mut 0).is_err());
    }

    #[test]
    fn fields_are_read_and_folded_values_joined() {
        let text = b"HTTP/1.0 404 Not Found\r\nA:  b \r\nC:\r\nD: e\r\n\t f \r\nA: g\r\n\r\n";
        let (length, (head, _)) = parse(text).unwrap().unwrap();
        assert_eq!(length, text.len());
        for end in 0..text.len() {
            assert_eq!(parse(&text[..end]).map(|parsed| parsed.is_some()), Ok(false), "{end}");
        }
        assert_eq!((head.status, head.version), (404, Version::Http10));
        assert_eq!(head.fields.as_bytes(), b"A: b\r\nC: \r\nD: e f\r\nA: g\r\n");
    }

    #[test]
    fn malformed_heads_are_rejected() {
        for head in [
            &b"HTTP/1.1 20 OK\r\n\r\n"[..],
            b"HTTP/1.1 2000 OK\r\n\r\n",
            b"HTTP/1.1  200 OK\r\n\r\n",
            b"HTTP/1.1 099 OK\r\n\r\n",
            b"HTTP/1.1 200OK\r\n\r\n",
            b"HTTP/1.1 200 O\rK\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n A: b\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nA b\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nA B: c\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n: b\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nA: b\0\r\n\r\n",
        ] {
            assert!(parse(head).is_err(), "{}", head.escape_ascii());
        }
    }
}
