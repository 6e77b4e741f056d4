//! Templates of access log lines.

use super::escape;
use super::format::{
    FormatError, address, bare_or_dash, duration_ms, nearest, number, quoted_or_dash, time_iso,
};
use super::{AccessRecord, TimeCache};

/// A line with placeholders in braces; `{{` and `}}` stand for the braces themselves.
///
/// The placeholders are `{remote} {remote_name} {user} {time} {time_iso} {method} {target}
/// {path} {query} {protocol} {status} {bytes} {referer} {user_agent} {host} {duration_us}
/// {duration_ms} {connection} {site} {cache} {coding} {request_id} {tls_protocol} {tls_cipher}
/// {tls_client_subject} {tls_client_verify}`. Absent values are written as `-`.
///
/// Text from the client is escaped so that it cannot end the line or the field, whether fields are
/// separated by double quotes, spaces or tabs: outside quotes a space becomes `\x20`. Other
/// separators (`|`, `;`) are not escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(Box<[u8]>),
    Field { field: Field, quoted: bool },
}

impl Template {
    /// Compiles a template.
    ///
    /// # Errors
    /// The template has an unknown placeholder (the text names the nearest), an unmatched brace, or a
    /// control character other than a tab.
    pub(crate) fn parse(text: &str) -> Result<Self, FormatError> {
        if let Some(control) = text.chars().find(|c| c.is_control() && *c != '\t') {
            return Err(FormatError(format!("log template: {control:?} cannot be part of a line")));
        }
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut quoted = false;
        let mut rest = text;
        while let Some(brace) = rest.find(['{', '}']) {
            literal.push_str(&rest[..brace]);
            let doubled = rest.get(brace..brace + 2);
            if let Some(pair @ ("{{" | "}}")) = doubled {
                literal.push_str(&pair[..1]);
                rest = &rest[brace + 2..];
                continue;
            }
            let (Some(length), true) = (rest[brace..].find('}'), rest[brace..].starts_with('{'))
            else {
                return Err(FormatError(format!(
                    "log template: a brace without its partner at byte {} \
                     (a literal brace is written twice)",
                    text.len() - rest.len() + brace,
                )));
            };
            let field = Field::parse(&rest[brace + 1..brace + length])?;
            quoted ^= literal.matches('"').count() % 2 == 1;
            push_literal(&mut pieces, &mut literal);
            pieces.push(Piece::Field { field, quoted });
            rest = &rest[brace + length + 1..];
        }
        literal.push_str(rest);
        push_literal(&mut pieces, &mut literal);
        Ok(Self { pieces })
    }

    /// Appends the line without a line feed.
    pub(super) fn write(&self, record: &AccessRecord<'_>, time: &mut TimeCache, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                Piece::Literal(bytes) => out.extend_from_slice(bytes),
                Piece::Field { field, quoted } => field.write(*quoted, record, time, out),
            }
        }
    }
}

fn push_literal(pieces: &mut Vec<Piece>, literal: &mut String) {
    if !literal.is_empty() {
        pieces.push(Piece::Literal(std::mem::take(literal).into_bytes().into_boxed_slice()));
    }
}

