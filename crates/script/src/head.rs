//! The header of a script's response (RFC 3875 §6).

use dunlin_exchange::{Named, is_instruction};
use dunlin_http::FieldLines;
use dunlin_http::semantics::{is_field_value, is_token};

use super::stderr::printable;

/// Largest header that is accepted.
pub(super) const MAX: usize = 64 * 1024;

/// A script's header.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ScriptHead {
    pub(super) status: Option<u16>,
    pub(super) location: Option<Vec<u8>>,
    pub(super) content_length: Option<u64>,
    /// The resource to send in place of the body.
    pub(super) named: Option<Named>,
    /// The fields for the client; Location too, if it is for the client.
    pub fields: FieldLines,
    /// Why the script failed, as the run-time environment or the application server reports it; empty without a reason.
    pub(super) failed: Option<String>,
    /// The application server reports that the application has accepted a WebSocket.
    pub(super) switches: bool,
    /// The body is sent in the chunked transfer coding.
    pub(super) is_chunked: bool,
    /// The status comes from a status line.
    has_status_line: bool,
    /// There is another field than Location and Content-Type.
    others: bool,
    /// Names in `Connection`: fields of the connection, which are not forwarded (RFC 9110 §7.6.1).
    connection_options: Vec<String>,
}

/// Parses the header at the front of `bytes`; returns it with its length, or `None` if it is incomplete. Lines end in
/// CR LF or LF. A status line may come first, as uWSGI and some CGI programs send it.
///
/// # Errors
/// Returns the fault of the head, in a few words.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(ScriptHead, usize)>, String> {
    let mut head = ScriptHead::default();
    let mut at = 0;
    let mut lines = 0;
    loop {
        let Some(end) = memchr::memchr(b'\n', &bytes[at..]) else {
            return match bytes.len() {
                ..MAX => Ok(None),
                _ => Err(format!("its header has more than {MAX} bytes")),
            };
        };
        let line = &bytes[at..at + end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        at += end + 1;
        if at > MAX {
            return Err(format!("its header has more than {MAX} bytes"));
        }
        if line.is_empty() {
            return match lines {
                0 => Err("its header has no field".into()),
                _ => {
                    for name in std::mem::take(&mut head.connection_options) {
                        head.fields.remove(&name);
                    }
                    Ok(Some((head, at)))
                }
            };
        }
        match lines {
            0 if line.starts_with(b"HTTP/") => head.status_line(line)?,
            _ => head.line(line)?,
        }
        lines += 1;
    }
}

impl ScriptHead {
    /// Returns the target of a local redirect (RFC 3875 §6.2.2): a Location that is a path, without fields for the client.
    pub(super) fn local_redirect(&self) -> Option<&[u8]> {
        let location = self.location.as_deref()?;
        let local = location.starts_with(b"/") && !location.starts_with(b"//");
        let plain = self.status.is_none() && !self.others && !location.contains(&b'#');
        (local && plain).then_some(location)
    }

    /// Returns the status of the response.
    pub(super) fn status(&self) -> u16 {
        self.status.unwrap_or(if self.location.is_some() { 302 } else { 200 })
    }

    /// Returns `true` if the header and the body that follows can be sent without processing.
    pub(super) fn is_plain(&self) -> bool {
        let is_special = self.failed.is_some()
            || self.named.is_some()
            || self.is_chunked
            || self.is_early_hints();
        !is_special && self.local_redirect().is_none()
    }

    /// Returns `true` if these are Early Hints (RFC 8297).
    pub(super) fn is_early_hints(&self) -> bool {
        self.status == Some(EARLY_HINTS)
    }

