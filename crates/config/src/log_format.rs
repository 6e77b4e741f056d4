//! Formats of the access log.

use dunlin_http::semantics::is_token;

use super::secrets::is_secret_name;

/// Format of a line of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// The common log format: `remote - user [time] "method target protocol" status bytes`.
    ///
    /// `remote` is the client's name if reverse DNS has resolved it, or else its address.
    Common,
    /// The common log format followed by `"referer" "user agent"`.
    Combined,
    /// One JSON object per line, always with the same keys; absent values are `null`.
    Json,
    /// A template from the configuration.
    Template(LogTemplate),
}

impl AccessLogFormat {
    /// Parses `common`, `combined`, `json`, or a template with placeholders in braces.
    ///
    /// # Errors
    /// The word is unknown (the text names the nearest known word), or [`LogTemplate::parse`] fails.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "common" => Ok(Self::Common),
            "combined" => Ok(Self::Combined),
            "json" => Ok(Self::Json),
            _ if text.contains(['{', '}']) => LogTemplate::parse(text).map(Self::Template),
            _ => Err(format!(
                "unknown log format `{text}`, did you mean `{}`? Known are common, combined, \
                 json, or a template such as `{{remote}} {{status}} {{bytes}}`",
                nearest(text, ["common", "combined", "json"]),
            )),
        }
    }
}

/// A line with placeholders in braces; `{{` and `}}` stand for the braces themselves.
///
/// [`LogField`] has the placeholders. Absent values are written as `-`.
///
/// Text from the client is escaped so that it cannot end the line or the field, whether fields are
/// separated by double quotes, spaces or tabs: outside quotes a space becomes `\x20`. Other
/// separators (`|`, `;`) are not escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogTemplate {
    /// The text of the line in order.
    pub pieces: Vec<LogPiece>,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogPiece {
    /// Text that is written as it is.
    Literal(Box<[u8]>),
    /// A placeholder.
    Field {
        /// The field that the placeholder names.
        field: LogField,
        /// It is between double quotes.
        quoted: bool,
    },
    /// A field of the request, `{header.NAME}`, or of the response, `{response.NAME}`.
    Named {
        /// The name of the field.
        name: Box<str>,
        /// It is one of the response.
        is_response: bool,
        /// It is between double quotes.
        quoted: bool,
    },
}

impl LogTemplate {
    /// Returns `true` if lines have fields of responses.
    pub fn has_response_fields(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, LogPiece::Named { is_response: true, .. }))
    }

    /// Compiles a template.
    ///
    /// # Errors
    /// The template has an unknown placeholder (the text names the nearest), an unmatched brace, or a
    /// control character other than a tab.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(control) = text.chars().find(|c| c.is_control() && *c != '\t') {
            return Err(format!("log template: {control:?} cannot be part of a line"));
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
                return Err(format!(
                    "log template: a brace without its partner at byte {} \
                     (a literal brace is written twice)",
                    text.len() - rest.len() + brace,
                ));
            };
            let name = &rest[brace + 1..brace + length];
            quoted ^= literal.matches('"').count() % 2 == 1;
            push_literal(&mut pieces, &mut literal);
            pieces.push(match named(name)? {
                Some((name, is_response)) => LogPiece::Named { name, is_response, quoted },
                None => LogPiece::Field { field: LogField::parse(name)?, quoted },
            });
            rest = &rest[brace + length + 1..];
        }
        literal.push_str(rest);
        push_literal(&mut pieces, &mut literal);
        Ok(Self { pieces })
    }
}

/// Fields whose values are secrets.
const SECRET: [&str; 5] =
    ["authorization", "proxy-authorization", "cookie", "set-cookie", "proxy-authenticate"];

/// Returns the name of a field, and `true` for one of the response; `None` if the placeholder is another.
fn named(placeholder: &str) -> Result<Option<(Box<str>, bool)>, String> {
    let Some((kind @ ("header" | "response"), name)) = placeholder.split_once('.') else {
        return Ok(None);
    };
    if !is_token(name.as_bytes()) {
        return Err(format!("log template: {name:?} is not the name of a field"));
    }
    if is_secret_name(name.as_bytes())
        || SECRET.iter().any(|secret| secret.eq_ignore_ascii_case(name))
    {
        return Err(format!("log template: {name} has secrets, which are not logged"));
    }
    Ok(Some((name.into(), kind == "response")))
}

fn push_literal(pieces: &mut Vec<LogPiece>, literal: &mut String) {
    if !literal.is_empty() {
        pieces.push(LogPiece::Literal(std::mem::take(literal).into_bytes().into_boxed_slice()));
    }
}

