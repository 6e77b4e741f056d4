//! Traces: exports spans to a collector by OTLP (OpenTelemetry's protocol, as JSON over HTTP).
//!
//! The server continues the trace of the client's request (W3C Trace Context). Spans go through a bounded queue to a
//! separate thread, which encodes and sends them. Spans that do not fit are dropped and counted; workers never wait.

use std::fmt::Write;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dunlin_client::{BlockingClient, Origin, Timeouts, Url};
use dunlin_config::Traces;
use dunlin_http::Request;
use dunlin_http::semantics::host;
use dunlin_net::address::Peer;
use serde_json::{Value, json};

use super::ids::random;
use super::metrics::{Label, named};
use super::{AccessRecord, Timings};

/// Span of a traced request.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    trace: u128,
    id: u64,
    parent: Option<u64>,
}

/// Exporter of spans.
#[derive(Debug)]
pub struct Tracer {
    sample: f64,
    queue: SyncSender<Message>,
    thread: Mutex<Option<JoinHandle<()>>>,
    counts: Arc<SpanCounts>,
    is_stopping: Arc<AtomicBool>,
}

/// Counters of spans.
#[derive(Debug, Default)]
pub struct SpanCounts {
    /// Spans that the collector has accepted.
    pub sent: AtomicU64,
    /// Spans that were dropped.
    pub lost: AtomicU64,
}

/// Message to the exporter thread.
enum Message {
    Ended(Box<Ended>),
    /// The exporter is closed.
    Stop,
}

/// A finished span, with copies of the data for the collector.
struct Ended {
    span: Span,
    /// Nanoseconds since 1970.
    start: u128,
    end: u128,
    method: Vec<u8>,
    path: Vec<u8>,
    query: Option<Vec<u8>>,
    host: Option<Vec<u8>>,
    user_agent: Option<Vec<u8>>,
    peer: Peer,
    is_encrypted: bool,
    version: &'static str,
    status: u16,
    body_bytes: u64,
    site: Box<str>,
    cache: &'static str,
    label: Label,
    timings: Timings,
}

/// Maximum of queued spans.
const WAITING: usize = 4096;
/// Maximum length of a text in a span in bytes. Clients choose the texts, and spans wait for a collector that stalls.
const MAX_TEXT: usize = 1024;
/// Maximum of spans in one message.
const BATCH: usize = 512;
/// Maximum length of a response in bytes.
const MAX_RESPONSE: u64 = 64 * 1024;
/// Time in which spans are collected for one message.
const EVERY: Duration = Duration::from_secs(1);

impl Span {
    /// Returns the value of `traceparent` for handlers: this span is the parent of theirs.
    pub fn traceparent(&self) -> String {
        format!("00-{:032x}-{:016x}-01", self.trace, self.id)
    }
}

impl Tracer {
    /// Starts the exporter thread.
    ///
    /// # Errors
    /// The endpoint is invalid, or the thread cannot be started.
    pub fn start(settings: &Traces) -> Result<Self, String> {
        let url = Url::parse(&settings.endpoint).map_err(|error| error.to_string())?;
        let trusted = || dunlin_tls::client_config(settings.authority.as_deref());
        let origin = Origin::from_url(&url, trusted)?;
        let client = BlockingClient::new(&origin).map_err(|error| error.to_string())?;
        let client = client.with_timeouts(Timeouts::each(Duration::from_secs(5)));
        let (queue, spans) = sync_channel(WAITING);
        let (counts, is_stopping) = (Arc::<SpanCounts>::default(), Arc::<AtomicBool>::default());
        let exporter = Exporter {
            client,
            url,
            service: settings.service.clone(),
            counts: Arc::clone(&counts),
            is_stopping: Arc::clone(&is_stopping),
        };
        let thread = std::thread::Builder::new()
            .name("traces".into())
            .spawn(move || exporter.run(&spans))
            .map_err(|error| error.to_string())?;
        Ok(Self {
            sample: settings.sample,
            queue,
            thread: Mutex::new(Some(thread)),
            counts,
            is_stopping,
        })
    }

    /// Returns the counters of spans.
    pub fn counts(&self) -> &SpanCounts {
        &self.counts
    }

