//! Context of a request to a script or an upstream: id, timestamps, captured standard error.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_net::clock;

/// Context of one request to a script or an upstream. The script, the logs and the response use it.
#[derive(Debug)]
pub struct ScriptContext {
    /// The request head was complete.
    received: Instant,
    /// A process was available, and the body was received if it had to be.
    chosen: Cell<Option<Instant>>,
    /// The program was loaded: between `chosen` and this are fork and exec.
    started: Cell<Option<Instant>>,
    /// The whole request body was written to the script.
    pub request_sent: Cell<Option<Instant>>,
    /// The first byte of the script's output arrived.
    pub first_byte: Cell<Option<Instant>>,
    /// The script's output ended.
    pub ended: Cell<Option<Instant>>,
    /// Time for which a script within the server's process has run.
    pub guest: Cell<Option<Duration>>,
    id: OnceCell<Box<str>>,
    /// Value of `traceparent` for the script, if the server traces the request.
    pub traceparent: Option<Box<str>>,
    /// The request is for an upstream.
    is_proxied: Cell<bool>,
    /// The upstream that got the request last.
    upstream: RefCell<Option<Arc<str>>>,
    /// The number of times that the request was sent again.
    retries: Cell<u32>,
    /// Captured lines of standard error; `None` if they are not shown to the client.
    errors: RefCell<Option<String>>,
}

/// Maximum of captured bytes of standard error.
const ERRORS: usize = 16 * 1024;

impl ScriptContext {
    /// Creates the context of a request whose head was complete at `received`.
    #[inline]
    pub fn new(received: Instant, traceparent: Option<Box<str>>) -> Self {
        Self {
            received,
            traceparent,
            chosen: Cell::default(),
            started: Cell::default(),
            request_sent: Cell::default(),
            first_byte: Cell::default(),
            ended: Cell::default(),
            guest: Cell::default(),
            id: OnceCell::new(),
            is_proxied: Cell::new(false),
            upstream: RefCell::default(),
            retries: Cell::new(0),
            errors: RefCell::default(),
        }
    }

    /// Sets when a process was `chosen` and when it got the request or was `started`. Resets later timestamps.
    #[inline]
    pub fn start(&self, chosen: Instant, started: Instant) {
        self.chosen.set(Some(chosen));
        self.started.set(Some(started));
        for later in [&self.request_sent, &self.first_byte, &self.ended] {
            later.set(None);
        }
    }

    /// Sets a timestamp to the current time.
    #[inline]
    pub fn mark(&self, timestamp: &Cell<Option<Instant>>) {
        timestamp.set(Some(clock::now()));
    }

    /// Returns when the script got the request, or else when the request arrived.
    #[inline]
    pub fn started(&self) -> Instant {
        self.started.get().unwrap_or(self.received)
    }

    /// Returns the request id, if it is set.
    pub fn named_id(&self) -> Option<String> {
        self.id.get().map(ToString::to_string)
    }

    /// Returns the request id; empty if it is not set.
    #[inline]
    pub fn id(&self) -> &str {
        self.id.get().map_or("", |id| id)
    }

    /// Sets the request id. The first call wins, as an internal redirect to another script keeps the id.
    #[inline]
    pub fn set_id(&self, id: impl FnOnce() -> Box<str>) {
        self.id.get_or_init(id);
    }

    /// Notes that the request is for an upstream.
    #[inline]
    pub fn set_proxied(&self) {
        self.is_proxied.set(true);
    }

    /// Returns whether the request is for an upstream.
    #[inline]
    pub fn is_proxied(&self) -> bool {
        self.is_proxied.get()
    }

    /// Sets the upstream that gets the request.
    #[inline]
    pub fn set_upstream(&self, name: &Arc<str>) {
        *self.upstream.borrow_mut() = Some(Arc::clone(name));
    }

    /// Returns the upstream that got the request last.
    pub fn upstream(&self) -> Option<Arc<str>> {
        self.upstream.borrow().clone()
    }

