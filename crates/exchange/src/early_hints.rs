//! Interim responses (RFC 9110 §15.2), above all with status 103 (RFC 8297): passes them from a handler to the
//! connection's driver.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Waker};

use dunlin_http::FieldLines;

/// An interim response: its status, which is neither 100 nor 101, and its fields.
pub type Interim = (u16, FieldLines);

/// Queue of the interim responses of one request. The handler and the driver share it.
#[derive(Debug, Clone)]
pub struct EarlyHints {
    /// `None` if the client does not support interim responses.
    state: Option<Rc<RefCell<State>>>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Interim>,
    driver: Option<Waker>,
}

impl EarlyHints {
    /// Creates a queue. It drops all responses unless the client supports them.
    #[inline]
    pub fn new(is_supported: bool) -> Self {
        Self { state: is_supported.then(Rc::default) }
    }

    /// Sends an interim response with status 103 and the fields. The driver drops it if the final response has started.
    pub fn send(&self, fields: FieldLines) {
        self.send_interim((103, fields));
    }

    /// Sends an interim response. The driver drops it if the final response has started.
    pub fn send_interim(&self, interim: Interim) {
        let Some(state) = &self.state else { return };
        let mut state = state.borrow_mut();
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
