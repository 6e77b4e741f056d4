//! Links: how lines travel between the coordinator and a generator.

use std::io::{self, BufRead, Write};
use std::sync::mpsc::Sender;
use std::time::Instant;

use serde::Serialize;

use super::protocol::MAX_MESSAGE;

/// One end of a link that sends lines. Dropping it closes the link.
pub trait Link: Send {
    /// Sends a line without its end, and does not wait for the other end. A link that is broken reports it as
    /// [`Event::Closed`].
    fn send(&mut self, line: String);
}

/// An event of a link.
#[derive(Debug)]
pub enum Event {
    /// A line without its end.
    Line(String),
    /// Nothing else will arrive; the reason, for a user.
    Closed(String),
}

/// An event of one of several links.
#[derive(Debug)]
pub struct Arrived {
    /// Number of the link.
    pub from: usize,
    /// The time when it arrived.
    pub at: Instant,
    /// The event.
    pub event: Event,
}

/// Returns a message as a line.
pub(super) fn encode(message: &impl Serialize) -> String {
    // Cannot fail: messages have no keys other than text, and no numbers that JSON lacks.
    serde_json::to_string(message).unwrap_or_default()
}

/// Reads lines to the end of `input` and passes each on. Returns why it ended.
pub(super) fn read_lines(
    input: &mut dyn BufRead,
    mut each: impl FnMut(String) -> bool,
) -> io::Result<()> {
    loop {
        let mut line = Vec::new();
        let limit = MAX_MESSAGE as u64 + 1;
        io::Read::take(&mut *input, limit).read_until(b'\n', &mut line)?;
        if line.pop_if(|byte| *byte == b'\n').is_none() {
            return match line.len() {
                0..=MAX_MESSAGE => Ok(()),
                _ => Err(io::Error::other("a message is too long")),
            };
        }
        if !each(String::from_utf8_lossy(&line).into_owned()) {
            return Ok(());
        }
    }
}

/// Writes lines to `output` as they come, until there are no more or it fails.
pub(super) fn write_lines(output: &mut dyn Write, lines: impl Iterator<Item = Vec<u8>>) {
    for line in lines {
        // The reader of the link reports that it is broken.
        if output.write_all(&line).and_then(|()| output.flush()).is_err() {
            return;
        }
    }
}

/// Reports an event of link `from`, now.
pub(super) fn report(events: &Sender<Arrived>, from: usize, event: Event) -> bool {
    events.send(Arrived { from, at: Instant::now(), event }).is_ok()
}
