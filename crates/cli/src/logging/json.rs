//! Lines of the error log as JSON, with the names of the access log.

use std::fmt::{self, Debug};

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::registry::LookupSpan;

/// Formats an event as one object: `time`, `level`, `message`, and its fields.
pub(super) struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut fields = Fields { message: Value::Null, others: Vec::new() };
        event.record(&mut fields);
        let level = event.metadata().level().as_str();
        let start = [("time", time.into()), ("level", level.into()), ("message", fields.message)];
        for (at, (name, value)) in start.into_iter().chain(fields.others).enumerate() {
            writer.write_char(if at == 0 { '{' } else { ',' })?;
            write!(writer, "{}:{value}", Value::from(name))?;
        }
        writer.write_str("}\n")
    }
}

/// The fields of an event.
struct Fields {
    message: Value,
    others: Vec<(&'static str, Value)>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        match (field.name(), &value) {
            ("message", _) => self.message = value,
            ("client", _) => self.others.push(("remote", value)),
            ("url", Value::String(url)) => match parts(url) {
                Some((host, target)) => {
                    self.others.extend([("host", host.into()), ("target", target.into())]);
                }
                None => self.others.push(("target", value)),
            },
            (name, _) => self.others.push((name, value)),
        }
    }
}

/// Splits a URL into its host with its port, and the target of the request.
fn parts(url: &str) -> Option<(&str, &str)> {
    let (_, rest) = url.split_once("://")?;
    Some(rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())))
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, format!("{value:?}").into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_becomes_host_and_target() {
        assert_eq!(parts("http://a.example:8080/b?c"), Some(("a.example:8080", "/b?c")));
        assert_eq!(parts("https://a.example"), Some(("a.example", "")));
        assert_eq!(parts("/only/a/path"), None);
    }
}
