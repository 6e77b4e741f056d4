//! Formats of the access log.

use dunlin_config::AccessLogFormat;
use dunlin_http::semantics::address;
use dunlin_net::address::{Peer, UNIX};

use super::{AccessRecord, ScriptContext, TimeCache};
use super::{escape, template};

/// Appends one line, with its line feed, to `out`.
pub(crate) fn write_line(
    format: &AccessLogFormat,
    record: &AccessRecord<'_>,
    time: &mut TimeCache,
    out: &mut Vec<u8>,
) {
    match format {
        AccessLogFormat::Common => write_common(record, time, out),
        AccessLogFormat::Combined => {
            write_common(record, time, out);
            out.extend_from_slice(b" \"");
            quoted_or_dash(record.referer, out);
            out.extend_from_slice(b"\" \"");
            quoted_or_dash(record.user_agent, out);
            out.push(b'"');
        }
        AccessLogFormat::Json => write_json(record, time, out),
        AccessLogFormat::Template(line) => template::write(line, record, time, out),
    }
    out.push(b'\n');
}

fn write_common(record: &AccessRecord<'_>, time: &mut TimeCache, out: &mut Vec<u8>) {
    match record.peer_name {
        Some(name) => bare_or_dash(Some(name.as_bytes()), out),
        None => address(record.peer, out),
    }
    out.extend_from_slice(b" - ");
    bare_or_dash(record.user, out);
    out.extend_from_slice(b" [");
    out.extend_from_slice(time.clf(record.started_secs));
    out.extend_from_slice(b"] \"");
    request_line(record, out);
    out.extend_from_slice(b"\" ");
    number(record.status, out);
    out.push(b' ');
    number(record.body_bytes, out);
}

/// Writes the request line, or `-` if the request could not be parsed.
///
/// A space in the method or target is escaped, so that the line always has three parts.
fn request_line(record: &AccessRecord<'_>, out: &mut Vec<u8>) {
    if record.method.is_empty() && record.target.is_empty() {
        out.push(b'-');
        return;
    }
    bare_or_dash(Some(record.method), out);
    out.push(b' ');
    bare_or_dash(Some(record.target), out);
    out.push(b' ');
    out.extend_from_slice(record.version.as_bytes());
}

fn write_json(record: &AccessRecord<'_>, time: &mut TimeCache, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"time\":\"");
    time_iso(record, time, out);
    out.extend_from_slice(b"\",\"remote\":\"");
    address(record.peer, out);
    out.push(b'"');
    json_member(b",\"remote_name\":", record.peer_name.map(str::as_bytes), out);
    json_member(b",\"user\":", record.user, out);
    json_member(b",\"method\":", non_empty(record.method), out);
    json_member(b",\"target\":", non_empty(record.target), out);
    out.extend_from_slice(b",\"protocol\":\"");
    out.extend_from_slice(record.version.as_bytes());
    out.extend_from_slice(b"\",\"status\":");
    number(record.status, out);
    out.extend_from_slice(b",\"bytes\":");
    number(record.body_bytes, out);
    if let Some(bytes) = record.plain_bytes {
        out.extend_from_slice(b",\"plain_bytes\":");
        number(bytes, out);
    }
    if let Some(received) = record.tunnel_received {
        out.extend_from_slice(b",\"received\":");
        number(received, out);
    }
    json_member(b",\"referer\":", record.referer, out);
    json_member(b",\"user_agent\":", record.user_agent, out);
    json_member(b",\"host\":", record.host, out);
    out.extend_from_slice(b",\"duration_us\":");
    number(record.duration_ns / 1_000, out);
    out.extend_from_slice(b",\"connection\":");
    number(record.connection, out);
    json_member(b",\"site\":", Some(record.site.as_bytes()), out);
    out.extend_from_slice(b",\"cache\":\"");
    out.extend_from_slice(record.cache.as_bytes());
    out.extend_from_slice(b"\",\"coding\":\"");
    out.extend_from_slice(record.coding.as_bytes());
    out.extend_from_slice(b"\",\"phases\":{");
    for (at, (name, micros)) in record.timings.iter().enumerate() {
        out.extend_from_slice(if at == 0 { b"\"" } else { b",\"" });
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"_us\":");
        number(micros, out);
    }
    out.push(b'}');
    let tls = record.tls.as_ref();
    json_member(b",\"tls_protocol\":", tls.map(|tls| tls.protocol.as_bytes()), out);
    json_member(b",\"tls_cipher\":", tls.map(|tls| tls.cipher.as_bytes()), out);
    json_member(b",\"tls_client_subject\":", record.tls_client(), out);
    if let (Some(script_context), Some(id)) = (record.script_context, record.request_id()) {
        json_course(script_context, id, out);
    }
    if let Some(script_context) = record.script_context
        && let Some(upstream) = script_context.upstream()
    {
        json_upstream(script_context, &upstream, out);
    }
    out.push(b'}');
}