    /// Starts a span if the request is sampled: by the client's decision, or else at random.
    pub fn begin(&self, request: &Request<'_>) -> Option<Box<Span>> {
        let mut parents =
            request.fields().filter(|(name, _)| name.eq_ignore_ascii_case(b"traceparent"));
        // Several fields are treated as none (W3C Trace Context §3.2).
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

    /// Queues the span of a finished request.
    pub fn end(&self, span: &Span, record: &AccessRecord<'_>, timings: &Timings, label: Label) {
        let ended = Box::new(Ended::new(*span, record, timings, label));
        let result = self.queue.try_send(Message::Ended(ended));
        if result.is_err() {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
        if let Err(TrySendError::Full(_)) = result {
            tracing::warn!("spans come faster than the collector takes them; some are lost");
        }
    }

    /// Sends the queued spans and ends the thread. The timeout of the collector bounds the duration.
    pub fn finish(&self) {
        self.is_stopping.store(true, Ordering::Release);
        // If the queue is full, the thread is awake and checks the flag.
        let _ = self.queue.try_send(Message::Stop);
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

/// Parses `00-TRACE-PARENT-FLAGS` in lower-case hexadecimal digits (W3C Trace Context §3.2.2). Later versions may
/// append fields.
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

impl Ended {
    fn new(span: Span, record: &AccessRecord<'_>, timings: &Timings, label: Label) -> Self {
        let start =
            u128::from(record.started_secs) * 1_000_000_000 + u128::from(record.started_nanos);
        Self {
            span,
            start,
            end: start + u128::from(record.duration_ns),
            method: short(record.method),
            path: short(record.path()),
            query: record.query().map(short),
            host: record.host.map(short),
            user_agent: record.user_agent.map(short),
            peer: record.peer,
            is_encrypted: record.encrypted,
            version: record.version,
            status: record.status,
            body_bytes: record.body_bytes,
            site: record.site.into(),
            cache: record.cache,
            label,
            timings: *timings,
        }
    }
}

/// Returns a text of a request as a waiting span has it.
fn short(text: &[u8]) -> Vec<u8> {
    text[..text.len().min(MAX_TEXT)].into()
}

/// Encodes a span as JSON, by OpenTelemetry's conventions for HTTP servers.
fn encode(ended: &Ended) -> Value {
    let text = |bytes: &[u8]| Value::from(String::from_utf8_lossy(bytes));
    let (_, route) = named(ended.label);
    let version = ended.version.trim_start_matches("HTTP/").trim_end_matches(".0");
    let version = if version == "1" { "1.0" } else { version };
    let mut attributes = Vec::new();
    let mut add = |key: &str, value: Value| {
        let value = match value {
            Value::Number(number) => json!({"intValue": number.to_string()}),
            value => json!({"stringValue": value}),
        };
        attributes.push(json!({"key": key, "value": value}));
    };
    add("http.request.method", text(&ended.method));
    add("url.scheme", if ended.is_encrypted { "https" } else { "http" }.into());
    add("url.path", text(&ended.path));
    if let Some(query) = &ended.query {
        add("url.query", text(query));
    }
    add("http.route", (&*route).into());
    add("http.response.status_code", ended.status.into());
    add("http.response.body.size", ended.body_bytes.into());
    add("network.protocol.version", version.into());
    add("client.address", ended.peer.to_string().into());
    if let Some(host) = ended.host.as_deref().and_then(host::parse) {
        add("server.address", text(host.name));
        if let Some(port) = host.port {
            add("server.port", port.into());
        }
    }
    if let Some(agent) = &ended.user_agent {
        add("user_agent.original", text(agent));
    }
    if ended.status >= 500 || ended.status == 499 {
        add("error.type", ended.status.to_string().into());
    }
    add("dunlin.site", (&*ended.site).into());
    add("dunlin.cache", ended.cache.into());
    for (name, micros) in ended.timings.iter() {
        add(&format!("dunlin.phase.{name}_us"), micros.into());
    }
    let mut message = json!({
        "traceId": format!("{:032x}", ended.span.trace),
        "spanId": format!("{:016x}", ended.span.id),
        "name": format!("{} {route}", String::from_utf8_lossy(&ended.method)).trim_end(),
        "kind": 2,
        "startTimeUnixNano": ended.start.to_string(),
        "endTimeUnixNano": ended.end.to_string(),
        "attributes": attributes,
        "status": if ended.status >= 500 { json!({"code": 2}) } else { json!({}) },
    });
    if let Some(parent) = ended.span.parent {
        message["parentSpanId"] = format!("{parent:016x}").into();
    }
    message
}

/// The exporter thread.
struct Exporter {
    client: BlockingClient,
    url: Url,
    service: String,
    counts: Arc<SpanCounts>,
    is_stopping: Arc<AtomicBool>,
}

impl Exporter {
    fn run(&self, spans: &Receiver<Message>) {
        // Each iteration starts with a span: without requests, the thread sleeps.
        while let Some(first) = self.next(spans, None) {
            let mut batch = vec![encode(&first)];
            let until = Instant::now() + EVERY;
            while batch.len() < BATCH
                && let Some(span) = self.next(spans, Some(until))
            {
                batch.push(encode(&span));
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

    /// Waits for the next span. `None` at the deadline, or if the exporter is closed.
    fn next(&self, spans: &Receiver<Message>, until: Option<Instant>) -> Option<Box<Ended>> {
        let message = match until {
            _ if self.is_stopping.load(Ordering::Acquire) => spans.try_recv().ok(),
            Some(until) => spans.recv_timeout(until.saturating_duration_since(Instant::now())).ok(),
            None => spans.recv().ok(),
        };
        match message? {
            Message::Ended(ended) => Some(ended),
            Message::Stop => None,
        }
    }

    fn send(&self, spans: Vec<Value>) -> Result<(), String> {
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
        let response = self.client.post(self.url.target(), "application/json", body);
        let mut response = response.map_err(|error| error.to_string())?;
        let status = response.status();
        let mut start = String::new();
        // The body is read to its end, so that the connection can serve the next batch.
        let read = response.by_ref().take(200).read_to_string(&mut start);
        let rest = io::copy(&mut response.take(MAX_RESPONSE), &mut io::sink());
        if (200..300).contains(&status) {
            return Ok(());
        }
        let mut what = format!("the collector responds with {status}");
        if read.is_ok() && rest.is_ok() && !start.is_empty() {
            // Writes to a `String` do not fail.
            let _ = write!(what, ": {}", start.escape_debug());
        }
        Err(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_well_formed_parent_is_continued() {
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