    /// Returns the first line of an HTTP message (RFC 9112 §4). It takes precedence over a Status field.
    fn status_line(&mut self, line: &[u8]) -> Result<(), String> {
        let status =
            status_line(line).and_then(|status| self::status(status.to_string().as_bytes()));
        self.status =
            Some(status.ok_or_else(|| format!("its status line is malformed: {}", shown(line)))?);
        self.has_status_line = true;
        self.others = true;
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        let malformed = || format!("a line of its header is not a field: {}", shown(line));
        let colon = memchr::memchr(b':', line).ok_or_else(malformed)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if !is_token(name) || !is_field_value(value) {
            return Err(malformed());
        }
        let mut lower = [0; LONGEST];
        // A longer name matches none of those below.
        let lower = lower.get_mut(..name.len()).unwrap_or_default();
        lower.copy_from_slice(&name[..lower.len()]);
        lower.make_ascii_lowercase();
        match &*lower {
            b"status" => {
                if self.has_status_line {
                    return Ok(());
                }
                if self.status.is_some() {
                    return Err("its header has more than one Status".into());
                }
                self.status = Some(status(value).ok_or_else(|| {
                    format!("its Status is neither 103 nor from 200 to 599: {}", shown(value))
                })?);
                self.others = true;
                return Ok(());
            }
            b"location" => {
                if self.location.replace(value.to_vec()).is_some() {
                    return Err("its header has more than one Location".into());
                }
            }
            b"content-length" => {
                let length = std::str::from_utf8(value).ok();
                let digits = value.iter().all(u8::is_ascii_digit);
                let length = length.and_then(|text| text.parse().ok()).filter(|_| digits);
                let length =
                    length.ok_or_else(|| format!("its Content-Length is {}", shown(value)))?;
                if self.content_length.replace(length).is_some_and(|other| other != length) {
                    return Err("its header has two Content-Lengths".into());
                }
                self.others = true;
                return Ok(());
            }
            b"content-type" => {
                if self.fields.get("Content-Type").is_some() {
                    return Err("its header has more than one Content-Type".into());
                }
            }
            b"dunlin-failed" => {
                self.failed = Some(match value {
                    b"1" => String::new(),
                    reason => printable(&reason[..reason.len().min(MAX_REASON)]),
                });
                return Ok(());
            }
            b"dunlin-switch" => {
                self.switches = true;
                return Ok(());
            }
            b"transfer-encoding" => {
                if self.is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return Err(format!("its Transfer-Encoding is {}", shown(value)));
                }
                self.is_chunked = true;
                self.others = true;
                return Ok(());
            }
            b"connection" => {
                let options = String::from_utf8_lossy(value);
                self.connection_options
                    .extend(options.split(',').map(|name| name.trim().to_owned()));
                return Ok(());
            }
            // The server sets the fields of the connection and the date itself.
            b"keep-alive" | b"proxy-connection" | b"te" | b"trailer" | b"upgrade" | b"date"
            | b"server" => return Ok(()),
            _ => self.others = true,
        }
        if let Some(named) = Named::of_field(name, value) {
            return match self.named.replace(named) {
                None => Ok(()),
                Some(_) => Err(TWO_NAMED.into()),
            };
        }
        if is_instruction(name) {
            return Ok(());
        }
        if let Ok(name) = std::str::from_utf8(name) {
            self.fields.push(name, value);
        }
        Ok(())
    }
}

const TWO_NAMED: &str = "its header has more than one X-Accel-Redirect or X-Sendfile field";
/// Length of the longest name that is compared.
const LONGEST: usize = 17;
const EARLY_HINTS: u16 = 103;
/// Bytes of the reason of a failure that are kept.
const MAX_REASON: usize = 512;

