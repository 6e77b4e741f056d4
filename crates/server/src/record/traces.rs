//! Traces of requests, sent to a collector by OTLP (OpenTelemetry's protocol, as JSON over HTTP).
//!
//! The trace that a client's request belongs to is taken over (W3C Trace Context). Spans go through a
//! bounded queue to a thread of their own: what does not fit is lost and counted, and no loop ever
//! waits.

use std::fmt::Write;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dunlin_http::Request;
use dunlin_http::semantics::host;
use serde_json::{Value, json};

use super::{Exchange, Times, random};
use crate::client::Client;
use crate::config::Traces;

/// A request that is traced.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    trace: u128,
    id: u64,
    parent: Option<u64>,
}

/// Sends spans to a collector.
#[derive(Debug)]
pub(crate) struct Tracer {
    sample: f64,
    /// Gone once the server stops.
    queue: Mutex<Option<SyncSender<Message>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    counts: Arc<Counts>,
}

/// What became of spans.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent: AtomicU64,
    pub(crate) lost: AtomicU64,
}

/// A span in the form in which it is sent.
type Message = Value;

/// Spans that may wait.
const WAITING: usize = 4096;
/// Spans of one message.
const BATCH: usize = 512;
/// How long spans are gathered.
const EVERY: Duration = Duration::from_secs(1);

impl Span {
    /// As the `traceparent` field, for handlers: this request is the parent of what they do.
    pub(crate) fn traceparent(&self) -> String {
        format!("00-{:032x}-{:016x}-01", self.trace, self.id)
    }
}