/// Writes the members of requests to upstreams: its name, times in microseconds, and how often the request was sent again.
fn json_upstream(script_context: &ScriptContext, upstream: &str, out: &mut Vec<u8>) {
    json_member(b",\"upstream\":", Some(upstream.as_bytes()), out);
    let times = [
        (&b",\"upstream_connect_us\":"[..], script_context.connect_ns()),
        (b",\"upstream_us\":", script_context.upstream_ns()),
    ];
    for (key, nanos) in times {
        out.extend_from_slice(key);
        match nanos {
            Some(nanos) => number(nanos / 1_000, out),
            None => out.extend_from_slice(b"null"),
        }
    }
    out.extend_from_slice(b",\"retries\":");
    number(script_context.retries(), out);
}

/// Writes the members of requests to scripts: the id, and timestamps in nanoseconds since the head.
fn json_course(script_context: &ScriptContext, id: &str, out: &mut Vec<u8>) {
    json_member(b",\"request_id\":", Some(id.as_bytes()), out);
    out.extend_from_slice(b",\"script_ns\":{");
    for (at, (name, nanos)) in script_context.timestamps().enumerate() {
        out.extend_from_slice(if at == 0 { b"\"" } else { b",\"" });
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        number(nanos, out);
    }
    out.push(b'}');
}

/// Inlined, so that the length of each key is known at compile time.
#[inline(always)]
fn json_member(key: &[u8], value: Option<&[u8]>, out: &mut Vec<u8>) {
    out.extend_from_slice(key);
    match value {
        Some(value) => {
            out.push(b'"');
            escape::json(value, out);
            out.push(b'"');
        }
        None => out.extend_from_slice(b"null"),
    }
}

/// Writes the start of the request (RFC 3339, UTC, milliseconds).
pub(super) fn time_iso(record: &AccessRecord<'_>, time: &mut TimeCache, out: &mut Vec<u8>) {
    out.extend_from_slice(time.iso(record.started_secs));
    decimals((record.started_nanos / 1_000_000).min(999), out);
    out.push(b'Z');
}

/// Writes the duration in milliseconds with microseconds: `12.345`.
pub(super) fn duration_ms(record: &AccessRecord<'_>, out: &mut Vec<u8>) {
    let micros = record.duration_ns / 1_000;
    number(micros / 1_000, out);
    decimals((micros % 1_000) as u32, out);
}

/// Writes a point and the three digits of `thousandths`, which is below 1000.
pub(super) fn decimals(thousandths: u32, out: &mut Vec<u8>) {
    let digit = |value: u32| b'0' + (value % 10) as u8;
    let digits = [b'.', digit(thousandths / 100), digit(thousandths / 10), digit(thousandths)];
    out.extend_from_slice(&digits);
}

