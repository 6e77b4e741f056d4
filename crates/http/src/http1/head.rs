//! Reading a request's head (RFC 9112 §2 to §5), to the letter: whatever could be read in two
//! ways is refused.

use memchr::memchr;

use super::{Limits, Refusal};
use crate::field::FieldName;
use crate::request::{Head, Span, Version};
use crate::semantics::token::token_length;
use crate::semantics::{Method, is_field_value};

/// Reads the head that begins `input` into `head` and returns its length with the empty line;
/// `None` when its end has not arrived.
///
/// # Errors
/// A [`Refusal`] as soon as a complete line is seen to be wrong, or a limit is passed.
pub(super) fn parse(
    input: &[u8],
    limits: &Limits,
    head: &mut Head,
) -> Result<Option<usize>, Refusal> {
    head.clear_line();
    let most = limits.head_size.min(usize::from(u16::MAX));
    let window = &input[..input.len().min(most)];

    let Some(line) = next_line(window, 0)? else {
        return too_long_or_incomplete(input, window, limits);
    };
    request_line(&window[..line.end], limits, head)?;

    let first = line.next;
    if head.len() <= limits.fields
        && let Some(length) = head.repeat_section(&window[first..], first)
    {
        return Ok(Some(first + length));
    }
    head.clear_fields();
    let mut start = first;
    loop {
        let Some(line) = next_line(window, start)? else {
            return if window.len() < input.len() || window.len() == most {
                Err(Refusal::new(431, "the head is larger than the limit"))
            } else {
                Ok(None)
            };
        };
        if line.end == start {
            head.keep_section(&window[first..line.next], first);
            return Ok(Some(line.next));
        }
        if head.len() >= limits.fields.min(Head::MOST_FIELDS) {
            return Err(Refusal::new(431, "there are more fields than the limit"));
        }
        field_line(window, start, line.end, head)?;
        start = line.next;
    }
}

struct Line {
    /// Where its text ends, before CR LF.
    end: usize,
    /// Where the next line begins.
    next: usize,
}

#[inline]
fn next_line(input: &[u8], start: usize) -> Result<Option<Line>, Refusal> {
    let Some(length) = memchr(b'\n', &input[start..]) else {
        return Ok(None);
    };
    let lf = start + length;
    if length == 0 || input[lf - 1] != b'\r' {
        return Err(Refusal::bad("a line ends without CR"));
    }
    Ok(Some(Line { end: lf - 1, next: lf + 1 }))
}

/// No line end yet: either more is to come, or the line has outgrown what it may be.
fn too_long_or_incomplete(
    input: &[u8],
    window: &[u8],
    limits: &Limits,
) -> Result<Option<usize>, Refusal> {
    if window.len() > limits.target_size + REST_OF_LINE || window.len() < input.len() {
        return Err(Refusal::new(414, "the request-target is larger than the limit"));
    }
    // What can never become a request line is refused at once: a client that speaks TLS, or
    // anything else, to this port.
    if window
        .iter()
        .take(REST_OF_LINE)
        .take_while(|&&b| b != b' ')
        .any(|&b| !b.is_ascii_graphic() && b != b'\r')
    {
        return Err(Refusal::bad("this is not HTTP"));
    }
    Ok(None)
}

/// A method and a version beside the target need no more bytes than this; these first ones are looked at
/// whenever more of them have come.
pub(super) const REST_OF_LINE: usize = 64;

/// `method SP request-target SP HTTP-version` (RFC 9112 §3).
#[inline]
fn request_line(line: &[u8], limits: &Limits, head: &mut Head) -> Result<(), Refusal> {
    let bad = Refusal::bad("the request line is malformed");
    let method_end = token_length(line);
    let method = &line[..method_end];
    if method.is_empty() || line.get(method_end) != Some(&b' ') {
        return Err(bad);
    }
    let target_start = method_end + 1;
    // The version is looked at first: a request line with a space in its target has two more.
    let version_start = line.len().checked_sub(8).filter(|&at| at > target_start).ok_or(bad)?;
    if line[version_start - 1] != b' ' {
        return Err(bad);
    }
    let target_end = version_start - 1;
    let target = &line[target_start..target_end];
    if target.is_empty() || target.contains(&b' ') {
        return Err(bad);
    }
    head.version = version(&line[version_start..])?;
    if target.len() > limits.target_size {
        return Err(Refusal::new(414, "the request-target is larger than the limit"));
    }
    head.method = Method::from_bytes(method);
    head.method_text = Span::new(0..method_end);
    head.target = Span::new(target_start..target_end);
    Ok(())
}

/// RFC 9112 §2.3; a minor version above 1 is served as 1.1 (RFC 9110 §6.2).
#[inline]
fn version(text: &[u8]) -> Result<Version, Refusal> {
    match text {
        b"HTTP/1.1" => Ok(Version::Http11),
        b"HTTP/1.0" => Ok(Version::Http10),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            if *major == b'1' {
                Ok(Version::Http11)
            } else {
                Err(Refusal::new(505, "the version is not 1.0 or 1.1"))
            }
        }
        _ => Err(Refusal::bad("the version is malformed")),
    }
}

/// `field-name ":" OWS field-value OWS` (RFC 9112 §5).
#[inline]
fn field_line(input: &[u8], start: usize, end: usize, head: &mut Head) -> Result<(), Refusal> {
    let line = &input[start..end];
    if matches!(line[0], b' ' | b'\t') {
        return Err(Refusal::bad("a field is folded over lines"));
    }
    let colon = token_length(line);
    let name = &line[..colon];
    if name.is_empty() || line.get(colon) != Some(&b':') {
        let has_colon = line.contains(&b':');
        let reason = if has_colon { "a field name is malformed" } else { "a field has no colon" };
        return Err(Refusal::bad(reason));
    }
    let (mut from, mut to) = (colon + 1, line.len());
    while from < to && matches!(line[from], b' ' | b'\t') {
        from += 1;
    }
    while to > from && matches!(line[to - 1], b' ' | b'\t') {
        to -= 1;
    }
    if !is_field_value(&line[from..to]) {
        return Err(Refusal::bad("a field value holds a control character"));
    }
    head.push(
        FieldName::from_bytes(name),
        Span::new(start..start + colon),
        Span::new(start + from..start + to),
    );
    Ok(())
}
