//! What is known of a request besides its bytes, from its arrival to its log line.
#![expect(dead_code, reason = "metrics and traces come next")]

use std::rc::Rc;
use std::time::{Duration, Instant};

use dunlin_http::FieldLines;

use super::Course;
use crate::gate::{ConnectionPace, Pacer, Pass};

/// One request's way through the server. It is made when the head has arrived, and ends with
/// [`Loop::record`](crate::event_loop::Loop::record); whatever the gates lent to the request is given
/// back with it.
#[derive(Debug)]
pub(crate) struct Track {
    /// The site's number.
    pub(crate) site: usize,
    /// What the gates know of who asks; `None` when the route has none.
    pub(crate) pass: Option<Rc<Pass>>,
    /// What a script tells of it; `None` when it is for none.
    pub(crate) course: Option<Rc<Course>>,
    /// Whether the access log has a line for it.
    pub(crate) is_logged: bool,
    pub(crate) phases: Phases,
}

/// Moments on the way of one request. What happened at once, within the same turn of the loop, has
/// no moment of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Phases {
    /// Its first byte was read.
    pub(crate) first_byte: Instant,
    /// Its head was complete.
    pub(crate) head: Instant,
    /// The first byte of the answer was written.
    pub(crate) first_out: Option<Instant>,
}

impl Track {
    /// Of a request whose head is complete now. `first_byte` is when its first byte was read, where
    /// that is known.
    #[inline]
    pub(crate) fn new(first_byte: Option<Instant>) -> Self {
        let head = Instant::now();
        let first_byte = first_byte.unwrap_or(head);
        let phases = Phases { first_byte, head, first_out: None };
        Self { site: 0, pass: None, course: None, is_logged: true, phases }
    }

    /// With what the router found out. Even when nobody wants to know of requests, one that gates
    /// have let pass is followed to its end, for what they lent to it.
    #[inline]
    pub(crate) fn routed(
        track: Option<Self>,
        site: usize,
        pass: Option<Rc<Pass>>,
        is_logged: bool,
    ) -> Option<Self> {
        let track = match (track, &pass) {
            (None, None) => return None,
            (track, _) => track.unwrap_or_else(|| Self::new(None)),
        };
        Some(Self { site, pass, is_logged, ..track })
    }

    /// Adds to the answer's fields what the gates say of it.
    pub(crate) fn tell(&self, fields: &mut FieldLines) {
        if let Some(pass) = &self.pass {
            pass.tell(fields);
        }
    }

    /// Whether the answer's body has to be sent piece by piece, as a throttle lets it.
    #[inline]
    pub(crate) fn pacer(&self, connection: &mut Option<ConnectionPace>) -> Option<Pacer> {
        self.pass.as_ref()?.pacer(connection)
    }

    /// Whether the gates have something to say in the answer.
    #[inline]
    pub(crate) fn has_fields(&self) -> bool {
        self.pass.as_ref().is_some_and(|pass| pass.has_fields())
    }

    /// How long the gates had it wait.
    pub(crate) fn waited(&self) -> Duration {
        let passed = self.pass.as_ref().and_then(|pass| pass.passed());
        passed.map_or(Duration::ZERO, |passed| passed.saturating_duration_since(self.phases.head))
    }
}
