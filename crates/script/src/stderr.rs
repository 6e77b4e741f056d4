//! Scripts' standard error, which goes to the error log: each line as an event, and a traceback as one.

use std::collections::VecDeque;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dunlin_telemetry::ScriptContext;
use tokio::net::unix::pipe;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::process::GROUP_GRACE;

/// The log target of lines that scripts have written.
pub const SCRIPTS: &str = "dunlin::scripts";

/// Longest logged part of a line, in bytes.
const LINE: usize = 4 * 1024;
/// Logged bytes per process, and per [`WINDOW`] for a worker. What follows is read and dropped.
const MAX_LOGGED: usize = 64 * 1024;
const WINDOW: Duration = Duration::from_secs(10);

/// Bytes of a worker's lines that are kept for error pages. When no line has come for [`QUIET`], there are probably
/// no more.
const MAX_RECENT: usize = 16 * 1024;
/// The memory of a line besides its text.
const LINE_COST: usize = 64;
const QUIET: Duration = Duration::from_millis(20);

/// Reads in a row before other futures of the script are polled: one that writes without end must not delay its own
/// time limits.
pub(super) const TURN: u64 = 16;

/// The owner of lines.
pub(super) trait LineSubject {
    /// Returns the request, if the lines belong to one.
    fn request(&self) -> Option<&ScriptContext>;

    /// Records a line that cannot be assigned to a request.
    fn record(&self, _line: &str) {}
}

impl LineSubject for &ScriptContext {
    fn request(&self) -> Option<&ScriptContext> {
        Some(self)
    }
}

impl LineSubject for Rc<ScriptContext> {
    fn request(&self) -> Option<&ScriptContext> {
        Some(self)
    }
}

/// The requests of a worker, one after the other or many at once.
pub(super) struct ManyRequests(Option<Arc<RecentStderr>>);

impl LineSubject for ManyRequests {
    fn request(&self) -> Option<&ScriptContext> {
        None
    }

    fn record(&self, line: &str) {
        if let Some(recent) = &self.0 {
            recent.add(line);
        }
    }
}

/// The lines that a worker wrote lately, for error pages. Lines do not name their request: those that were written
/// while a request ran are taken for its own.
#[derive(Debug, Default)]
pub(super) struct RecentStderr {
    state: Mutex<RecentLines>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct RecentLines {
    lines: VecDeque<(Instant, String)>,
    length: usize,
    /// The pipe is closed.
    closed: bool,
}

impl RecentStderr {
    /// The pipe is closed.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_waiters();
    }

    /// Adds the lines since `from` to the request, after a short wait for more of them.
    pub(super) async fn collect(&self, from: Instant, script_context: &ScriptContext) {
        // After this time, the lines so far have to do.
        let _ = timeout(GROUP_GRACE, self.silence(from)).await;
        let state = self.lock();
        let lines = state.lines.iter().filter(|(at, _)| *at >= from);
        lines.for_each(|(_, line)| script_context.add_error(line));
    }

    /// Waits until lines have come since `from` and no more follow.
    async fn silence(&self, from: Instant) {
        loop {
            let changed = self.changed.notified();
            let (closed, some) = {
                let state = self.lock();
                (state.closed, state.lines.back().is_some_and(|(at, _)| *at >= from))
            };
            if closed {
                return;
            }
            if !some {
                changed.await;
            } else if timeout(QUIET, changed).await.is_err() {
                return;
            }
        }
    }

