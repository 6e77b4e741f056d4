//! Formats of the access log.

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
/// The placeholders are `{remote} {remote_name} {user} {time} {time_iso} {method} {target}
/// {path} {query} {protocol} {status} {bytes} {referer} {user_agent} {host} {duration_us}
/// {duration_ms} {connection} {site} {cache} {coding} {request_id} {tls_protocol} {tls_cipher}
/// {tls_client_subject} {tls_client_verify}`. Absent values are written as `-`.
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
        /// Its meaning.
        field: LogField,
        /// It is between double quotes.
        quoted: bool,
    },
}

impl LogTemplate {
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
            let field = LogField::parse(&rest[brace + 1..brace + length])?;
            quoted ^= literal.matches('"').count() % 2 == 1;
            push_literal(&mut pieces, &mut literal);
            pieces.push(LogPiece::Field { field, quoted });
            rest = &rest[brace + length + 1..];
        }
        literal.push_str(rest);
        push_literal(&mut pieces, &mut literal);
        Ok(Self { pieces })
    }
}

fn push_literal(pieces: &mut Vec<LogPiece>, literal: &mut String) {
    if !literal.is_empty() {
        pieces.push(LogPiece::Literal(std::mem::take(literal).into_bytes().into_boxed_slice()));
    }
}

/// Declares the placeholders: the enum, their names, and the parser of a name.
macro_rules! fields {
    ($($variant:ident = $name:literal,)*) => {
        /// The meaning of a placeholder.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum LogField {
            $(
                #[doc = concat!("The placeholder `{", $name, "}`.")]
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
