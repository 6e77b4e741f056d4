//! The ids of a request: its own, which joins the logs, the script and the client, and its trace (W3C Trace Context).

use dunlin_http::Request;
use dunlin_telemetry::ScriptContext;
use dunlin_telemetry::ids::{acceptable_id, push_hex, random, random_id};

use dunlin_config::Script;

/// Returns the request id: the client's if the route accepts it and it is valid, otherwise a new one.
pub(super) fn request_id(request: &Request<'_>, rules: &Script) -> Box<str> {
    let accepted = rules
        .accept_request_id
        .then(|| field(request, "x-request-id").and_then(acceptable_id))
        .flatten();
    accepted.map_or_else(|| random_id().into(), Into::into)
}

/// Returns the `traceparent` for the script (§3.2): within the client's trace if there is one; otherwise the first span of a
/// trace whose id is the request's, if that can be one. If the server traces the request, its own span is the parent.
pub(super) fn traceparent(request: &Request<'_>, script_context: &ScriptContext) -> String {
    if let Some(parent) = &script_context.traceparent {
        return (**parent).into();
    }
    let id = script_context.id();
    let given = field(request, "traceparent").and_then(parent);
    let own = id.len() == 32 && id.bytes().all(is_lower_hex);
    let made = if given.is_none() && !own { random_id() } else { String::new() };
    let (trace, flags) = given.unwrap_or((if own { id } else { &made }, "01"));
    let mut text = String::with_capacity(55);
    text.push_str("00-");
    text.push_str(trace);
    text.push('-');
    push_hex(random(), &mut text);
    text.push('-');
    text.push_str(flags);
    text
}

/// Trace and flags of a `traceparent`. Later versions are read as far as this one goes (§4.3).
fn parent(value: &[u8]) -> Option<(&str, &str)> {
    let text = std::str::from_utf8(value).ok()?.trim_ascii();
    let mut parts = text.split('-');
    let mut hex = |length: usize| {
        let part = parts.next()?;
        (part.len() == length && part.bytes().all(is_lower_hex)).then_some(part)
    };
    let (version, trace, span, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
    let zero = |part: &str| part.bytes().all(|digit| digit == b'0');
    let more = parts.next().is_some();
    let bad = version == "ff" || version == "00" && more || zero(trace) || zero(span);
    (!bad).then_some((trace, flags))
}

fn is_lower_hex(digit: u8) -> bool {
    matches!(digit, b'0'..=b'9' | b'a'..=b'f')
}

fn field<'r>(request: &Request<'r>, wanted: &str) -> Option<&'r [u8]> {
    let mut fields = request.fields();
    fields.find(|(name, _)| name.eq_ignore_ascii_case(wanted.as_bytes())).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn only_a_traceparent_is_continued() {
        let good = [
            format!("00-{TRACE}-00f067aa0ba902b7-01"),
            format!("01-{TRACE}-00f067aa0ba902b7-01-more"),
        ];
        for text in good {
            assert_eq!(parent(text.as_bytes()), Some((TRACE, "01")), "{text}");
        }
        let bad = [
            String::new(),
            format!("00-{TRACE}-00f067aa0ba902b7"),
            format!("00-{TRACE}-00f067aa0ba902b7-01-more"),
            format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{TRACE}-00f067aa0ba902b7-1"),
        ];
        for text in bad {
            assert_eq!(parent(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_number_from_outside_is_short_and_plain() {
        assert_eq!(acceptable_id(b"a-1_B.:/+=@"), Some("a-1_B.:/+=@"));
        for bad in [&b""[..], b"a b", b"a\"", b"\xff", &[b'a'; 129]] {
            assert_eq!(acceptable_id(bad), None);
        }
        assert_ne!(random_id(), random_id());
        assert_eq!(random_id().len(), 32);
    }
}
