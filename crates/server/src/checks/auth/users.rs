//! A file of users that is followed while the server runs.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

use super::basic::Proof;
use crate::checks::keyed::Keyed;
use crate::password::Users;

/// The users of a file, and whose passwords were right of late.
#[derive(Debug)]
pub(crate) struct UserFile {
    state: Mutex<State>,
    /// Held while the file is read.
    reading: Mutex<()>,
    /// Bounds the verifications of this file's users, so that those of one file cannot take all permits of
    /// [`VERIFYING`].
    verifying: Semaphore,
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    users: Arc<Users>,
    /// Of the file that was read.
    stamp: Option<Stamp>,
    /// When the file was last looked at.
    looked: Option<Instant>,
    /// By what the client sent, as `basic::proof` makes it.
    proven: HashMap<Proof, Proven, Keyed>,
    /// Those that go on, by the same.
    comparisons: HashMap<Proof, Weak<OnceCell<bool>>, Keyed>,
    /// That the file cannot be used was logged.
    logged: bool,
}

/// Whether a name and password are right, once that is known.
pub(super) type Comparison = Arc<OnceCell<bool>>;

#[derive(Debug)]
struct Proven {
    name: Arc<str>,
    until: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: (i64, i64),
    changed: (i64, i64),
    size: u64,
    inode: u64,
}

impl Stamp {
    fn of(facts: &Metadata) -> Self {
        Self {
            modified: (facts.mtime(), facts.mtime_nsec()),
            changed: (facts.ctime(), facts.ctime_nsec()),
            size: facts.size(),
            inode: facts.ino(),
        }
    }
}

/// How long a password that was right is taken to be right without a comparison.
const PROVEN: Duration = Duration::from_secs(60);
/// So many of these are remembered.
const MOST: usize = 4096;
/// Requests that wait for the verification of a password, for each file.
const MOST_WAITING: usize = 64;
/// Passwords that are verified at once, for each file. Verification is slow by intent, and other work needs these
/// threads too.
const PER_FILE: usize = 2;
/// Passwords that are verified at once in the whole process: each takes as much memory as its hash says, up to
/// 1 GiB.
static VERIFYING: Semaphore = Semaphore::const_new(4);
/// The file is looked at this often.
const LOOK: Duration = Duration::from_secs(1);
/// The largest file that is read.
const LARGEST: u64 = 64 << 20;

impl Default for UserFile {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            reading: Mutex::default(),
            verifying: Semaphore::new(PER_FILE),
            waiting: AtomicUsize::new(0),
        }
    }
}