/// Declares the placeholders: the enum, their names, and the parser of a name.
macro_rules! fields {
    ($($variant:ident = $name:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Field { $($variant,)* }

        impl Field {
            fn parse(name: &str) -> Result<Self, FormatError> {
                match name {
                    $($name => Ok(Self::$variant),)*
                    _ => Err(FormatError(format!(
                        "log template: unknown placeholder `{{{name}}}`, did you mean `{{{}}}`?",
                        nearest(name, [$($name),*]),
                    ))),
                }
            }
        }
    };
}

fields! {
    Remote = "remote",
    RemoteName = "remote_name",
    User = "user",
    Time = "time",
    TimeIso = "time_iso",
    Method = "method",
    Target = "target",
    Path = "path",
    Query = "query",
    Protocol = "protocol",
    Status = "status",
    Bytes = "bytes",
    Referer = "referer",
    UserAgent = "user_agent",
    Host = "host",
    DurationUs = "duration_us",
    DurationMs = "duration_ms",
    Connection = "connection",
    Site = "site",
    Cache = "cache",
    ContentCoding = "coding",
    TlsProtocol = "tls_protocol",
    TlsCipher = "tls_cipher",
    TlsClientSubject = "tls_client_subject",
    TlsClientVerify = "tls_client_verify",
    RequestId = "request_id",
}

impl Field {
    fn write(
        self,
        quoted: bool,
        record: &AccessRecord<'_>,
        time: &mut TimeCache,
        out: &mut Vec<u8>,
    ) {
        let tls = record.tls.as_ref();
        let text = if quoted { quoted_or_dash } else { bare_or_dash };
        match self {
            Self::Remote => address(record.peer, out),
            Self::RemoteName => text(record.peer_name.map(str::as_bytes), out),
            Self::User => text(record.user, out),
            Self::Time => out.extend_from_slice(time.clf(record.started_secs)),
            Self::TimeIso => time_iso(record, time, out),
            // Escape spaces, as a request line between quotes has three parts.
            Self::Method => bare_or_dash(Some(record.method), out),
            Self::Target => bare_or_dash(Some(record.target), out),
            Self::Path => bare_or_dash(Some(record.path()), out),
            Self::Query => bare_or_dash(record.query(), out),
            Self::Protocol => out.extend_from_slice(record.version.as_bytes()),
            Self::Status => number(record.status, out),
            Self::Bytes => number(record.body_bytes, out),
            Self::Referer => text(record.referer, out),
            Self::UserAgent => text(record.user_agent, out),
            Self::Host => text(record.host, out),
            Self::DurationUs => number(record.duration_ns / 1_000, out),
            Self::DurationMs => duration_ms(record, out),
            Self::Connection => number(record.connection, out),
            Self::Site => text(Some(record.site.as_bytes()), out),
            Self::Cache => escape::bare(record.cache.as_bytes(), out),
            Self::ContentCoding => escape::bare(record.coding.as_bytes(), out),
            Self::TlsProtocol => text(tls.map(|tls| tls.protocol.as_bytes()), out),
            Self::TlsCipher => text(tls.map(|tls| tls.cipher.as_bytes()), out),
            Self::TlsClientSubject => text(record.tls_client(), out),
            Self::TlsClientVerify => text(tls.map(|tls| tls.verified().as_bytes()), out),
            Self::RequestId => text(record.request_id().map(str::as_bytes), out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::access_record::tests::sample;

    fn line(template: &str, record: &AccessRecord<'_>) -> String {
        let mut out = Vec::new();
        Template::parse(template).unwrap().write(record, &mut TimeCache::new(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_placeholder_has_its_value() {
        let record = AccessRecord { user: Some(b"ann"), peer_name: Some("c.example"), ..sample() };
        let template = "{remote}\t{remote_name} {user} {time} {time_iso} {method} {target} {path} \
            {query} {protocol} {status} {bytes} {referer} {host} {duration_us} {duration_ms} \
            {connection} {site} {cache} {coding} {{{status}}}";
        assert_eq!(
            line(template, &record),
            "192.0.2.7\tc.example ann 10/Oct/2000:13:55:36 +0000 2000-10-10T13:55:36.123Z GET \
             /apache_pb.gif?x=1 /apache_pb.gif x=1 HTTP/1.1 200 2326 \
             http://www.example.com/start.html www.example.com 1234 1.234 42 main hit gzip {200}"
        );
    }

    #[test]
    fn spaces_are_escaped_outside_quotes() {
        let record = AccessRecord { user_agent: Some(b"a \"b"), ..sample() };
        let template = "\"{user_agent}\" {user_agent} \"{{\"{user_agent}";
        assert_eq!(line(template, &record), "\"a \\x22b\" a\\x20\\x22b \"{\"a\\x20\\x22b");
    }

    #[test]
    fn an_invalid_template_is_rejected_with_a_hint() {
        let table = [
            ("{user-agent}", "did you mean `{user_agent}`?"),
            ("{statsu}", "did you mean `{status}`?"),
            ("{}", "unknown placeholder"),
            ("ab{status", "at byte 2"),
            ("{status}}", "at byte 8"),
            ("{status}\n", "cannot be part of a line"),
        ];
        for (template, hint) in table {
            let error = Template::parse(template).unwrap_err().to_string();
            assert!(error.contains(hint), "{template}: {error}");
        }
    }
}
