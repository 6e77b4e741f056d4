//! The locks of a server (RFC 4918 §6, §7), in memory.
//!
//! A lock belongs to a path: absolute, with slashes between its names and none at its end. It ends with its time, which is in
//! milliseconds of any clock that does not go back.

use std::collections::BTreeMap;
use std::ops::Bound;

/// A lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lock {
    /// The token, a URI.
    pub token: Box<str>,
    /// The path of the locked resource, encoded, for clients.
    pub href: Box<str>,
    /// It covers all members of its collection, too.
    pub is_deep: bool,
    /// No other lock is permitted beside it.
    pub is_exclusive: bool,
    /// What the client has written about its owner: an element as text.
    pub owner: Option<Box<str>>,
    /// The user who has made it; `None` without authentication.
    pub user: Option<Box<str>>,
    /// The time in seconds for which it was requested.
    pub timeout: u64,
    /// The time at which it ends.
    pub expires: u64,
}

/// All locks.
#[derive(Debug, Default)]
pub struct Locks {
    by_path: BTreeMap<Box<[u8]>, Vec<Lock>>,
    count: usize,
}

/// Why there is no lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotLocked {
    /// Another lock excludes it, at this path for clients.
    Excluded(Box<str>),
    /// There are too many locks.
    Full,
}

/// Why a lock was not removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotRemoved {
    /// No lock of the path has the token.
    Unknown,
    /// It is that of another user.
    OfAnother,
}

/// What a client has submitted.
#[derive(Debug, Clone, Copy)]
pub struct Submitted<'a> {
    /// Tokens of locks.
    pub tokens: &'a [&'a str],
    /// The user.
    pub user: Option<&'a str>,
}

impl Locks {
    /// Returns the locks that cover a path: its own, and deep ones of its collections.
    pub fn covering<'a>(&'a self, path: &'a [u8], now: u64) -> impl Iterator<Item = &'a Lock> {
        let mut ends: Vec<usize> = (0..path.len()).filter(|&at| path[at] == b'/').collect();
        ends.push(path.len());
        ends.into_iter().flat_map(move |end| {
            let locks = self.by_path.get(&path[..end]).map_or(&[][..], |locks| locks);
            let is_own = end == path.len();
            locks.iter().filter(move |lock| lock.expires > now && (is_own || lock.is_deep))
        })
    }

    /// Returns the locks of the members of a collection.
    pub fn beneath(&self, path: &[u8], now: u64) -> impl Iterator<Item = &Lock> {
        let start = [path, b"/"].concat();
        let range = (Bound::Included(start.clone().into_boxed_slice()), Bound::Unbounded);
        let found = self.by_path.range::<Box<[u8]>, _>(range);
        let found = found.take_while(move |(path, _)| path.starts_with(&start));
        found.flat_map(|(_, locks)| locks).filter(move |lock| lock.expires > now)
    }

    /// Adds a lock for a path. There are at most `max` locks.
    ///
    /// # Errors
    /// If another lock excludes it, or there are too many.
    pub fn add(&mut self, path: &[u8], lock: Lock, max: usize, now: u64) -> Result<(), NotLocked> {
        let excludes = |other: &&Lock| lock.is_exclusive || other.is_exclusive;
        let mut others = self
            .covering(path, now)
            .chain(lock.is_deep.then(|| self.beneath(path, now)).into_iter().flatten());
        if let Some(other) = others.find(excludes) {
            return Err(NotLocked::Excluded(other.href.clone()));
        }
        drop(others);
        if self.count >= max {
            self.remove_expired(now);
        }
        if self.count >= max {
            return Err(NotLocked::Full);
        }
        self.count += 1;
        self.by_path.entry(path.into()).or_default().push(lock);
        Ok(())
    }

    /// Lets the lock with one of the submitted tokens that covers a path last from now on for `timeout` seconds.
    pub fn refresh(
        &mut self,
        path: &[u8],
        submitted: Submitted<'_>,
        timeout: u64,
        now: u64,
    ) -> Option<&Lock> {
        let is_it = |lock: &&Lock| submitted.has(lock);
        let token = self.covering(path, now).find(is_it)?.token.clone();
        let lock = self.by_path.values_mut().flatten().find(|lock| lock.token == token)?;
        (lock.timeout, lock.expires) = (timeout, end(now, timeout));
        Some(lock)
    }

    /// Removes the lock with a token that covers a path.
    ///
    /// # Errors
    /// If there is none, or it is that of another user.
    pub fn remove(
        &mut self,
        path: &[u8],
        token: &str,
        user: Option<&str>,
        now: u64,
    ) -> Result<(), NotRemoved> {
        let lock = self.covering(path, now).find(|lock| *lock.token == *token);
        if lock.ok_or(NotRemoved::Unknown)?.user.as_deref() != user {
            return Err(NotRemoved::OfAnother);
        }
        self.retain(|_, lock| *lock.token != *token);
        Ok(())
    }