pub(super) fn number(value: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Writes an address. An IPv4-mapped IPv6 address is written as IPv4.
pub(super) fn address(peer: Peer, out: &mut Vec<u8>) {
    match peer.ip() {
        Some(address) => address::push(address, out),
        None => out.extend_from_slice(UNIX.as_bytes()),
    }
}

/// Writes a field between spaces. An absent or empty one is `-`, so that later fields keep their position.
pub(super) fn bare_or_dash(value: Option<&[u8]>, out: &mut Vec<u8>) {
    match value {
        Some(value) if !value.is_empty() => escape::bare(value, out),
        _ => out.push(b'-'),
    }
}

/// Writes a field between double quotes, which the caller adds; `-` if it is absent or empty.
pub(super) fn quoted_or_dash(value: Option<&[u8]>, out: &mut Vec<u8>) {
    match value {
        Some(value) if !value.is_empty() => escape::quoted(value, out),
        _ => out.push(b'-'),
    }
}

fn non_empty(value: &[u8]) -> Option<&[u8]> {
    (!value.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::access_record::tests::sample;

    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    fn line(format: &str, record: &AccessRecord<'_>) -> String {
        let mut out = Vec::new();
        let format = AccessLogFormat::parse(format).unwrap();
        write_line(&format, record, &mut TimeCache::new(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn common_and_combined_have_their_standard_form() {
        let record = AccessRecord { user: Some(b"frank"), user_agent: Some(b"curl/8"), ..sample() };
        assert_eq!(
            line("common", &record),
            "192.0.2.7 - frank [10/Oct/2000:13:55:36 +0000] \
             \"GET /apache_pb.gif?x=1 HTTP/1.1\" 200 2326\n"
        );
        assert_eq!(
            line("combined", &record),
            "192.0.2.7 - frank [10/Oct/2000:13:55:36 +0000] \
             \"GET /apache_pb.gif?x=1 HTTP/1.1\" 200 2326 \
             \"http://www.example.com/start.html\" \"curl/8\"\n"
        );
    }

    #[test]
    fn an_unparsed_request_is_a_dash() {
        let record =
            AccessRecord { method: b"", target: b"", user: Some(b""), referer: None, ..sample() };
        assert_eq!(
            line("common", &record),
            "192.0.2.7 - - [10/Oct/2000:13:55:36 +0000] \"-\" 200 2326\n"
        );
        let json: serde_json::Value = serde_json::from_str(&line("json", &record)).unwrap();
        assert!(json["method"].is_null() && json["target"].is_null() && json["referer"].is_null());
    }

    #[test]
    fn json_has_every_key_with_its_type() {
        let record = AccessRecord { peer_name: Some("client.example"), ..sample() };
        let json: serde_json::Value = serde_json::from_str(&line("json", &record)).unwrap();
        let expected = serde_json::json!({
            "time": "2000-10-10T13:55:36.123Z",
            "remote": "192.0.2.7",
            "remote_name": "client.example",
            "user": null,
            "method": "GET",
            "target": "/apache_pb.gif?x=1",
            "protocol": "HTTP/1.1",
            "status": 200,
            "bytes": 2326,
            "referer": "http://www.example.com/start.html",
            "user_agent": "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
            "host": "www.example.com",
            "duration_us": 1234,
            "connection": 42,
            "site": "main",
            "cache": "hit",
            "coding": "gzip",
            "phases": { "head_us": 12, "handler_us": 345 },
            "tls_protocol": null,
            "tls_cipher": null,
            "tls_client_subject": null,
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn addresses_are_in_their_shortest_form() {
        let texts = ["0.0.0.0", "9.10.99.100", "255.255.255.255", "2001:db8::1", "::"];
        for text in texts {
            let mut out = Vec::new();
            address(Peer::Ip(text.parse().unwrap()), &mut out);
            assert_eq!(out, text.as_bytes());
        }
        let mut out = Vec::new();
        address(Peer::Ip("::ffff:192.0.2.7".parse().unwrap()), &mut out);
        assert_eq!(out, b"192.0.2.7");
        out.clear();
        address(Peer::Unix, &mut out);
        assert_eq!(out, b"unix:");
    }

    #[test]
    fn client_text_cannot_forge_a_line_or_a_field() {
        let attack = b"x\" 200 1 \"-\" \"-\"\n10.0.0.1 - root [now] \"GET /\r\\\" ";
        let record = AccessRecord {
            user: Some(attack),
            method: attack,
            target: attack,
            referer: Some(attack),
            user_agent: Some(attack),
            ..sample()
        };
        let line = line("combined", &record);
        assert_eq!(line.matches('\n').count(), 1);
        assert_eq!(line.matches('"').count(), 6);
        let [before, request, rest, ..] = line.split('"').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        assert_eq!(before.split(' ').count(), 6, "remote, -, user, two of time, end: {before}");
        assert_eq!(request.split(' ').count(), 3, "{request}");
        assert_eq!(rest, " 200 2326 ");
    }

    proptest! {
        #[test]
        fn every_line_is_one_line_whatever_the_client_sends(
            user in option::of(vec(any::<u8>(), 0..40)),
            method in vec(any::<u8>(), 0..10),
            target in vec(any::<u8>(), 0..80),
            field in option::of(vec(any::<u8>(), 0..80)),
            text: String,
            status: u16, body_bytes: u64, duration_ns: u64, started_secs: u64, started_nanos: u32,
            peer: IpAddr,
        ) {
            let record = AccessRecord {
                peer: Peer::Ip(peer), peer_name: Some(&text), user: user.as_deref(), started_secs, started_nanos,
                duration_ns, method: &method, target: &target, status, body_bytes,
                referer: field.as_deref(), user_agent: Some(text.as_bytes()),
                host: field.as_deref(), site: &text, ..sample()
            };
            let template = "{remote} {remote_name} {user} {time} {time_iso} {method} {target} \
                {path} {query} {protocol} {status} {bytes} {referer} {user_agent} {host} \
                {duration_us} {duration_ms} {connection} {site} {cache} {coding}";
            for format in ["common", "combined", "json", template] {
                let line = line(format, &record);
                prop_assert_eq!(line.matches('\n').count(), 1);
                prop_assert!(line.ends_with('\n'));
                if format == template {
                    // The time of the common format contains a space.
                    prop_assert_eq!(line.split(' ').count(), 22);
                }
                if format == "json" {
                    let json: serde_json::Value = serde_json::from_str(&line).unwrap();
                    prop_assert_eq!(json["user_agent"].as_str(), Some(text.as_str()));
                    prop_assert_eq!(json["site"].as_str(), Some(text.as_str()));
                    prop_assert_eq!(json["status"].as_u64(), Some(u64::from(status)));
                }
            }
        }
    }
}
