//! Authentication: Basic, or by a request to another service.

mod attempts;
mod basic;
mod fields;
mod forward;
mod users;

use self::attempts::Attempts;
pub(crate) use self::basic::{Basic, BasicRules, Logins};
pub(crate) use self::fields::{DEFAULT_FIELDS, check_passed_field};
pub(crate) use self::forward::{Forward, Target};
pub(crate) use self::users::UserFile;
use super::{CheckInput, Decision};

/// Authentication as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AuthRules {
    Basic(BasicRules),
    Forward(Forward),
}

impl AuthRules {
    /// The text of `dunlin check --explain`.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Basic(basic) => basic.describe(),
            Self::Forward(forward) => forward.describe(),
        }
    }
}

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
