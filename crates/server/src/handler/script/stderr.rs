//! What scripts write to their standard error, line by line in the error log.

use std::collections::VecDeque;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::unix::pipe;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::process::GROUP_GRACE;

use crate::telemetry::ScriptContext;

/// The target of lines in the error log that scripts have written.
pub const SCRIPTS: &str = "dunlin::scripts";

/// Bytes of a line that are told.
const LINE: usize = 4 * 1024;
/// Bytes of one process that are told; what follows is read and dropped. Of a worker, in each
/// stretch of time.
const MOST: usize = 64 * 1024;
const STRETCH: Duration = Duration::from_secs(10);

/// Bytes of a worker's lines that are kept to be shown, and how long none has to come before those that
/// did are taken for all.
const KEPT: usize = 16 * 1024;
const QUIET: Duration = Duration::from_millis(20);

/// After so many reads, whatever else concerns the script has its turn: one that writes without
/// end must not put off its own timeouts.
pub(super) const TURN: u64 = 16;

/// What is written about.
pub(super) trait About {
    /// The request, when it is one.
    fn request(&self) -> Option<&ScriptContext>;

    /// Keeps a line that is of no known request.
    fn keep(&self, _line: &str) {}
}

impl About for &ScriptContext {
    fn request(&self) -> Option<&ScriptContext> {
        Some(self)
    }
}

impl About for Rc<ScriptContext> {
    fn request(&self) -> Option<&ScriptContext> {
        Some(self)
    }
}

/// One request after the other, or many at once.
pub(super) struct Requests(Option<Arc<Recent>>);

impl About for Requests {
    fn request(&self) -> Option<&ScriptContext> {
        None
    }

    fn keep(&self, line: &str) {
        if let Some(recent) = &self.0 {
            recent.add(line);
        }
    }
}

/// What a worker has written lately, where it is to be shown. It comes by another way than answers do, so
/// that of a request it is only known that it was under way when a line came.
#[derive(Debug, Default)]
pub(super) struct Recent {
    state: Mutex<Kept>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<(Instant, String)>,
    length: usize,
    /// No more comes.
    closed: bool,
}

impl Recent {
    /// No more comes.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_waiters();
    }

    /// Gives the request the lines that came since `from`, and waits a little for such as are on their way.
    pub(super) async fn tell(&self, from: Instant, script_context: &ScriptContext) {
        // More than this is not waited for; what is there then is told.
        let _ = timeout(GROUP_GRACE, self.silence(from)).await;
        let state = self.lock();
        let lines = state.lines.iter().filter(|(at, _)| *at >= from);
        lines.for_each(|(_, line)| script_context.add_error(line));
    }

    /// Waits until something has come since `from` and nothing follows it, or no more comes.
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
        state.length += line.len();
        state.lines.push_back((Instant::now(), line.to_owned()));
        while state.length > KEPT
            && let Some((_, line)) = state.lines.pop_front()
        {
            state.length -= line.len();
        }
        drop(state);
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads one process's standard error.
pub(super) struct Stderr<'a, A: About> {
    pipe: pipe::Receiver,
    lines: Lines<&'a str, A>,
}

/// Tells what comes in pieces line by line, up to a bound.
pub(super) struct Lines<S: Deref<Target = str>, A: About> {
    script: S,
    pid: i32,
    about: A,
    line: Vec<u8>,
    told: usize,
    dropped: u64,
    /// When the bound began to count, where it holds for a stretch of time.
    stretch: Option<Instant>,
}

impl<'a> Stderr<'a, &'a ScriptContext> {
    /// The standard error of a process that runs one script.
    pub(super) fn new(
        pipe: pipe::Receiver,
        script: &'a str,
        pid: i32,
        script_context: &'a ScriptContext,
    ) -> Self {
        Self { pipe, lines: Lines::new(script, pid, script_context) }
    }
}

impl<'a> Stderr<'a, Requests> {
    /// The standard error of a process that stays.
    pub(super) fn of_worker(
        pipe: pipe::Receiver,
        scripts: &'a str,
        pid: i32,
        recent: Option<Arc<Recent>>,
    ) -> Self {
        let mut lines = Lines::new(scripts, pid, Requests(recent));
        lines.stretch = Some(Instant::now());
        Self { pipe, lines }
    }
}

impl<A: About> Stderr<'_, A> {
    /// Tells what comes until the other end is closed.
    pub(super) async fn listen(&mut self) {
        let mut buffer = [0; 2048];
        for reads in 1_u64.. {
            if reads.is_multiple_of(TURN) {
                tokio::task::yield_now().await;
            }
            if self.pipe.readable().await.is_err() {
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

impl<S: Deref<Target = str>, A: About> Lines<S, A> {
    /// What the process `pid` writes for `script`.
    pub(super) fn new(script: S, pid: i32, about: A) -> Self {
        Self { script, pid, about, line: Vec::new(), told: 0, dropped: 0, stretch: None }
    }

    pub(super) fn take(&mut self, mut bytes: &[u8]) {
        if self.stretch.is_some_and(|began| began.elapsed() >= STRETCH) {
            self.tell_of_dropped();
            self.told = 0;
            self.stretch = Some(Instant::now());
        }
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            self.add(&bytes[..end]);
            self.tell();
            bytes = &bytes[end + 1..];
        }
        self.add(bytes);
    }

    fn add(&mut self, bytes: &[u8]) {
        let room = LINE.saturating_sub(self.line.len()).min(MOST.saturating_sub(self.told));
        let kept = bytes.len().min(room);
        self.line.extend_from_slice(&bytes[..kept]);
        self.told += kept;
        self.dropped += (bytes.len() - kept) as u64;
    }

    fn tell(&mut self) {
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        if !line.is_empty() {
            let (script, pid, text) = (&*self.script, self.pid, printable(line));
            match self.about.request() {
                Some(script_context) => {
                    script_context.add_error(&text);
                    tracing::warn!(target: SCRIPTS, script, pid, request_id = script_context.id(), "stderr: {text}");
                }
                None => {
                    self.about.keep(&text);
                    tracing::warn!(target: SCRIPTS, script, pid, "stderr: {text}");
                }
            }
        }
        self.line.clear();
        // So that empty lines do not come without end either.
        self.told += 1;
    }

    fn tell_of_dropped(&mut self) {
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            let (script, pid) = (&*self.script, self.pid);
            tracing::warn!(target: SCRIPTS, script, pid, "stderr: {dropped} more bytes were left out");
        }
    }
}

impl<S: Deref<Target = str>, A: About> Drop for Lines<S, A> {
    fn drop(&mut self) {
        self.tell();
        self.tell_of_dropped();
    }
}

/// The text without what could act upon a terminal or begin another line.
pub(super) fn printable(bytes: &[u8]) -> String {
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