/// Declares the placeholders: the enum, their names, and the parser of a name. The doc comments are their meanings in the
/// book.
macro_rules! fields {
    ($($(#[$meaning:meta])+ $variant:ident = $name:literal,)*) => {
        /// The meaning of a placeholder.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum LogField {
            $(
                $(#[$meaning])+
                $variant,
            )*
        }

        impl LogField {
            fn parse(name: &str) -> Result<Self, String> {
                match name {
                    $($name => Ok(Self::$variant),)*
                    _ => Err(format!(
                        "log template: unknown placeholder `{{{name}}}`, did you mean `{{{}}}`?",
                        nearest(name, [$($name),*]),
                    )),
                }
            }
        }
    };
}

fields! {
    /// Address of the client: behind `trusted_proxies`, the one that they report; `unix:` on a Unix socket.
    Remote = "remote",
    /// Name of the client, if `[server.reverse_dns]` has resolved it in time.
    RemoteName = "remote_name",
    /// User of basic or forward authentication.
    User = "user",
    /// Start of the request, as `10/Oct/2000:13:55:36 +0000`.
    Time = "time",
    /// Start of the request, as `2000-10-10T13:55:36.123Z`.
    TimeIso = "time_iso",
    /// Start of the request in seconds since 1970, with three decimals.
    TimeUnix = "time_unix",
    /// Method.
    Method = "method",
    /// Target of the request as received, with secret query values removed.
    Target = "target",
    /// Target without its query.
    Path = "path",
    /// Query of the target, without the question mark.
    Query = "query",
    /// Version of the protocol, as `HTTP/1.1` or `HTTP/2.0`.
    Protocol = "protocol",
    /// Status of the final response; 499 if the client disconnected before anything was sent.
    Status = "status",
    /// Bytes of the response body that were sent.
    Bytes = "bytes",
    /// Bytes of the response body before it was compressed, if it was compressed for the request.
    PlainBytes = "plain_bytes",
    /// Bytes that the client has sent through a tunnel, such as a WebSocket.
    Received = "received",
    /// The `Referer` header.
    Referer = "referer",
    /// The `User-Agent` header.
    UserAgent = "user_agent",
    /// Host of the request: the `Host` header, or the authority of the target.
    Host = "host",
    /// Time from the request's first byte to the response's last, in microseconds.
    DurationUs = "duration_us",
    /// The duration in milliseconds, with three decimals.
    DurationMs = "duration_ms",
    /// The duration in seconds, with three decimals.
    DurationS = "duration_s",
    /// Serial number of the connection.
    Connection = "connection",
    /// Name of the site: its first `host`, or `default`.
    Site = "site",
    /// Result of the file cache: `hit`, `miss`, or `off` with `cache = false`. Of the response cache: also `stale`, `revalidated` and `collapsed`.
    Cache = "cache",
    /// Content coding of the response, such as `gzip`.
    ContentCoding = "coding",
    /// Version of TLS, as `TLSv1.3`.
    TlsProtocol = "tls_protocol",
    /// Cipher suite.
    TlsCipher = "tls_cipher",
    /// Subject of the client's certificate.
    TlsClientSubject = "tls_client_subject",
    /// `SUCCESS` with a verified client certificate, `NONE` without one.
    TlsClientVerify = "tls_client_verify",
    /// ID of the request, of requests to scripts.
    RequestId = "request_id",
    /// Upstream that got the request last, as in the configuration, of requests to a `proxy`.
    Upstream = "upstream",
    /// Time from the request's head to the connection to the upstream, in microseconds: waiting and connecting.
    UpstreamConnectUs = "upstream_connect_us",
    /// Time from there to the first byte of the upstream's response, in microseconds.
    UpstreamUs = "upstream_us",
    /// `upstream_connect_us` in seconds, with three decimals.
    UpstreamConnectS = "upstream_connect_s",
    /// `upstream_us` in seconds, with three decimals.
    UpstreamS = "upstream_s",
    /// The number of times that the request was sent to another upstream.
    Retries = "retries",
}

/// Returns the candidate that is most similar to `word`.
fn nearest<const N: usize>(word: &str, known: [&'static str; N]) -> &'static str {
    let likeness = |name: &&str| strsim::jaro_winkler(word, name);
    known.into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_template_is_rejected_with_a_hint() {
        let table = [
            ("{user-agent}", "did you mean `{user_agent}`?"),
            ("{statsu}", "did you mean `{status}`?"),
            ("{}", "unknown placeholder"),
            ("ab{status", "at byte 2"),
            ("{status}}", "at byte 8"),
            ("{status}\n", "cannot be part of a line"),
            ("{header.a b}", "is not the name of a field"),
            ("{header.Cookie}", "has secrets"),
            ("{response.Set-Cookie}", "has secrets"),
        ];
        for (template, hint) in table {
            let error = LogTemplate::parse(template).unwrap_err();
            assert!(error.contains(hint), "{template}: {error}");
        }
    }

    #[test]
    fn the_error_of_an_unknown_format_names_the_nearest() {
        let error = AccessLogFormat::parse("combied").unwrap_err();
        assert!(error.contains("did you mean `combined`?"), "{error}");
    }
}