impl UserFile {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Permits to verify a password: of this file and of the process. `None` when too many requests wait for them.
    pub(super) async fn permits(&self) -> Option<[SemaphorePermit<'_>; 2]> {
        struct Waiting<'a>(&'a AtomicUsize);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        if before >= MOST_WAITING {
            return None;
        }
        let own = self.verifying.acquire().await.ok()?;
        Some([own, VERIFYING.acquire().await.ok()?])
    }

    /// The comparison of what somebody says, which all who say the same now have in common, and whether
    /// there was none yet.
    pub(super) fn comparison(&self, proof: Proof) -> (Comparison, bool) {
        let mut state = self.state();
        if let Some(known) = state.comparisons.get(&proof).and_then(Weak::upgrade) {
            return (known, false);
        }
        state.comparisons.retain(|_, comparison| comparison.strong_count() > 0);
        let comparison = Comparison::default();
        state.comparisons.insert(proof, Arc::downgrade(&comparison));
        (comparison, true)
    }

    /// Whose the proof is, if it was found right within the last minute and the file has not changed
    /// since.
    pub(super) fn known(&self, path: &Path, proof: Proof, now: Instant) -> Option<Arc<str>> {
        let mut state = self.state();
        if state.looked.is_none_or(|looked| now.duration_since(looked) >= LOOK) {
            state.looked = Some(now);
            // One look at facts that are in memory: the file was read lately.
            if fs::metadata(path).ok().map(|facts| Stamp::of(&facts)) != state.stamp {
                state.proven.clear();
                return None;
            }
        }
        let proven = state.proven.get(&proof)?;
        (proven.until > now).then(|| Arc::clone(&proven.name))
    }

    /// Whether there is such a user with that password; remembers it. It may take long.
    pub(super) fn verify(&self, path: &Path, name: &str, password: &[u8], proof: Proof) -> bool {
        let users = self.read(path);
        let right = users.verify(name, password);
        if right {
            let (now, mut state) = (Instant::now(), self.state());
            if state.proven.len() >= MOST {
                state.proven.retain(|_, proven| proven.until > now);
            }
            if state.proven.len() >= MOST {
                state.proven.clear();
            }
            // Nothing is remembered that a newer file may not say any more.
            if Arc::ptr_eq(&state.users, &users) {
                let proven = Proven { name: name.into(), until: now + PROVEN };
                state.proven.insert(proof, proven);
            }
        }
        right
    }

    /// Reads the file unless it is as it was when it was last read, and replaces the users when every line of it
    /// can be used. Returns the lines that cannot.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn refresh(&self, path: &Path) -> io::Result<Vec<(usize, String)>> {
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = Stamp::of(&fs::metadata(path)?);
        if self.state().stamp == Some(stamp) {
            return Ok(Vec::new());
        }
        let (users, problems) = load(path)?;
        if problems.is_empty() {
            let mut state = self.state();
            state.users = Arc::new(users);
            state.stamp = Some(stamp);
            state.proven.clear();
        }
        Ok(problems)
    }

    /// The users in the file; those of before when it cannot be read or a line of it cannot be used.
    fn read(&self, path: &Path) -> Arc<Users> {
        let result = self.refresh(path);
        let mut state = self.state();
        let is_first = !state.logged;
        state.logged = !matches!(&result, Ok(lines) if lines.is_empty());
        if state.logged && is_first {
            let path = path.display();
            let kept = "users are as they were before";
            match &result {
                Ok(lines) => {
                    for (line, what) in lines {
                        tracing::error!("{path}:{line}: {what}; {kept}");
                    }
                }
                Err(error) => tracing::error!("{path}: {error}; {kept}"),
            }
        }
        Arc::clone(&state.users)
    }
}

fn load(path: &Path) -> io::Result<(Users, Vec<(usize, String)>)> {
    if fs::metadata(path)?.len() > LARGEST {
        let what = format!("it has more than {} MiB, too many for a users' file", LARGEST >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(Users::parse(&fs::read_to_string(path)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::password::{self, Algorithm, Hash};

    #[test]
    fn a_changed_file_holds_at_once_for_passwords_that_were_right() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        let set = |name: &str, word: &str| {
            let hash = Hash::of(word.as_bytes(), Algorithm::Sha512).unwrap();
            password::set(&path, name, &hash).unwrap();
        };
        set("ann", "1");
        let users = UserFile::default();
        let now = Instant::now();
        let proof = 7;
        assert!(users.known(&path, proof, now).is_none());
        assert!(!users.verify(&path, "ann", b"2", proof));
        assert!(users.verify(&path, "ann", b"1", proof));
        assert_eq!(users.known(&path, proof, now).as_deref(), Some("ann"));
        assert!(users.known(&path, 8, now).is_none());
        set("ann", "3");
        assert!(users.known(&path, proof, now + LOOK).is_none());
        assert!(
            !users.verify(&path, "ann", b"1", proof) && users.verify(&path, "ann", b"3", proof)
        );
        assert!(users.known(&path, proof, now + 2 * PROVEN).is_none());
        // Without a file those of before stay.
        fs::remove_file(&path).unwrap();
        assert!(users.verify(&path, "ann", b"3", proof));
    }
}