    fn add(&self, line: &str) {
        let mut state = self.lock();
        state.length += line.len() + LINE_COST;
        state.lines.push_back((Instant::now(), line.to_owned()));
        while state.length > MAX_RECENT
            && let Some((_, line)) = state.lines.pop_front()
        {
            state.length -= line.len() + LINE_COST;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, RecentLines> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads one process's standard error.
pub(super) struct Stderr<'a, A: LineSubject> {
    pipe: pipe::Receiver,
    lines: Lines<&'a str, A>,
}

/// Joins pieces to lines and logs them, up to a limit.
pub(super) struct Lines<S: Deref<Target = str>, A: LineSubject> {
    script: S,
    pid: i32,
    subject: A,
    line: Vec<u8>,
    event: Event,
    logged: usize,
    dropped: u64,
    /// The start of the current [`WINDOW`], if the limit is per window.
    window: Option<Instant>,
    /// More lines may follow within [`QUIET`], after which the owner logs the event.
    waits: bool,
}

impl<'a> Stderr<'a, &'a ScriptContext> {
    /// Creates the standard error of a process that runs one script.
    pub(super) fn new(
        pipe: pipe::Receiver,
        script: &'a str,
        pid: i32,
        script_context: &'a ScriptContext,
    ) -> Self {
        let mut lines = Lines::new(script, pid, script_context);
        lines.waits = true;
        Self { pipe, lines }
    }
}

impl<'a> Stderr<'a, ManyRequests> {
    /// Returns the standard error of a worker.
    pub(super) fn of_worker(
        pipe: pipe::Receiver,
        scripts: &'a str,
        pid: i32,
        recent: Option<Arc<RecentStderr>>,
    ) -> Self {
        let mut lines = Lines::new(scripts, pid, ManyRequests(recent));
        lines.window = Some(Instant::now());
        lines.waits = true;
        Self { pipe, lines }
    }
}

impl<A: LineSubject> Stderr<'_, A> {
    /// Logs lines until the other end is closed.
    pub(super) async fn log(&mut self) {
        let mut buffer = [0; 2048];
        for reads in 1_u64.. {
            if reads.is_multiple_of(TURN) {
                tokio::task::yield_now().await;
            }
            let readable = match self.lines.event.is_open() {
                false => self.pipe.readable().await,
                true => match timeout(QUIET, self.pipe.readable()).await {
                    Ok(readable) => readable,
                    Err(_) => {
                        self.lines.log_event();
                        continue;
                    }
                },
            };
            if readable.is_err() {
                return;
            }
            match self.pipe.try_read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => self.lines.take(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }
}

impl<S: Deref<Target = str>, A: LineSubject> Lines<S, A> {
    /// Lines that the process `pid` writes for `script`.
    pub(super) fn new(script: S, pid: i32, subject: A) -> Self {
        Self {
            script,
            pid,
            subject,
            line: Vec::new(),
            event: Event::default(),
            logged: 0,
            dropped: 0,
            window: None,
            waits: false,
        }
    }

    pub(super) fn take(&mut self, mut bytes: &[u8]) {
        if self.window.is_some_and(|began| began.elapsed() >= WINDOW) {
            self.log_dropped();
            self.logged = 0;
            self.window = Some(Instant::now());
        }
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            self.add(&bytes[..end]);
            self.log_line();
            bytes = &bytes[end + 1..];
        }
        self.add(bytes);
        if !self.waits && self.line.is_empty() {
            self.log_event();
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        let room = LINE.saturating_sub(self.line.len()).min(MAX_LOGGED.saturating_sub(self.logged));
        let kept = bytes.len().min(room);
        self.line.extend_from_slice(&bytes[..kept]);
        self.logged += kept;
        self.dropped += (bytes.len() - kept) as u64;
    }

    fn log_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let text = printable(line.strip_suffix(b"\r").unwrap_or(&line));
        if !text.is_empty() {
            match self.subject.request() {
                Some(script_context) => script_context.add_error(&text),
                None => self.subject.record(&text),
            }
        }
        if !self.event.takes(&text) {
            self.log_event();
        }
        self.event.add(&text);
        // Counts empty lines too, so that these are limited as well.
        self.logged += 1;
        self.line = line;
        self.line.clear();
    }

    /// Logs the lines that belong together so far.
    fn log_event(&mut self) {
        let Some(text) = self.event.end() else { return };
        let (script, pid) = (&*self.script, self.pid);
        match self.subject.request() {
            Some(script_context) => {
                tracing::warn!(target: SCRIPTS, script, pid, request_id = script_context.id(), "stderr: {text}");
            }
            None => tracing::warn!(target: SCRIPTS, script, pid, "stderr: {text}"),
        }
    }

    fn log_dropped(&mut self) {
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            let (script, pid) = (&*self.script, self.pid);
            tracing::warn!(target: SCRIPTS, script, pid, "stderr: {dropped} more bytes were left out");
        }
    }
}

impl<S: Deref<Target = str>, A: LineSubject> Drop for Lines<S, A> {
    fn drop(&mut self) {
        self.log_line();
        self.log_event();
        self.log_dropped();
    }
}

/// Lines that belong together: a traceback of Python, or a line and those after it that are indented.
#[derive(Debug, Default)]
struct Event {
    text: String,
    /// Empty lines after the text.
    empty: usize,
    part: Part,
}

