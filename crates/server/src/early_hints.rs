//! What a handler has sent before its answer: the fields of 103 responses (RFC 8297), on their way to
//! the connection's driver.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Waker};

use dunlin_http::FieldLines;

/// The way of one request, for the handler and the driver alike.
#[derive(Debug, Clone)]
pub(crate) struct EarlyHints {
    /// `None` when the client would not understand them.
    state: Option<Rc<RefCell<State>>>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<FieldLines>,
    driver: Option<Waker>,
}

impl EarlyHints {
    /// A way that leads nowhere unless they are `understood`.
    pub(crate) fn new(understood: bool) -> Self {
        Self { state: understood.then(Rc::default) }
    }

    /// Has the fields sent at once. After the answer has begun they are dropped.
    pub(crate) fn send(&self, fields: FieldLines) {
        let Some(state) = &self.state else { return };
        let mut state = state.borrow_mut();
        state.waiting.push(fields);
        if let Some(driver) = state.driver.take() {
            driver.wake();
        }
    }

    /// What was sent; wakes the task when there is more.
    pub(crate) fn take(&self, cx: &Context<'_>) -> Vec<FieldLines> {
        let Some(state) = &self.state else { return Vec::new() };
        let mut state = state.borrow_mut();
        match &mut state.driver {
            Some(driver) => driver.clone_from(cx.waker()),
            driver => *driver = Some(cx.waker().clone()),
        }
        std::mem::take(&mut state.waiting)
    }
}
