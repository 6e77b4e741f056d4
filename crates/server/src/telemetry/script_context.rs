//! A script's part in a request: by which number it is known, and where its time went.

use std::cell::{Cell, OnceCell, RefCell};
use std::hash::{BuildHasher, RandomState};
use std::time::Instant;

/// What one request to a script goes through, for the script, the log and the answer alike. Moments
/// are by the monotonic clock, which counts nanoseconds.
#[derive(Debug)]
pub(crate) struct ScriptContext {
    /// The head had arrived.
    received: Instant,
    /// A place for a process was free, and the body was there when it had to be.
    chosen: Cell<Option<Instant>>,
    /// The program was loaded: fork and exec lie between `chosen` and this.
    started: Cell<Option<Instant>>,
    /// All of the request's body was with the script.
    pub(crate) handed_over: Cell<Option<Instant>>,
    /// The script's first byte had arrived.
    pub(crate) first_byte: Cell<Option<Instant>>,
    /// The script's output had ended.
    pub(crate) ended: Cell<Option<Instant>>,
    id: OnceCell<Box<str>>,
    /// The `traceparent` of what the script does, when the server itself traces the request.
    pub(crate) traceparent: Option<Box<str>>,
    /// Lines of standard error, where they are to be shown.
    errors: RefCell<Option<String>>,
}

/// Bytes of standard error that are kept to be shown.
const ERRORS: usize = 16 * 1024;

impl ScriptContext {
    /// Of a request whose head had arrived at that moment; `traceparent` when it is traced.
    pub(crate) fn new(received: Instant, traceparent: Option<Box<str>>) -> Self {
        Self {
            received,
            traceparent,
            chosen: Cell::default(),
            started: Cell::default(),
            handed_over: Cell::default(),
            first_byte: Cell::default(),
            ended: Cell::default(),
            id: OnceCell::new(),
            errors: RefCell::default(),
        }
    }

    /// A process was `chosen`, and was given the request, or `started`, at those moments.
    pub(crate) fn start(&self, chosen: Instant, started: Instant) {
        self.chosen.set(Some(chosen));
        self.started.set(Some(started));
        for later in [&self.handed_over, &self.first_byte, &self.ended] {
            later.set(None);
        }
    }

    /// That moment is now.
    pub(crate) fn mark(&self, timestamp: &Cell<Option<Instant>>) {
        timestamp.set(Some(Instant::now()));
    }

    /// When the script had the request, or the request came, as long as none had.
    pub(crate) fn started(&self) -> Instant {
        self.started.get().unwrap_or(self.received)
    }

    /// The number by which the request is known; empty as long as it has none.
    pub(crate) fn id(&self) -> &str {
        self.id.get().map_or("", |id| id)
    }

    /// The first number stays: a script that leads to another has one request with it.
    pub(crate) fn set_id(&self, id: impl FnOnce() -> Box<str>) {
        self.id.get_or_init(id);
    }

    /// Keeps what the script writes to its standard error from now on.
    pub(crate) fn keep_errors(&self) {
        self.errors.borrow_mut().get_or_insert_default();
    }

    /// What was kept of standard error.
    pub(crate) fn errors(&self) -> String {
        self.errors.borrow().clone().unwrap_or_default()
    }

    /// Keeps a line of standard error, where it is to be kept.
    pub(crate) fn add_error(&self, line: &str) {
        if let Some(errors) = &mut *self.errors.borrow_mut()
            && errors.len() + line.len() < ERRORS
        {
            errors.push_str(line);
            errors.push('\n');
        }
    }

    /// Every moment that there was, by its name, in nanoseconds since the request's head had arrived.
    pub(crate) fn timestamps(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let timestamps = [
            ("chosen", &self.chosen),
            ("started", &self.started),
            ("handed_over", &self.handed_over),
            ("first_byte", &self.first_byte),
            ("ended", &self.ended),
        ];
        timestamps.into_iter().filter_map(|(name, timestamp)| {
            let since = timestamp.get()?.saturating_duration_since(self.received);
            Some((name, since.as_nanos() as u64))
        })
    }

    /// The phases so far as a `Server-Timing` value, in milliseconds.
    pub(crate) fn server_timing(&self) -> String {
        let millis = |from: Instant, to: Instant| (to - from).as_secs_f64() * 1000.0;
        let (chosen, started) = (self.chosen.get().unwrap_or(self.received), self.started());
        let mut text = format!(
            "wait;dur={:.3}, start;dur={:.3}",
            millis(self.received, chosen),
            millis(chosen, started)
        );
        if let Some(handed_over) = self.handed_over.get() {
            text.push_str(&format!(", body;dur={:.3}", millis(started, handed_over)));
        }
        if let Some(first_byte) = self.first_byte.get() {
            text.push_str(&format!(", script;dur={:.3}", millis(started, first_byte)));
        }
        text
    }

    /// One line for those who look closely.
    pub(crate) fn log_timestamps(&self, script: &str, pid: i32) {
        let nanos = |to: Option<Instant>| {
            to.map(|to| to.duration_since(self.received).as_nanos() as u64).unwrap_or_default()
        };
        tracing::debug!(
            script,
            pid,
            request_id = self.id(),
            chosen = nanos(self.chosen.get()),
            started = nanos(self.started.get()),
            handed_over = nanos(self.handed_over.get()),
            first_byte = nanos(self.first_byte.get()),
            ended = nanos(Some(Instant::now())),
            "phases of a script, nanoseconds since its request"
        );
    }
}

/// 32 hexadecimal digits by chance.
pub(crate) fn random_id() -> String {
    let mut id = String::with_capacity(32);
    push_hex(random(), &mut id);
    push_hex(random(), &mut id);
    id
}

/// Adds a number's 16 hexadecimal digits.
pub(crate) fn push_hex(number: u64, text: &mut String) {
    let digits: [u8; 16] =
        std::array::from_fn(|at| b"0123456789abcdef"[(number >> (60 - 4 * at) & 15) as usize]);
    text.push_str(std::str::from_utf8(&digits).unwrap_or_default());
}

/// 64 bits that nobody who sees some of them can foretell: SipHash with keys that the system made
/// at random.
pub(crate) fn random() -> u64 {
    // 0 would be no number of a trace, and comes once in 2^64.
    RandomState::new().hash_one(0_u8).max(1)
}
