//! The state of the decoding of one text: the number of values that it may still make, and the place of an error.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;

use serde::de::Error;

use super::Invalid;

/// The number of values that a text may have beyond its length in bytes. More values than bytes are possible since absent
/// fields are values.
const EXTRA_VALUES: usize = 16_384;

/// The longest reason of an error, in bytes. Names and values in it come from the client.
const MAX_REASON: usize = 300;

pub(super) struct Progress {
    values: Cell<usize>,
    /// From the innermost to the outermost.
    place: RefCell<Vec<Segment>>,
}

/// A step from a value to one in it.
pub(super) enum Segment {
    Name(String),
    Index(usize),
}

impl Progress {
    pub(super) fn new(length: usize) -> Self {
        Self { values: Cell::new(length.saturating_add(EXTRA_VALUES)), place: RefCell::default() }
    }

    /// Counts further values, which bounds the memory that a text can take.
    pub(super) fn count<E: Error>(&self, values: usize) -> Result<(), E> {
        match self.values.get().checked_sub(values) {
            Some(left) => {
                self.values.set(left);
                Ok(())
            }
            None => Err(E::custom("there are more values than the length of the text permits")),
        }
    }

    /// Adds the place of the inner value to its error.
    pub(super) fn within<T, E>(
        &self,
        result: Result<T, E>,
        segment: impl FnOnce() -> Segment,
    ) -> Result<T, E> {
        if result.is_err() {
            self.place.borrow_mut().push(segment());
        }
        result
    }

    /// Returns the error with its place.
    pub(super) fn invalid(&self, error: &serde_json::Error) -> Invalid {
        let mut pointer = String::new();
        for segment in self.place.borrow().iter().rev() {
            let _ = match segment {
                Segment::Name(name) => {
                    write!(pointer, "/{}", name.replace('~', "~0").replace('/', "~1"))
                }
                Segment::Index(index) => write!(pointer, "/{index}"),
            };
        }
        let mut reason = error.to_string();
        if error.is_data() {
            // The pointer has the place.
            let position = format!(" at line {} column {}", error.line(), error.column());
            if let Some(without) = reason.strip_suffix(&position) {
                reason.truncate(without.len());
            }
        }
        if reason.len() > MAX_REASON {
            let end = (0..=MAX_REASON)
                .rev()
                .find(|end| reason.is_char_boundary(*end))
                .unwrap_or_default();
            reason.truncate(end);
            reason.push_str("...");
        }
        Invalid { pointer, reason }
    }
}
