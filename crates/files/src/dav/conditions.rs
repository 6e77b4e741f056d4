//! The conditions of a request: `If`, entity tags and dates, and locks.

use dunlin_dav::conditions::{Conditions, State};
use dunlin_dav::headers::{self, Place};
use dunlin_dav::locks::Submitted;
use dunlin_http::semantics::conditional::{PreconditionOutcome, Validators};
use dunlin_net::clock;

use super::tree::split;
use super::{DavRequest, Outcome, Tree, decoded, tree_path};
use crate::select::precondition;

/// A resource that a request changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Changed<'p> {
    pub(super) path: &'p [u8],
    /// All members of the collection change, too.
    pub(super) with_members: bool,
    /// It is added to its collection, or removed from it.
    pub(super) is_member: bool,
}

impl Tree {
    /// Evaluates the conditions of a request for `path`, and the locks of what it changes.
    ///
    /// # Errors
    /// 412 if a condition does not hold, 423 if a lock prevents the change.
    pub(super) fn check_conditions(
        &self,
        request: &DavRequest,
        path: &[u8],
        changed: &[Changed<'_>],
    ) -> Result<(), Outcome> {
        let head = request.request.as_request();
        let item = self.find(path)?;
        let has_tags = head.has_any(crate::select::SPECIAL);
        let tag = item.as_ref().filter(|_| has_tags).and_then(|item| self.tag(item, true));
        let last_modified = item.as_ref().and_then(|item| self.modified(item));
        let current = item.as_ref().map(|_| Validators { etag: tag.as_ref(), last_modified });
        if precondition(&head, current.as_ref()) == PreconditionOutcome::PreconditionFailed {
            return Err(Outcome::of(412));
        }
        let conditions = match headers::conditions(&head)? {
            Some(value) => Some(Conditions::parse(value)?),
            None => None,
        };
        if let Some(conditions) = &conditions
            && !self.hold(request, path, conditions)
        {
            return Err(Outcome::of(412));
        }
        let tokens: Vec<&str> = conditions.iter().flat_map(Conditions::tokens).collect();
        let submitted = Submitted { tokens: &tokens, user: request.user.as_deref() };
        let (locks, now) = (self.locks(), clock::monotonic_millis());
        for Changed { path, with_members, is_member } in changed {
            let check = |path: &[u8], with_members| {
                locks.check(&self.lock_path(path), with_members, submitted, now)
            };
            check(path, *with_members).map_err(|href| Outcome::locked(&href))?;
            if let Some((parent, _)) = split(path).filter(|_| *is_member) {
                check(parent, false).map_err(|href| Outcome::locked(&href))?;
            }
        }
        Ok(())
    }

    fn hold(&self, request: &DavRequest, path: &[u8], conditions: &Conditions) -> bool {
        let head = request.request.as_request();
        conditions.hold(|url, state| {
            let other = match url.map(|url| headers::place(&head, url)) {
                None => None,
                Some(Ok(Place::Here(raw))) => match decoded(raw) {
                    Ok(decoded) => Some(tree_path(&decoded)),
                    Err(_) => return false,
                },
                Some(_) => return false,
            };
            let path = other.as_deref().unwrap_or(path);
            match state {
                State::Token(token) => {
                    let (locks, path) = (self.locks(), self.lock_path(path));
                    let mut covering = locks.covering(&path, clock::monotonic_millis());
                    covering.any(|lock| lock.token == *token)
                }
                State::Tag(tag) => {
                    let item = self.find(path).ok().flatten();
                    let found = item.and_then(|item| self.tag(&item, true));
                    found.is_some_and(|found| found.weak_eq(tag))
                }
            }
        })
    }
}
