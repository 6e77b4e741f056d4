//! Interim responses with status 103 (RFC 8297): passes their fields from a handler to the connection's driver.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Waker};

use dunlin_http::FieldLines;

/// Queue of early hints of one request. The handler and the driver share it.
#[derive(Debug, Clone)]
pub struct EarlyHints {
    /// `None` if the client does not support interim responses.
    state: Option<Rc<RefCell<State>>>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<FieldLines>,
    driver: Option<Waker>,
}

impl EarlyHints {
    /// Creates a queue. It drops all hints unless the client supports them.
    #[inline]
    pub fn new(is_supported: bool) -> Self {
        Self { state: is_supported.then(Rc::default) }
    }

    /// Sends an interim response with the fields. The driver drops it if the final response has started.
    pub fn send(&self, fields: FieldLines) {
        let Some(state) = &self.state else { return };
        let mut state = state.borrow_mut();
        state.waiting.push(fields);
        if let Some(driver) = state.driver.take() {
            driver.wake();
        }
    }

    /// Takes the queued hints. Wakes the task when there are more.
    #[inline]
    pub fn take(&self, cx: &Context<'_>) -> Vec<FieldLines> {
        let Some(state) = &self.state else { return Vec::new() };
        let mut state = state.borrow_mut();
        match &mut state.driver {
            Some(driver) => driver.clone_from(cx.waker()),
            driver => *driver = Some(cx.waker().clone()),
        }
        std::mem::take(&mut state.waiting)
    }
}
