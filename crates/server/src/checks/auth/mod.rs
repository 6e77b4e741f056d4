//! Authentication: Basic, by a request to another service, or by tokens.

mod attempts;
mod basic;
mod fields;
mod forward;
mod jwt;
mod keys;
mod users;

pub(crate) use self::attempts::Attempts;
#[cfg(feature = "fleet")]
pub(crate) use self::attempts::WINDOW;
pub(crate) use self::basic::{Basic, Logins};
pub(crate) use self::forward::{Forward, MAX_BODY};
pub(crate) use self::jwt::Jwt;
pub(crate) use self::keys::{Keys, read_keys};
pub(crate) use self::users::UserFile;
use super::{CheckInput, Decision};

/// Authentication of a route.
#[derive(Debug)]
pub(crate) enum Auth {
    Basic(Basic),
    Forward(Forward),
    Jwt(Jwt),
}

impl Auth {
    pub(super) fn check(&self, input: &CheckInput<'_, '_>) -> Decision {
        match self {
            Self::Basic(basic) => basic.check(input),
            Self::Forward(forward) => forward.check(input),
            Self::Jwt(jwt) => jwt.check(input),
        }
    }
}
