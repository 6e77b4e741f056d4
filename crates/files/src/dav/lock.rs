//! LOCK and UNLOCK.

use dunlin_dav::conditions::Conditions;
use dunlin_dav::headers::{self, Depth};
use dunlin_dav::locks::{Lock, NotLocked, NotRemoved, Submitted, end};
use dunlin_dav::multistatus::{LocksOf, lock_response};
use dunlin_dav::requests::{self, LockRequest};
use dunlin_net::clock;
use rustix::fs::{Mode, OFlags, openat};

use super::conditions::Changed;
use super::tree::{failed, split};
use super::{DavRequest, Outcome, Performed, Tree, tree_path};

impl Tree {
    /// Makes a lock, or lets one last longer (LOCK).
    pub(super) fn lock(&self, request: &DavRequest) -> Performed {
        let head = request.request.as_request();
        let timeout = headers::timeout(&head, self.rules.lock_timeout)?;
        let path = tree_path(&request.path);
        match requests::lock(&request.body)? {
            None => self.refresh(request, &path, timeout),
            Some(wanted) => self.make_lock(request, &path, wanted, timeout),
        }
    }

    fn refresh(&self, request: &DavRequest, path: &[u8], timeout: u64) -> Performed {
        let head = request.request.as_request();
        let conditions = Conditions::parse(headers::conditions(&head)?.ok_or(Outcome::of(400))?)?;
        self.check_conditions(request, path, &[])?;
        let tokens: Vec<&str> = conditions.tokens().collect();
        let submitted = Submitted { tokens: &tokens, user: request.user.as_deref() };
        let now = clock::monotonic_millis();
        let mut locks = self.locks();
        let lock = locks.refresh(&self.lock_path(path), submitted, timeout, now);
        let lock =
            lock.ok_or_else(|| Outcome::error(412, "lock-token-matches-request-uri", None))?;
        Ok(described(lock, now, 200))
    }

    fn make_lock(
        &self,
        request: &DavRequest,
        path: &[u8],
        wanted: LockRequest,
        timeout: u64,
    ) -> Performed {
        let depth = headers::depth(&request.request.as_request())?.unwrap_or(Depth::Infinity);
        if depth == Depth::One {
            return Err(Outcome::of(400));
        }
        let found = self.find(path)?;
        let is_new = found.is_none();
        let is_collection = found.is_some_and(|item| item.is_collection);
        self.check_permitted(path, is_collection)?;
        // Whether other locks permit this one is decided when it is added.
        let parent = split(path).map(|(parent, _)| parent);
        let parent = parent.filter(|_| is_new).map(|path| Changed {
            path,
            with_members: false,
            is_member: false,
        });
        self.check_conditions(request, path, parent.as_slice())?;
        let now = clock::monotonic_millis();
        let lock = Lock {
            token: request.token.as_str().into(),
            href: self.href(path, is_collection).into(),
            is_deep: depth == Depth::Infinity,
            is_exclusive: wanted.is_exclusive,
            owner: wanted.owner,
            user: request.user.clone(),
            timeout,
            expires: end(now, timeout),
        };
        let outcome = described(&lock, now, if is_new { 201 } else { 200 });
        let added = self.locks().add(&self.lock_path(path), lock, self.rules.locks, now);
        added.map_err(|reason| match reason {
            NotLocked::Excluded(href) => Outcome::error(423, "no-conflicting-lock", Some(&href)),
            NotLocked::Full => Outcome::of(503),
        })?;
        if is_new && let Err(outcome) = self.make_empty(path) {
            // The lock of another user may be there, but not of this token.
            let user = request.user.as_deref();
            let _ = self.locks().remove(&self.lock_path(path), &request.token, user, now);
            return Err(outcome);
        }
        Ok(Outcome { lock_token: Some(format!("<{}>", request.token)), ..outcome })
    }

    /// Makes an empty file, which a lock of a new name needs (RFC 4918 §7.3).
    fn make_empty(&self, path: &[u8]) -> Result<(), Outcome> {
        let entry = self.entry(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        self.check_new_name(path, &entry)?;
        openat(&entry.directory, &*entry.name, flags, mode).map(drop).map_err(failed)
    }

    /// Removes a lock (UNLOCK).
    pub(super) fn unlock(&self, request: &DavRequest) -> Performed {
        let head = request.request.as_request();
        let (token, path) = (headers::lock_token(&head)?, tree_path(&request.path));
        self.find(&path)?.ok_or(Outcome::of(404))?;
        self.check_conditions(request, &path, &[])?;
        let now = clock::monotonic_millis();
        let (path, user) = (self.lock_path(&path), request.user.as_deref());
        match self.locks().remove(&path, token, user, now) {
            Ok(()) => Ok(Outcome::of(204)),
            Err(NotRemoved::OfAnother) => Err(Outcome::of(403)),
            Err(NotRemoved::Unknown) => {
                Err(Outcome::error(409, "lock-token-matches-request-uri", None))
            }
        }
    }
}

/// Returns the response that describes a lock.
fn described(lock: &Lock, now: u64, status: u16) -> Outcome {
    let locks = LocksOf { locks: std::slice::from_ref(lock), is_lockable: true, now };
    Outcome { body: Some(lock_response(locks)), ..Outcome::of(status) }
}
