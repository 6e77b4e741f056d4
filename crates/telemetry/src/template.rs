//! Templates of access log lines.

use dunlin_config::{LogField, LogPiece, LogTemplate};

use super::escape;
use super::format::{
    address, bare_or_dash, decimals, duration_ms, number, quoted_or_dash, time_iso,
};
use super::{AccessRecord, ScriptContext, TimeCache};

/// Appends the line without a line feed.
pub(super) fn write(
    template: &LogTemplate,
    record: &AccessRecord<'_>,
    time: &mut TimeCache,
    out: &mut Vec<u8>,
) {
    for piece in &template.pieces {
        match piece {
            LogPiece::Literal(bytes) => out.extend_from_slice(bytes),
            LogPiece::Field { field, quoted } => write_field(*field, *quoted, record, time, out),
            LogPiece::Named { name, is_response, quoted } => {
                let value = record.field(name, *is_response);
                let write = if *quoted { quoted_or_dash } else { bare_or_dash };
                write(value.as_deref(), out);
            }
        }
    }
}

fn write_field(
    field: LogField,
    quoted: bool,
    record: &AccessRecord<'_>,
    time: &mut TimeCache,
    out: &mut Vec<u8>,
) {
    let tls = record.tls.as_ref();
    let text = if quoted { quoted_or_dash } else { bare_or_dash };
    match field {
        LogField::Remote => address(record.peer, out),
        LogField::RemoteName => text(record.peer_name.map(str::as_bytes), out),
        LogField::User => text(record.user, out),
        LogField::Time => out.extend_from_slice(time.clf(record.started_secs)),
        LogField::TimeIso => time_iso(record, time, out),
        // Escape spaces, as a request line between quotes has three parts.
        LogField::Method => bare_or_dash(Some(record.method), out),
        LogField::Target => bare_or_dash(Some(record.target), out),
        LogField::Path => bare_or_dash(Some(record.path()), out),
        LogField::Query => bare_or_dash(record.query(), out),
        LogField::Protocol => out.extend_from_slice(record.version.as_bytes()),
        LogField::Status => number(record.status, out),
        LogField::Bytes => number(record.body_bytes, out),
        LogField::PlainBytes => match record.plain_bytes {
            Some(bytes) => number(bytes, out),
            None => out.push(b'-'),
        },
        LogField::Received => match record.tunnel_received {
            Some(received) => number(received, out),
            None => out.push(b'-'),
        },
        LogField::Referer => text(record.referer, out),
        LogField::UserAgent => text(record.user_agent, out),
        LogField::Host => text(record.host, out),
        LogField::DurationUs => number(record.duration_ns / 1_000, out),
        LogField::DurationMs => duration_ms(record, out),
        LogField::DurationS => seconds(record.duration_ns / 1_000_000, out),
        LogField::TimeUnix => {
            number(record.started_secs, out);
            decimals((record.started_nanos / 1_000_000).min(999), out);
        }
        LogField::Connection => number(record.connection, out),
        LogField::Site => text(Some(record.site.as_bytes()), out),
        LogField::Cache => escape::bare(record.cache.as_bytes(), out),
        LogField::ContentCoding => escape::bare(record.coding.as_bytes(), out),
        LogField::TlsProtocol => text(tls.map(|tls| tls.protocol.as_bytes()), out),
        LogField::TlsCipher => text(tls.map(|tls| tls.cipher.as_bytes()), out),
        LogField::TlsClientSubject => text(record.tls_client(), out),
        LogField::TlsClientVerify => text(tls.map(|tls| tls.verified().as_bytes()), out),
        LogField::RequestId => text(record.request_id().map(str::as_bytes), out),
        LogField::Upstream => text(record.upstream().as_deref().map(str::as_bytes), out),
        LogField::UpstreamConnectUs => {
            micros(record.script_context, ScriptContext::connect_ns, out);
        }
        LogField::UpstreamConnectS => {
            upstream_seconds(record.script_context, ScriptContext::connect_ns, out);
        }
        LogField::UpstreamS => {
            upstream_seconds(record.script_context, ScriptContext::upstream_ns, out);
        }
        LogField::UpstreamUs => micros(record.script_context, ScriptContext::upstream_ns, out),
        LogField::Retries => number(record.script_context.map_or(0, ScriptContext::retries), out),
    }
}

/// Writes a time of the upstream in microseconds.
fn micros(
    context: Option<&ScriptContext>,
    time: fn(&ScriptContext) -> Option<u64>,
    out: &mut Vec<u8>,
) {
    match context.and_then(time) {
        Some(nanos) => number(nanos / 1_000, out),
        None => out.push(b'-'),
    }
}

/// Writes a time of the upstream in seconds.
fn upstream_seconds(
    context: Option<&ScriptContext>,
    time: fn(&ScriptContext) -> Option<u64>,
    out: &mut Vec<u8>,
) {
    match context.and_then(time) {
        Some(nanos) => seconds(nanos / 1_000_000, out),
        None => out.push(b'-'),
    }
}

/// Writes milliseconds as seconds, with three decimals.
fn seconds(milliseconds: u64, out: &mut Vec<u8>) {
    number(milliseconds / 1_000, out);
    decimals((milliseconds % 1_000) as u32, out);
}

#[cfg(test)]
mod tests {
    use dunlin_http::http1::Http1Connection;
    use dunlin_http::{Head, Limits, Request};

    use super::*;
    use crate::access_record::tests::sample;

    fn line(template: &str, record: &AccessRecord<'_>) -> String {
        let mut out = Vec::new();
        let template = LogTemplate::parse(template).unwrap();
        write(&template, record, &mut TimeCache::new(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_placeholder_has_its_value() {
        let record = AccessRecord { user: Some(b"ann"), peer_name: Some("c.example"), ..sample() };
        let template = "{remote}\t{remote_name} {user} {time} {time_iso} {method} {target} {path} \
            {query} {protocol} {status} {bytes} {referer} {host} {duration_us} {duration_ms} {duration_s} {time_unix} \
            {connection} {site} {cache} {coding} {{{status}}}";
        assert_eq!(
            line(template, &record),
            "192.0.2.7\tc.example ann 10/Oct/2000:13:55:36 +0000 2000-10-10T13:55:36.123Z GET \
             /apache_pb.gif?x=1 /apache_pb.gif x=1 HTTP/1.1 200 2326 \
             http://www.example.com/start.html www.example.com 1234 1.234 0.001 971186136.123 42 main hit gzip {200}"
        );
    }

    #[test]
    fn fields_of_request_and_response_have_their_values() {
        let text = b"GET / HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nx-a: 2\r\n\r\n";
        let mut head = Head::default();
        Http1Connection::default().head(text, &Limits::default(), &mut head).unwrap();
        let request = Request::new(text, &head);
        let record = AccessRecord {
            request: Some(&request),
            response_lines: b"Content-Type: a/b\r\nX-C: \"d\"\r\n",
            ..sample()
        };
        let template = "{header.X-A} {header.x-b} {response.content-type} \"{response.X-C}\"";
        assert_eq!(line(template, &record), "1,\\x202 - a/b \"\\x22d\\x22\"");
    }

    #[test]
    fn spaces_are_escaped_outside_quotes() {
        let record = AccessRecord { user_agent: Some(b"a \"b"), ..sample() };
        let template = "\"{user_agent}\" {user_agent} \"{{\"{user_agent}";
        assert_eq!(line(template, &record), "\"a \\x22b\" a\\x20\\x22b \"{\"a\\x20\\x22b");
    }
}
