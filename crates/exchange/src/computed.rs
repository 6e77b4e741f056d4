//! Response fields of a route whose values depend on the request or on the response.

use std::cell::{OnceCell, RefCell};
use std::time::{SystemTime, UNIX_EPOCH};

use dunlin_config::{FieldPart, PendingField, ResponseValue, valid_value};
use dunlin_http::FieldLines;
use dunlin_http::semantics::date;
use dunlin_telemetry::ScriptContext;
use dunlin_telemetry::ids::random_id;

use super::{ConnectionFacts, RequestContext};

/// Bytes of the body of a request that a field can have.
const MAX_BODY: usize = 16 * 1024;

/// Returns `true` if one of the values that parts name is such a value.
fn has_value(parts: &[FieldPart], is_it: &dyn Fn(&ResponseValue) -> bool) -> bool {
    parts.iter().any(|part| match part {
        FieldPart::Text(_) => false,
        FieldPart::Value(value) => is_it(value),
        FieldPart::Mapped(_, from) => has_value(from, is_it),
    })
}

/// What values of fields name of a response, besides its own fields.
#[derive(Debug, Clone, Copy)]
pub struct ResponseFacts<'r> {
    /// The status.
    pub status: u16,
    /// The result of the cache, as in the access log.
    pub cache: &'static str,
    /// The connection.
    pub connection: &'r ConnectionFacts,
    /// The number of requests of the connection so far.
    pub requests: u64,
}

/// The fields, and what their values need to be the same in all of them.
#[derive(Debug, Default)]
pub(super) struct ComputedFields {
    fields: RefCell<Vec<PendingField>>,
    /// The body of the request so far; `None` if no field names it, or it is too large.
    body: RefCell<Option<Vec<u8>>>,
    /// The ID of a request that has none from its handler.
    id: OnceCell<String>,
}

impl ComputedFields {
    pub(super) fn replace(&self, fields: Vec<PendingField>) {
        self.fields.replace(fields);
        if self.name_body() && self.body.borrow().is_none() {
            self.body.replace(Some(Vec::new()));
        }
    }

    /// Returns `true` if a value names the body of the request.
    pub(super) fn name_body(&self) -> bool {
        let is_body = |value: &ResponseValue| *value == ResponseValue::RequestBody;
        self.fields.borrow().iter().any(|field| has_value(&field.parts, &is_body))
    }