/// Which part of a traceback the last line was.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// None of it.
    #[default]
    Other,
    /// The header, or a line of the stack.
    Stack,
    /// The exception, or the sentence that leads to another one.
    Exception,
}

/// The longest text of an event, in bytes.
const MAX_EVENT: usize = 16 * 1024;
const TRACEBACK: &str = "Traceback (most recent call last):";
/// What is between the tracebacks of exceptions that another one has caused.
const BETWEEN: [&str; 2] = [
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
];

impl Event {
    /// Returns `true` if there is a text that more lines may follow.
    fn is_open(&self) -> bool {
        !self.text.is_empty()
    }

    /// Returns `true` if the line belongs to the event, or is the first of one.
    fn takes(&self, line: &str) -> bool {
        if !self.is_open() || line.is_empty() && self.part != Part::Other {
            return true;
        }
        if self.text.len() + line.len() > MAX_EVENT {
            return false;
        }
        match self.part {
            Part::Stack => true,
            Part::Exception => {
                line == TRACEBACK || BETWEEN.contains(&line) || line.starts_with([' ', '\t'])
            }
            // Of PHP, Perl, Node.js and Java.
            Part::Other => {
                let is_frame =
                    line.starts_with('#') && line[1..].starts_with(|c: char| c.is_ascii_digit());
                self.empty == 0
                    && (line.starts_with([' ', '\t'])
                        || is_frame
                        || line == "Stack trace:"
                        || line == TRACEBACK)
            }
        }
    }

    fn add(&mut self, line: &str) {
        if line.is_empty() {
            self.empty += 1;
            return;
        }
        if self.is_open() {
            // Indented, so that no line of a script looks like one of the log.
            self.text.push_str("\n  ");
        }
        self.text.push_str(line);
        self.empty = 0;
        self.part = match self.part {
            _ if line == TRACEBACK => Part::Stack,
            Part::Stack if line.starts_with([' ', '\t']) => Part::Stack,
            Part::Stack | Part::Exception => Part::Exception,
            Part::Other => Part::Other,
        };
    }

    /// Returns the text and begins another event; `None` without a line.
    fn end(&mut self) -> Option<String> {
        let text = std::mem::take(self).text;
        (!text.is_empty()).then_some(text)
    }
}

/// Returns the text with control characters escaped, so that it can neither control a terminal nor begin another line.
pub fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for character in String::from_utf8_lossy(bytes).chars() {
        if character.is_control() && character != '\t' {
            text.extend(character.escape_default());
        } else {
            text.push(character);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the events that the lines make.
    fn events(text: &str) -> Vec<String> {
        let (mut event, mut events) = (Event::default(), Vec::new());
        for line in text.lines() {
            if !event.takes(line) {
                events.extend(event.end());
            }
            event.add(line);
        }
        events.extend(event.end());
        events
    }

    #[test]
    fn a_traceback_is_one_event() {
        let traceback = "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    g()\nValueError: no\n";
        let chained = format!(
            "{traceback}\nDuring handling of the above exception, another exception occurred:\n\n{traceback}"
        );
        assert_eq!(events(traceback).len(), 1);
        assert_eq!(events(&chained).len(), 1);
        let after = events(&format!("before\n{traceback}after\nlast\n"));
        assert_eq!(after.len(), 3, "{after:?}");
        assert!(
            after[0].starts_with("before\n  Traceback") && after[0].ends_with("ValueError: no"),
            "{after:?}"
        );
        // No line of it begins at the margin, where lines of the log begin.
        assert!(events(&chained)[0].lines().skip(1).all(|line| line.starts_with("  ")));
    }

    #[test]
    fn indented_lines_belong_to_the_line_before_and_others_do_not() {
        assert_eq!(events("one\ntwo\nthree\n").len(), 3);
        assert_eq!(events("Error: no\n    at f (a.js:1:2)\n    at g (a.js:3:4)\nnext\n").len(), 2);
        assert_eq!(
            events("PHP Fatal error:  Uncaught E\nStack trace:\n#0 {main}\n  thrown in a.php\n")
                .len(),
            1
        );
        assert_eq!(events("a\n\n  b\n").len(), 2);
    }

    #[test]
    fn the_text_of_an_event_has_a_bound() {
        let lines = format!("one\n{}", format!("  {}\n", "x".repeat(1000)).repeat(40));
        let events = events(&lines);
        assert!(events.len() > 1 && events.iter().all(|event| event.len() <= MAX_EVENT + 3));
    }
}