    /// Removes the locks of a resource that is no longer there, and those of its members.
    pub fn remove_tree(&mut self, path: &[u8]) {
        let is_within = |other: &[u8]| {
            other.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        self.retain(|other, _| !is_within(other));
    }

    /// Returns `Ok` if a resource may be changed by who has submitted this: one of the tokens is that of a lock which covers it, or
    /// no lock does. With `with_members`, that holds for each member, too.
    ///
    /// # Errors
    /// The path for clients of a lock that prevents it.
    pub fn check(
        &self,
        path: &[u8],
        with_members: bool,
        submitted: Submitted<'_>,
        now: u64,
    ) -> Result<(), Box<str>> {
        let mut covering = self.covering(path, now).peekable();
        if let Some(first) = covering.peek().map(|lock| lock.href.clone())
            && !covering.any(|lock| submitted.has(lock))
        {
            return Err(first);
        }
        if !with_members {
            return Ok(());
        }
        let start = [path, b"/"].concat();
        let members = self.by_path.iter().filter(|(path, _)| path.starts_with(&start));
        for (_, locks) in members {
            let mut there = locks.iter().filter(|lock| lock.expires > now).peekable();
            if let Some(first) = there.peek().map(|lock| lock.href.clone())
                && !there.any(|lock| submitted.has(lock))
            {
                return Err(first);
            }
        }
        Ok(())
    }

    fn remove_expired(&mut self, now: u64) {
        self.retain(|_, lock| lock.expires > now);
    }

    fn retain(&mut self, keep: impl Fn(&[u8], &Lock) -> bool) {
        self.by_path.retain(|path, locks| {
            locks.retain(|lock| keep(path, lock));
            !locks.is_empty()
        });
        self.count = self.by_path.values().map(Vec::len).sum();
    }
}

impl Submitted<'_> {
    /// Returns `true` if the token of the lock was submitted by its user.
    fn has(&self, lock: &Lock) -> bool {
        self.tokens.contains(&&*lock.token) && lock.user.as_deref() == self.user
    }
}

/// Returns the time at which a lock ends that begins at `now`.
pub fn end(now: u64, timeout: u64) -> u64 {
    now.saturating_add(timeout.saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(token: &str, is_exclusive: bool, is_deep: bool) -> Lock {
        Lock {
            token: token.into(),
            href: token.into(),
            is_deep,
            is_exclusive,
            owner: None,
            user: None,
            timeout: 10,
            expires: 10_000,
        }
    }

    fn submitted<'a>(tokens: &'a [&'a str]) -> Submitted<'a> {
        Submitted { tokens, user: None }
    }

    #[test]
    fn locks_exclude_each_other() {
        let mut locks = Locks::default();
        let mut add = |path: &[u8], lock: Lock, now| locks.add(path, lock, 5, now);
        assert_eq!(add(b"/a/b", lock("1", false, false), 0), Ok(()));
        assert_eq!(add(b"/a/b", lock("2", false, false), 0), Ok(()));
        let excluded = |by: &str| Err(NotLocked::Excluded(by.into()));
        assert_eq!(add(b"/a/b", lock("3", true, false), 0), excluded("1"));
        assert_eq!(add(b"/a", lock("3", true, true), 0), excluded("1"), "a member is locked");
        assert_eq!(add(b"/a", lock("3", false, true), 0), Ok(()));
        assert_eq!(
            add(b"/a/c/d", lock("4", true, false), 0),
            excluded("3"),
            "the collection is locked"
        );
        assert_eq!(add(b"/ab", lock("4", true, false), 0), Ok(()), "another name");
        assert_eq!(add(b"/x", lock("5", true, false), 0), Ok(()));
        assert_eq!(add(b"/y", lock("6", true, false), 0), Err(NotLocked::Full));
        let later = Lock { expires: 20_000, ..lock("6", true, false) };
        assert_eq!(add(b"/a/b", later, 10_000), Ok(()), "the others have ended");
    }

    #[test]
    fn a_lock_permits_changes_with_its_token_by_its_user() {
        let mut locks = Locks::default();
        locks.add(b"/a", lock("1", true, true), 9, 0).unwrap();
        let ann = Lock { user: Some("ann".into()), ..lock("2", true, false) };
        locks.add(b"/b/c", ann, 9, 0).unwrap();
        let check = |path: &[u8], members, submitted| locks.check(path, members, submitted, 0);
        assert_eq!(check(b"/a/x", false, submitted(&[])), Err("1".into()));
        assert_eq!(check(b"/a/x", false, submitted(&["2"])), Err("1".into()));
        assert_eq!(check(b"/a/x", false, submitted(&["2", "1"])), Ok(()));
        assert_eq!(check(b"/b", false, submitted(&[])), Ok(()));
        assert_eq!(check(b"/b", true, submitted(&["2"])), Err("2".into()), "of another user");
        let by_ann = Submitted { tokens: &["2"], user: Some("ann") };
        assert_eq!(check(b"/b", true, by_ann), Ok(()));
        assert_eq!(locks.check(b"/a", true, submitted(&[]), 10_000), Ok(()), "it has ended");
    }

    #[test]
    fn locks_are_refreshed_and_removed() {
        let mut locks = Locks::default();
        locks.add(b"", lock("1", true, true), 9, 0).unwrap();
        assert_eq!(locks.refresh(b"/a", submitted(&["2"]), 30, 5_000), None);
        let refreshed = locks.refresh(b"/a", submitted(&["1"]), 30, 5_000).expect("a lock");
        assert_eq!((refreshed.timeout, refreshed.expires), (30, 35_000));
        assert_eq!(locks.remove(b"/a", "2", None, 0), Err(NotRemoved::Unknown));
        assert_eq!(locks.remove(b"/a", "1", Some("ann"), 0), Err(NotRemoved::OfAnother));
        assert_eq!(locks.remove(b"/a", "1", None, 0), Ok(()));
        for path in ["/a", "/a/b", "/ab"] {
            locks.add(path.as_bytes(), lock(path, true, false), 9, 0).unwrap();
        }
        locks.remove_tree(b"/a");
        assert_eq!((locks.covering(b"/a/b", 0).count(), locks.covering(b"/ab", 0).count()), (0, 1));
        assert_eq!(locks.count, 1);
    }
}