/// Returns the status of a status line: `HTTP/1.1 NNN reason`, where the reason and the space before it may be missing.
pub(super) fn status_line(line: &[u8]) -> Option<u16> {
    let rest = line.strip_prefix(b"HTTP/")?;
    let (version, rest) = rest.split_at_checked(3)?;
    let &[major, b'.', minor] = version else { return None };
    let is_version = major.is_ascii_digit() && minor.is_ascii_digit();
    let status = rest.strip_prefix(b" ").filter(|_| is_version)?;
    let reason = status.get(3..)?;
    if !(reason.is_empty() || reason[0] == b' ' && is_field_value(reason)) {
        return None;
    }
    let digits = status[..3].iter().all(u8::is_ascii_digit).then_some(&status[..3])?;
    Some(digits.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0')))
}

/// `NNN` or `NNN reason`.
fn status(value: &[u8]) -> Option<u16> {
    let digits = value.get(..3).filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    if !matches!(value.get(3), None | Some(b' ' | b'\t')) {
        return None;
    }
    let number = digits.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    (number == EARLY_HINTS || (200..600).contains(&number)).then_some(number)
}

fn shown(bytes: &[u8]) -> String {
    let text = printable(&bytes[..bytes.len().min(80)]);
    format!("{text:?}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> (ScriptHead, usize) {
        parse(text.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn both_line_ends_are_accepted_and_fields_of_the_server_dropped() {
        let text = "Content-Type: text/plain\r\nX-A:1\nX-Hop: 1\nConnection: close, x-hop\nStatus: 404 None\r\n\nbody";
        let (head, length) = read(text);
        assert_eq!(&text[length..], "body");
        assert_eq!(head.status(), 404);
        assert_eq!(head.fields.as_bytes(), b"Content-Type: text/plain\r\nX-A: 1\r\n");
    }

    #[test]
    fn a_status_line_gives_the_status() {
        for (text, status) in [
            ("HTTP/1.1 200 OK\r\nA: b\r\n\r\n", 200),
            ("HTTP/1.0 404 Not Found\n\n", 404),
            ("HTTP/1.1 204\r\n\r\n", 204),
            ("HTTP/1.1 301 \r\nLocation: /a\r\n\r\n", 301),
            ("HTTP/1.1 500 Error\nStatus: 200\n\n", 500),
        ] {
            let (head, length) = read(text);
            assert_eq!((head.status(), length), (status, text.len()), "{text:?}");
            assert_eq!(head.local_redirect(), None, "{text:?}");
            assert!(head.is_plain());
        }
    }

    #[test]
    fn only_a_location_without_a_status_is_local() {
        assert_eq!(read("Location: /a?b\n\n").0.local_redirect(), Some(&b"/a?b"[..]));
        assert_eq!(
            read("Location: /a\nContent-Type: text/html\n\n").0.local_redirect(),
            Some(&b"/a"[..])
        );
        for client in [
            "Location: http://a/\n\n",
            "Location: //a/\n\n",
            "Location: /a#b\n\n",
            "Location: /a\nSet-Cookie: a=b\n\n",
            "Location: /a\nStatus: 302 Found\n\n",
        ] {
            assert_eq!(read(client).0.local_redirect(), None, "{client}");
        }
        assert_eq!(read("Location: http://a/\n\n").0.status(), 302);
        assert_eq!(read("Location: /a\nStatus: 201 Made\n\n").0.status(), 201);
    }

    #[test]
    fn malformed_heads_are_rejected_with_a_reason() {
        for text in [
            "\n",
            "hello\n\n",
            "Content-Type : a/b\n\n",
            " folded: a\n\n",
            "A: b\n c\n\n",
            "A: b\rC: d\n\n",
            "A: b\0\n\n",
            "Status: 99\n\n",
            "Status: 100 Continue\n\n",
            "Status: 2000\n\n",
            "Status: 200\nStatus: 200\n\n",
            "Content-Length: +1\n\n",
            "Content-Length: \n\n",
            "Content-Length: 1\nContent-Length: 2\n\n",
            "Transfer-Encoding: gzip, chunked\n\n",
            "Transfer-Encoding: chunked\nTransfer-Encoding: chunked\n\n",
            "HTTP/1.1\n\n",
            "HTTP/1.1 \n\n",
            "HTTP/1.1 20\n\n",
            "HTTP/1.1 2000\n\n",
            "HTTP/1.1 200OK\n\n",
            "HTTP/1.1  200 OK\n\n",
            "HTTP/1.1 100 Continue\n\n",
            "HTTP/1.1 099 Low\n\n",
            "HTTP/1.1 600 High\n\n",
            "HTTP/x.1 200 OK\n\n",
            "HTTP/1.1 200 O\0K\n\n",
            "HTTP/2 200\n\n",
            "http/1.1 200 OK\n\n",
            "A: b\nHTTP/1.1 200 OK\n\n",
            "HTTP/1.1 200 OK\nHTTP/1.1 200 OK\n\n",
            "X-Sendfile: /a\nX-Accel-Redirect: /a\n\n",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text:?}");
        }
        assert!(parse(&vec![b'a'; MAX]).is_err());
        assert_eq!(parse(b"A: b\r\n\r"), Ok(None));
    }

    proptest! {
        #[test]
        fn whatever_a_script_writes_no_line_of_its_own_reaches_the_client(
            bytes in proptest::collection::vec(
                prop_oneof![Just(b'\n'), Just(b'\r'), Just(b':'), Just(b' '), Just(b'a'), any::<u8>()],
                0..60,
            ),
        ) {
            if let Ok(Some((head, length))) = parse(&bytes) {
                prop_assert!(length <= bytes.len());
                let text = head.fields.as_bytes();
                let ends = memchr::memmem::find_iter(text, b"\r\n").count();
                prop_assert_eq!(ends, head.fields.iter().count());
                prop_assert_eq!(text.iter().filter(|&&b| b == b'\n' || b == b'\r').count(), 2 * ends);
            }
        }
    }
}
