//! Authentication: Basic, or by a request to another service.

mod attempts;
mod basic;
mod fields;
mod forward;
mod users;

pub(crate) use self::attempts::Attempts;
#[cfg(feature = "fleet")]
pub(crate) use self::attempts::WINDOW;
pub(crate) use self::basic::{Basic, Logins};
pub(crate) use self::forward::{Forward, MAX_BODY};
pub(crate) use self::users::UserFile;
use super::{CheckInput, Decision};

/// Authentication of a route.
#[derive(Debug)]
pub(crate) enum Auth {
    Basic(Basic),
    Forward(Forward),
}

impl Auth {
    pub(super) fn check(&self, input: &CheckInput<'_, '_>) -> Decision {
        match self {
            Self::Basic(basic) => basic.check(input),
            Self::Forward(forward) => forward.check(input),
        }
    }
}