impl Tracer {
    /// Starts the thread that sends.
    ///
    /// # Errors
    /// When the thread cannot be started or the endpoint cannot be one.
    pub(crate) fn start(settings: &Traces) -> Result<Self, String> {
        let trusted = || crate::tls::client_config(settings.authority.as_deref());
        let client = Client::secure(&settings.endpoint, trusted)?;
        let client = client.with_timeout(Some(Duration::from_secs(5)));
        let (queue, spans) = sync_channel(WAITING);
        let counts = Arc::<Counts>::default();
        let exporter =
            Exporter { client, service: settings.service.clone(), counts: Arc::clone(&counts) };
        let thread = std::thread::Builder::new()
            .name("traces".into())
            .spawn(move || exporter.run(&spans))
            .map_err(|error| error.to_string())?;
        Ok(Self {
            sample: settings.sample,
            queue: Mutex::new(Some(queue)),
            thread: Mutex::new(Some(thread)),
            counts,
        })
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Whether the request is traced: as whoever sent it has decided, or else by chance.
    pub(crate) fn begin(&self, request: &Request<'_>) -> Option<Box<Span>> {
        let mut parents =
            request.fields().filter(|(name, _)| name.eq_ignore_ascii_case(b"traceparent"));
        // More than one is none (W3C Trace Context §3.2).
        let parent = match (parents.next(), parents.next()) {
            (Some((_, value)), None) => parse(value),
            _ => None,
        };
        let (trace, parent) = match parent {
            Some(Parent { is_sampled: false, .. }) => return None,
            Some(Parent { trace, id, .. }) => (trace, Some(id)),
            None if random() as f64 / u64::MAX as f64 >= self.sample => return None,
            None => (u128::from(random()) << 64 | u128::from(random()), None),
        };
        Some(Box::new(Span { trace, id: random(), parent }))
    }

    /// The request has ended.
    pub(crate) fn end(&self, span: &Span, exchange: &Exchange<'_>, times: &Times, route: &str) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let sent =
            queue.as_ref().map(|queue| queue.try_send(message(span, exchange, times, route)));
        if !matches!(sent, Some(Ok(()))) {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(Err(TrySendError::Full(_))) = sent {
            tracing::warn!("spans come faster than the collector takes them; some are lost");
        }
    }

    /// Sends what waits, and ends the thread; the collector's slowness bounds how long that takes.
    pub(crate) fn finish(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let began = Instant::now();
        while let Some(thread) = &thread
            && !thread.is_finished()
            && began.elapsed() < Duration::from_secs(2)
        {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

struct Parent {
    trace: u128,
    id: u64,
    is_sampled: bool,
}

/// W3C Trace Context §3.2.2: `00-TRACE-PARENT-FLAGS`, in lower-case hexadecimal digits. A later
/// version may have more behind them.
fn parse(value: &[u8]) -> Option<Parent> {
    let text = std::str::from_utf8(value).ok()?;
    if text.bytes().any(|byte| !matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-')) {
        return None;
    }
    let mut parts = text.split('-');
    let mut part = |length| parts.next().filter(|part| part.len() == length);
    let (version, trace, id, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
    if version == "ff" || version == "00" && parts.next().is_some() {
        return None;
    }
    let parent = Parent {
        trace: u128::from_str_radix(trace, 16).ok()?,
        id: u64::from_str_radix(id, 16).ok()?,
        is_sampled: u8::from_str_radix(flags, 16).ok()? & 1 == 1,
    };
    (parent.trace != 0 && parent.id != 0).then_some(parent)
}

/// A span by OpenTelemetry's conventions for HTTP servers.
fn message(span: &Span, exchange: &Exchange<'_>, times: &Times, route: &str) -> Message {
    let text = |bytes: &[u8]| Value::from(String::from_utf8_lossy(bytes));
    let start =
        u128::from(exchange.started_secs) * 1_000_000_000 + u128::from(exchange.started_nanos);
    let end = start + u128::from(exchange.duration_ns);
    let version = exchange.version.trim_start_matches("HTTP/").trim_end_matches(".0");
    let version = if version == "1" { "1.0" } else { version };
    let mut attributes = Vec::new();
    let mut add = |key: &str, value: Value| {
        let value = match value {
            Value::Number(number) => json!({"intValue": number.to_string()}),
            value => json!({"stringValue": value}),
        };
        attributes.push(json!({"key": key, "value": value}));
    };
    add("http.request.method", text(exchange.method));
    add("url.scheme", if exchange.encrypted { "https" } else { "http" }.into());
    add("url.path", text(exchange.path()));
    if let Some(query) = exchange.query() {
        add("url.query", text(query));
    }
    add("http.route", route.into());
    add("http.response.status_code", exchange.status.into());
    add("http.response.body.size", exchange.body_bytes.into());
    add("network.protocol.version", version.into());
    add("client.address", exchange.peer.to_string().into());
    if let Some(host) = exchange.host.and_then(host::parse) {
        add("server.address", text(host.name));
        if let Some(port) = host.port {
            add("server.port", port.into());
        }
    }
    if let Some(agent) = exchange.user_agent {
        add("user_agent.original", text(agent));
    }
    if exchange.status >= 500 || exchange.status == 499 {
        add("error.type", exchange.status.to_string().into());
    }
    add("dunlin.site", exchange.site.into());
    add("dunlin.cache", exchange.cache.into());
    for (name, micros) in times.iter() {
        add(&format!("dunlin.phase.{name}_us"), micros.into());
    }
    let mut message = json!({
        "traceId": format!("{:032x}", span.trace),
        "spanId": format!("{:016x}", span.id),
        "name": format!("{} {route}", String::from_utf8_lossy(exchange.method)).trim_end(),
        "kind": 2,
        "startTimeUnixNano": start.to_string(),
        "endTimeUnixNano": end.to_string(),
        "attributes": attributes,
        "status": if exchange.status >= 500 { json!({"code": 2}) } else { json!({}) },
    });
    if let Some(parent) = span.parent {
        message["parentSpanId"] = format!("{parent:016x}").into();
    }
    message
}

/// The thread that sends.
struct Exporter {
    client: Client,
    service: String,
    counts: Arc<Counts>,
}

impl Exporter {
    fn run(&self, spans: &Receiver<Message>) {
        // Each turn begins with a span: a server without requests wakes nobody.
        while let Ok(first) = spans.recv() {
            let mut batch = vec![first];
            let until = Instant::now() + EVERY;
            while batch.len() < BATCH {
                match spans.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(span) => batch.push(span),
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
                }
            }
            let count = batch.len() as u64;
            match self.send(batch) {
                Ok(()) => self.counts.sent.fetch_add(count, Ordering::Relaxed),
                Err(error) => {
                    tracing::warn!("traces are lost: {error}");
                    self.counts.lost.fetch_add(count, Ordering::Relaxed)
                }
            };
        }
    }

    fn send(&self, spans: Vec<Message>) -> Result<(), String> {
        let version = env!("CARGO_PKG_VERSION");
        let resource = json!({"attributes": [
            {"key": "service.name", "value": {"stringValue": self.service}},
            {"key": "service.version", "value": {"stringValue": version}},
        ]});
        let body = json!({"resourceSpans": [{
            "resource": resource,
            "scopeSpans": [{"scope": {"name": "dunlin", "version": version}, "spans": spans}],
        }]});
        let body = body.to_string();
        let answer = self.client.post("", "application/json", body.as_bytes());
        let answer = answer.map_err(|error| error.to_string())?;
        if (200..300).contains(&answer.status) {
            return Ok(());
        }
        let mut what = format!("the collector answers {}", answer.status);
        let mut text = String::new();
        if answer.take(200).read_to_string(&mut text).is_ok() && !text.is_empty() {
            // Writing to a String cannot fail.
            let _ = write!(what, ": {}", text.escape_debug());
        }
        Err(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_well_formed_parent_is_taken_over() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let good = format!("00-{trace}-b7ad6b7169203331-01");
        let parent = parse(good.as_bytes()).unwrap();
        assert_eq!((parent.id, parent.is_sampled), (0xb7ad_6b71_6920_3331, true));
        assert!(!parse(format!("00-{trace}-b7ad6b7169203331-00").as_bytes()).unwrap().is_sampled);
        assert!(parse(format!("01-{trace}-b7ad6b7169203331-01-x").as_bytes()).is_none());
        assert!(parse(format!("01-{trace}-b7ad6b7169203331-01-ab").as_bytes()).is_some());
        for wrong in [
            format!("{good}-00"),
            format!("ff-{trace}-b7ad6b7169203331-01"),
            format!("00-{}-b7ad6b7169203331-01", trace.to_uppercase()),
            format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)),
            format!("00-{trace}-0000000000000000-01"),
            format!("00-{trace}-b7ad6b7169203331"),
            format!("00-+{}-b7ad6b7169203331-01", &trace[1..]),
            String::new(),
        ] {
            assert!(parse(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }
}