    /// Counts another attempt at an upstream.
    pub fn count_retry(&self) {
        self.retries.set(self.retries.get() + 1);
    }

    /// Returns how often the request was sent again.
    pub fn retries(&self) -> u32 {
        self.retries.get()
    }

    /// Returns the time from the connection to the upstream to the first byte of its response, in nanoseconds.
    pub fn upstream_ns(&self) -> Option<u64> {
        self.upstream.borrow().as_ref()?;
        let (started, first_byte) = (self.started.get()?, self.first_byte.get()?);
        Some(first_byte.saturating_duration_since(started).as_nanos() as u64)
    }

    /// Returns the time to the connection to the upstream, in nanoseconds: waiting and connecting.
    pub fn connect_ns(&self) -> Option<u64> {
        self.upstream.borrow().as_ref()?;
        Some(self.started.get()?.saturating_duration_since(self.received).as_nanos() as u64)
    }

    /// Captures standard error from now on.
    pub fn keep_errors(&self) {
        self.errors.borrow_mut().get_or_insert_default();
    }

    /// Returns the captured standard error.
    pub fn errors(&self) -> String {
        self.errors.borrow().clone().unwrap_or_default()
    }

    /// Adds a line of standard error, if it is captured.
    pub fn add_error(&self, line: &str) {
        if let Some(errors) = &mut *self.errors.borrow_mut()
            && errors.len() + line.len() < ERRORS
        {
            errors.push_str(line);
            errors.push('\n');
        }
    }

    /// Returns the name of each timestamp that is set, in nanoseconds since the request head, and the time for which a
    /// component has run.
    pub(crate) fn timestamps(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let timestamps = [
            ("chosen", &self.chosen),
            ("started", &self.started),
            ("request_sent", &self.request_sent),
            ("first_byte", &self.first_byte),
            ("ended", &self.ended),
        ];
        let guest = self.guest.get().map(|guest| ("guest", guest.as_nanos() as u64));
        let since = |(name, timestamp): (_, &Cell<Option<Instant>>)| {
            let since = timestamp.get()?.saturating_duration_since(self.received);
            Some((name, since.as_nanos() as u64))
        };
        timestamps.into_iter().filter_map(since).chain(guest)
    }

    /// Returns the phases so far as a value of `Server-Timing`, in milliseconds.
    pub fn server_timing(&self) -> String {
        let millis = |from: Instant, to: Instant| (to - from).as_secs_f64() * 1000.0;
        let (chosen, started) = (self.chosen.get().unwrap_or(self.received), self.started());
        if let Some(guest) = self.guest.get() {
            let instantiate = started.saturating_duration_since(chosen);
            return format!(
                "wait;dur={:.3}, instantiate;dur={:.3}, guest;dur={:.3}",
                millis(self.received, chosen),
                instantiate.as_secs_f64() * 1000.0,
                guest.saturating_sub(instantiate).as_secs_f64() * 1000.0
            );
        }
        let mut text = format!(
            "wait;dur={:.3}, start;dur={:.3}",
            millis(self.received, chosen),
            millis(chosen, started)
        );
        if let Some(request_sent) = self.request_sent.get() {
            text.push_str(&format!(", body;dur={:.3}", millis(started, request_sent)));
        }
        if let Some(first_byte) = self.first_byte.get() {
            text.push_str(&format!(", script;dur={:.3}", millis(started, first_byte)));
        }
        text
    }

    /// Logs the timestamps at level debug.
    pub fn log_timestamps(&self, script: &str, pid: i32) {
        let nanos = |to: Option<Instant>| {
            to.map(|to| to.duration_since(self.received).as_nanos() as u64).unwrap_or_default()
        };
        tracing::debug!(
            script,
            pid,
            request_id = self.id(),
            chosen = nanos(self.chosen.get()),
            started = nanos(self.started.get()),
            request_sent = nanos(self.request_sent.get()),
            first_byte = nanos(self.first_byte.get()),
            ended = nanos(Some(clock::now())),
            "script finished; timestamps in nanoseconds since the request"
        );
    }
}