    /// Keeps a part of the body of the request, unless all of it is too large.
    pub(super) fn add_body(&self, data: &[u8]) {
        let mut body = self.body.borrow_mut();
        match &mut *body {
            Some(kept) if kept.len() + data.len() <= MAX_BODY => kept.extend_from_slice(data),
            _ => *body = None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fields.borrow().is_empty()
    }

    /// Returns `true` if a value names an address of the connection.
    pub(super) fn name_addresses(&self) -> bool {
        self.fields.borrow().iter().any(|field| has_value(&field.parts, &ResponseValue::is_address))
    }

    /// Sets the fields in a response, in place of those of its handler.
    pub(super) fn apply(
        &self,
        context: &RequestContext,
        facts: &ResponseFacts<'_>,
        fields: &mut FieldLines,
    ) {
        let own = self.fields.borrow();
        if own.is_empty() {
            return;
        }
        let value = |parts: &[FieldPart]| valid_value(self.text(parts, context, facts, fields));
        let wanted = || own.iter().filter(|field| field.concerns(facts.status));
        let values: Vec<Vec<u8>> = wanted().map(|field| value(&field.parts)).collect();
        for (field, value) in wanted().zip(values).filter(|(_, value)| !value.is_empty()) {
            fields.retain(|other, _| !other.eq_ignore_ascii_case(field.name.as_bytes()));
            fields.push(&field.name, value);
        }
    }

    /// Returns the text of parts.
    fn text(
        &self,
        parts: &[FieldPart],
        context: &RequestContext,
        facts: &ResponseFacts<'_>,
        fields: &FieldLines,
    ) -> Vec<u8> {
        let mut text = Vec::new();
        for part in parts {
            match part {
                FieldPart::Text(part) => text.extend_from_slice(part),
                FieldPart::Value(value) => self.push(value, context, facts, fields, &mut text),
                FieldPart::Mapped(map, from) => {
                    text.extend(map.value(&self.text(from, context, facts, fields)));
                }
            }
        }
        text
    }

    fn push(
        &self,
        value: &ResponseValue,
        context: &RequestContext,
        facts: &ResponseFacts<'_>,
        fields: &FieldLines,
        text: &mut Vec<u8>,
    ) {
        let tls = facts.connection.tls.as_deref();
        let upstream = || context.script().and_then(ScriptContext::upstream);
        let number = |number: u64, text: &mut Vec<u8>| text.extend(number.to_string().into_bytes());
        let ends = context.ends();
        match value {
            ResponseValue::Status => number(facts.status.into(), text),
            ResponseValue::User => text.extend_from_slice(context.user().unwrap_or("").as_bytes()),
            ResponseValue::Upstream => text.extend(upstream().unwrap_or_default().bytes()),
            ResponseValue::UpstreamAddress => {
                text.extend(address(&upstream().unwrap_or_default()).bytes());
            }
            ResponseValue::Cache if facts.cache == "-" => {}
            ResponseValue::Cache => text.extend(facts.cache.bytes()),
            ResponseValue::CacheStatus => text.extend(cache_status(facts.cache).bytes()),
            ResponseValue::RequestBody => {
                text.extend_from_slice(self.body.borrow().as_deref().unwrap_or_default());
            }
            ResponseValue::Connection => number(facts.connection.serial, text),
            ResponseValue::ConnectionRequests => number(facts.requests, text),
            ResponseValue::ClientPort => {
                if let Some(ends) = ends {
                    number(ends.remote.port().into(), text);
                }
            }
            ResponseValue::ServerAddress => {
                if let Some(ends) = ends {
                    text.extend(ends.local.ip().to_canonical().to_string().into_bytes());
                }
            }
            ResponseValue::ServerPort => {
                if let Some(ends) = ends {
                    number(ends.local.port().into(), text);
                }
            }
            ResponseValue::Date => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH);
                text.extend(date::format(since.map_or(0, |since| since.as_secs())));
            }
            ResponseValue::UpstreamTime => {
                let nanos = context.script().and_then(ScriptContext::upstream_ns);
                let seconds = nanos.map(|nanos| format!("{:.3}", nanos as f64 / 1e9));
                text.extend(seconds.unwrap_or_default().bytes());
            }
            ResponseValue::RequestId => {
                let own = context.script().map(ScriptContext::id).filter(|id| !id.is_empty());
                let id = own.unwrap_or_else(|| self.id.get_or_init(random_id));
                text.extend_from_slice(id.as_bytes());
            }
            ResponseValue::TlsProtocol => text.extend(tls.map_or("", |tls| tls.protocol).bytes()),
            ResponseValue::TlsCipher => text.extend(tls.map_or("", |tls| tls.cipher).bytes()),
            ResponseValue::TlsClientSubject => {
                let client = tls.and_then(|tls| tls.client.as_deref());
                text.extend(client.map_or("", |client| &client.subject).bytes());
            }
            ResponseValue::TlsClientVerify => {
                text.extend(tls.map_or("", |tls| tls.verified()).bytes());
            }
            ResponseValue::TlsServerName => {
                let name = tls.and_then(|tls| tls.server_name.as_deref());
                text.extend(name.unwrap_or_default().bytes());
            }
            ResponseValue::TlsResumed => {
                let shown = tls.map_or("", |tls| if tls.resumed { "r" } else { "." });
                text.extend(shown.bytes());
            }
            ResponseValue::Field(name) => {
                let is_it =
                    |(other, _): &(&[u8], &[u8])| other.eq_ignore_ascii_case(name.as_bytes());
                let values: Vec<&[u8]> =
                    fields.iter().filter(is_it).map(|(_, value)| value).collect();
                text.extend(values.join(&b", "[..]));
            }
            ResponseValue::Cookie(name) => {
                text.extend_from_slice(set_cookie(fields, name).unwrap_or_default());
            }
        }
    }
}

/// Returns the value of the first cookie of that name that a response sets.
fn set_cookie<'f>(fields: &'f FieldLines, cookie: &str) -> Option<&'f [u8]> {
    fields.iter().find_map(|(name, value)| {
        let value = name.eq_ignore_ascii_case(b"Set-Cookie").then_some(value)?;
        let pair = value.split(|byte| *byte == b';').next()?;
        let sign = pair.iter().position(|byte| *byte == b'=')?;
        (pair[..sign].trim_ascii() == cookie.as_bytes()).then(|| pair[sign + 1..].trim_ascii())
    })
}

/// Returns host and port of the URL of an upstream, or its socket.
fn address(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    match rest.starts_with("unix:") {
        true => rest,
        false => rest.split('/').next().unwrap_or_default(),
    }
}

/// Returns the result of the response cache as nginx names it.
fn cache_status(cache: &str) -> &'static str {
    match cache {
        "hit" | "collapsed" => "HIT",
        "miss" => "MISS",
        "stale" => "STALE",
        "revalidated" => "REVALIDATED",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_have_addresses() {
        assert_eq!(address("http://127.0.0.1:8081/base/"), "127.0.0.1:8081");
        assert_eq!(address("h2c://[::1]:80"), "[::1]:80");
        assert_eq!(address("unix:/run/app.sock"), "unix:/run/app.sock");
        assert_eq!(address(""), "");
    }
}
