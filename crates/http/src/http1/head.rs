//! Parser of a request's head (RFC 9112 §2 to §5). It is strict: a head that two parsers could read differently is an error.

use memchr::memchr;

use crate::field::FieldName;
use crate::request::{Head, Span, Version};
use crate::semantics::token::token_length;
use crate::semantics::{Method, is_field_value};
use crate::{Limits, RequestError};

/// Parses the head at the start of `input` into `head`. Returns its length with the empty line, or `None` if it is
/// incomplete.
///
/// # Errors
/// A complete line is malformed, or a limit is exceeded.
pub(super) fn parse(
    input: &[u8],
    limits: &Limits,
    head: &mut Head,
) -> Result<Option<usize>, RequestError> {
    head.clear_line();
    let max = limits.head_size.min(usize::from(u16::MAX));
    let window = &input[..input.len().min(max)];

    let Some(line) = next_line(window, 0, limits)? else {
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
        let Some(line) = next_line(window, start, limits)? else {
            return if window.len() < input.len() || window.len() == max {
                Err(RequestError::new(431, "the head is larger than the limit"))
            } else {
                Ok(None)
            };
        };
        if line.end == start {
            head.store_section(&window[first..line.next], first);
            return Ok(Some(line.next));
        }
        if head.len() >= limits.fields.min(Head::MAX_FIELDS) {
            return Err(RequestError::new(431, "there are more fields than the limit"));
        }
        field_line(window, start, line.end, head)?;
        start = line.next;
    }
}

struct Line {
    /// Offset of its CR LF, or of its LF.
    end: usize,
    /// Offset of the next line.
    next: usize,
}

#[inline]
fn next_line(input: &[u8], start: usize, limits: &Limits) -> Result<Option<Line>, RequestError> {
    let Some(length) = memchr(b'\n', &input[start..]) else {
        return Ok(None);
    };
    let lf = start + length;
    if length == 0 || input[lf - 1] != b'\r' {
        return match limits.bare_lf {
            true => Ok(Some(Line { end: lf, next: lf + 1 })),
            false => Err(RequestError::bad("a line ends without CR")),
        };
    }
    Ok(Some(Line { end: lf - 1, next: lf + 1 }))
}

/// Returns the result for a request line without an end: incomplete, too long, or not HTTP.
fn too_long_or_incomplete(
    input: &[u8],
    window: &[u8],
    limits: &Limits,
) -> Result<Option<usize>, RequestError> {
    if window.len() > limits.target_size + REST_OF_LINE || window.len() < input.len() {
        return Err(RequestError::new(414, "the request-target is larger than the limit"));
    }
    // Reject at once what cannot become a request line, such as a TLS handshake.
    if window
        .iter()
        .take(REST_OF_LINE)
        .take_while(|&&b| b != b' ')
        .any(|&b| !b.is_ascii_graphic() && b != b'\r')
    {
        return Err(RequestError::bad("this is not HTTP"));
    }
    Ok(None)
}

/// Bytes that suffice for a request line beside its target. The first bytes of a head are parsed again up to this length
/// whenever more arrive.
pub(super) const REST_OF_LINE: usize = 64;

/// `method SP request-target SP HTTP-version` (RFC 9112 §3).
#[inline]
fn request_line(line: &[u8], limits: &Limits, head: &mut Head) -> Result<(), RequestError> {
    let bad = RequestError::bad("the request line is malformed");
    let method_end = token_length(line);
    let method = &line[..method_end];
    if method.is_empty() || line.get(method_end) != Some(&b' ') {
        return Err(bad);
    }
    let target_start = method_end + 1;
    // Parse the version first: a target with a space would shift it.
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
        return Err(RequestError::new(414, "the request-target is larger than the limit"));
    }
    head.method = Method::from_bytes(method);
    head.method_text = Span::new(0..method_end);
    head.target = Span::new(target_start..target_end);
    Ok(())
}

/// Parses the version (RFC 9112 §2.3). A minor version above 1 is treated as 1.1 (RFC 9110 §6.2).
#[inline]
fn version(text: &[u8]) -> Result<Version, RequestError> {
    match text {
        b"HTTP/1.1" => Ok(Version::Http11),
        b"HTTP/1.0" => Ok(Version::Http10),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            if *major == b'1' {
                Ok(Version::Http11)
            } else {
                Err(RequestError::new(505, "the version is not 1.0 or 1.1"))
            }
        }
        _ => Err(RequestError::bad("the version is malformed")),
    }
}

/// `field-name ":" OWS field-value OWS` (RFC 9112 §5).
#[inline]
fn field_line(input: &[u8], start: usize, end: usize, head: &mut Head) -> Result<(), RequestError> {
    let line = &input[start..end];
    if matches!(line[0], b' ' | b'\t') {
        return Err(RequestError::bad("a field has obsolete line folding"));
    }
    let colon = token_length(line);
    let name = &line[..colon];
    if name.is_empty() || line.get(colon) != Some(&b':') {
        let has_colon = line.contains(&b':');
        let reason = if has_colon { "a field name is malformed" } else { "a field has no colon" };
        return Err(RequestError::bad(reason));
    }
    let (mut from, mut to) = (colon + 1, line.len());
    while from < to && matches!(line[from], b' ' | b'\t') {
        from += 1;
    }
    while to > from && matches!(line[to - 1], b' ' | b'\t') {
        to -= 1;
    }
    if !is_field_value(&line[from..to]) {
        return Err(RequestError::bad("a field value contains a control character"));
    }
    head.push(
        FieldName::from_bytes(name),
        Span::new(start..start + colon),
        Span::new(start + from..start + to),
    );
    Ok(())
}
