//! Conditions of access of which one must hold, as with nginx's `satisfy any`.

use std::rc::Rc;
use std::sync::Arc;

use dunlin_config::AccessRules;
use dunlin_net::clock;

use super::{Auth, CheckInput, Decision, Rejection, access};

/// Conditions of access that must all hold.
#[derive(Debug)]
pub(crate) struct Alternative {
    pub(crate) access: Option<AccessRules>,
    pub(crate) auth: Option<Auth>,
}

impl Alternative {
    fn check(&self, input: &CheckInput<'_, '_>) -> Decision {
        let access = self.access.as_ref();
        match access.map_or(Decision::Allow, |rules| access::check(rules, input)) {
            Decision::Allow => self.auth.as_ref().map_or(Decision::Allow, |auth| auth.check(input)),
            decision => decision,
        }
    }
}

pub(super) fn check(all: &Arc<[Alternative]>, input: &CheckInput<'_, '_>) -> Decision {
    let mut rejected = None;
    let (number, mut pending) = match next(all, 0, input, &mut rejected) {
        Next::Wait(number, pending) => (number, pending),
        Next::Over(decision) => return decision,
    };
    let (all, request) = (Arc::clone(all), input.request.to_owned());
    let (services, context) = (Rc::clone(input.services), Rc::clone(input.context));
    Decision::Wait(Box::pin(async move {
        let mut number = number;
        loop {
            match pending.await {
                Ok(()) => return Ok(()),
                Err(rejection) => add(&mut rejected, rejection),
            }
            let (request, now) = (request.as_request(), clock::now());
            let (services, context) = (&services, &context);
            // Its conditions set no fields.
            let (hidden, request) = (&[][..], &request);
            let input = CheckInput { services, request, context, hidden, now, at_once: None };
            match next(&all, number + 1, &input, &mut rejected) {
                Next::Wait(later, decision) => (number, pending) = (later, decision),
                Next::Over(Decision::Reject(rejection)) => return Err(rejection),
                Next::Over(_) => return Ok(()),
            }
        }
    }))
}

enum Next {
    /// The conditions with that number take time.
    Wait(usize, super::PendingDecision),
    Over(Decision),
}

/// Tries the conditions from number `first` on.
fn next(
    all: &[Alternative],
    first: usize,
    input: &CheckInput<'_, '_>,
    rejected: &mut Option<Rejection>,
) -> Next {
    for (number, one) in all.iter().enumerate().skip(first) {
        match one.check(input) {
            Decision::Reject(rejection) => add(rejected, rejection),
            Decision::Wait(pending) => return Next::Wait(number, pending),
            Decision::Allow | Decision::ReceiveBody => return Next::Over(Decision::Allow),
        }
    }
    Next::Over(Decision::Reject(rejected.take().unwrap_or_else(|| Rejection::new(403))))
}

/// Adds the rejection by further conditions. The client gets the first one that lets it authenticate, with the challenges of
/// others; else the first one that is not by its address.
fn add(rejected: &mut Option<Rejection>, other: Rejection) {
    let Some(first) = rejected else {
        *rejected = Some(other);
        return;
    };
    let is_plain = |one: &Rejection| one.response.is_none();
    let lets_authenticate = |one: &Rejection| matches!(one.status, 300..=401);
    if first.status == 401 && other.status == 401 && is_plain(first) && is_plain(&other) {
        first.fields.extend(&other.fields);
    } else if first.status == 403 && is_plain(first)
        || lets_authenticate(&other) && !lets_authenticate(first)
    {
        *first = other;
    }
}
