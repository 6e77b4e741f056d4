//! Where the time of a script's request went.

use std::cell::Cell;
use std::time::Instant;

/// The moments of one request, by the monotonic clock, which counts nanoseconds.
#[derive(Debug)]
pub(super) struct Phases {
    /// The head had arrived.
    pub(super) received: Instant,
    /// A place for a process was free, and the body was there when it had to be.
    pub(super) chosen: Instant,
    /// The program was loaded: fork and exec lie between `chosen` and this.
    pub(super) started: Instant,
    /// All of the request's body was with the script.
    pub(super) handed_over: Cell<Option<Instant>>,
    /// The script's first byte had arrived.
    pub(super) first_byte: Cell<Option<Instant>>,
}

impl Phases {
    /// The phases of a process that was started just now.
    pub(super) fn new(received: Instant, chosen: Instant) -> Self {
        let started = Instant::now();
        Self {
            received,
            chosen,
            started,
            handed_over: Cell::default(),
            first_byte: Cell::default(),
        }
    }

    /// The phases so far as a `Server-Timing` value, in milliseconds.
    pub(super) fn server_timing(&self) -> String {
        let millis = |from: Instant, to: Instant| (to - from).as_secs_f64() * 1000.0;
        let mut text = format!(
            "wait;dur={:.3}, start;dur={:.3}",
            millis(self.received, self.chosen),
            millis(self.chosen, self.started)
        );
        if let Some(handed_over) = self.handed_over.get() {
            text.push_str(&format!(", body;dur={:.3}", millis(self.started, handed_over)));
        }
        if let Some(first_byte) = self.first_byte.get() {
            text.push_str(&format!(", script;dur={:.3}", millis(self.started, first_byte)));
        }
        text
    }

    /// One line for those who look closely.
    pub(super) fn tell(&self, script: &str, pid: i32) {
        let nanos = |to: Option<Instant>| {
            to.map(|to| to.duration_since(self.received).as_nanos() as u64).unwrap_or_default()
        };
        tracing::debug!(
            script,
            pid,
            chosen = nanos(Some(self.chosen)),
            started = nanos(Some(self.started)),
            handed_over = nanos(self.handed_over.get()),
            first_byte = nanos(self.first_byte.get()),
            ended = nanos(Some(Instant::now())),
            "phases of a script, nanoseconds since its request"
        );
    }
}
