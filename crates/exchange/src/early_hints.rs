//! Interim responses (RFC 9110 §15.2), above all with status 103 (RFC 8297): passes them from a handler to the
//! connection's driver.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Waker};

use dunlin_http::FieldLines;

/// An interim response: its status, which is neither 100 nor 101, and its fields.
pub type Interim = (u16, FieldLines);

/// Queue of the interim responses of one request, which drops those beyond a bound. The handler and the driver share it.
#[derive(Debug, Clone)]
pub struct EarlyHints {
    /// `None` if the client does not support interim responses.
    state: Option<Rc<RefCell<State>>>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Interim>,
    /// The number of hints that were sent, and the bytes of their fields.
    count: usize,
    size: usize,
    driver: Option<Waker>,
}

/// Most interim responses to one request.
const MAX: usize = 100;
/// Most bytes of their fields together.
const MAX_SIZE: usize = 64 * 1024;

impl EarlyHints {
    /// Creates a queue. It drops all responses unless the client supports them.
    #[inline]
    pub fn new(is_supported: bool) -> Self {
        Self { state: is_supported.then(Rc::default) }
    }

    /// Sends an interim response with status 103 and the fields.
    pub fn send(&self, fields: FieldLines) {
        self.send_interim((103, fields));
    }

    /// Sends an interim response. It is dropped if there were too many, and by the driver if the final response has started.
    pub fn send_interim(&self, interim: Interim) {
        let Some(state) = &self.state else { return };
        let mut state = state.borrow_mut();
        state.count += 1;
        state.size += interim.1.as_bytes().len();
        if state.count > MAX || state.size > MAX_SIZE {
            return;
        }
        state.waiting.push(interim);
        if let Some(driver) = state.driver.take() {
            driver.wake();
        }
    }

    /// Takes the queued responses. Wakes the task when there are more.
    #[inline]
    pub fn take(&self, cx: &Context<'_>) -> Vec<Interim> {
        let Some(state) = &self.state else { return Vec::new() };
        let mut state = state.borrow_mut();
        match &mut state.driver {
            Some(driver) => driver.clone_from(cx.waker()),
            driver => *driver = Some(cx.waker().clone()),
        }
        std::mem::take(&mut state.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interim_responses_are_bounded_by_number_and_size() {
        let cx = Context::from_waker(Waker::noop());
        let mut fields = FieldLines::new();
        fields.push("Link", "</a>");
        let hints = EarlyHints::new(true);
        (0..1000).for_each(|_| hints.send(fields.clone()));
        assert_eq!((hints.take(&cx).len(), hints.take(&cx).len()), (MAX, 0));
        fields.push("Link", vec![b'x'; MAX_SIZE / 2]);
        let hints = EarlyHints::new(true);
        (0..10).for_each(|_| hints.send(fields.clone()));
        assert_eq!(hints.take(&cx).len(), 1);
    }
}
