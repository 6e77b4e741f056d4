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
use crate::gate::keyed::Keyed;
use crate::password::Users;

/// The users of a file, and whose passwords were right of late.
#[derive(Debug)]
pub(crate) struct UserFile {
    state: Mutex<State>,
    /// Held while the file is read.
    reading: Mutex<()>,
    /// Passwords are compared by so many threads at once: it takes long by intent, and others need
    /// these threads too.
    comparing: Semaphore,
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
    /// It was said that the file cannot be read.
    said: bool,
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
    seconds: i64,
    nanos: i64,
    size: u64,
    inode: u64,
}

impl Stamp {
    fn of(facts: &Metadata) -> Self {
        Self {
            seconds: facts.mtime(),
            nanos: facts.mtime_nsec(),
            size: facts.size(),
            inode: facts.ino(),
        }
    }
}

/// How long a password that was right is taken to be right without a comparison.
const PROVEN: Duration = Duration::from_secs(60);
/// So many of these are remembered.
const MOST: usize = 4096;
/// So many wait for their passwords to be compared.
const MOST_WAITING: usize = 64;
/// The file is looked at this often.
const LOOK: Duration = Duration::from_secs(1);
/// The largest file that is read.
const LARGEST: u64 = 64 << 20;

impl Default for UserFile {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            reading: Mutex::default(),
            comparing: Semaphore::new(2),
            waiting: AtomicUsize::new(0),
        }
    }
}

impl UserFile {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place among those whose passwords are compared; `None` when too many wait for one.
    pub(super) async fn place(&self) -> Option<SemaphorePermit<'_>> {
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
        self.comparing.acquire().await.ok()
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

    /// The users as the file has them now; when it cannot be read, as it had them.
    fn read(&self, path: &Path) -> Arc<Users> {
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let result = fs::metadata(path).and_then(|facts| {
            let stamp = Stamp::of(&facts);
            if self.state().stamp == Some(stamp) {
                return Ok(());
            }
            let (users, problems) = load(path, &facts)?;
            for (line, what) in problems {
                tracing::error!("{}:{line}: {what}", path.display());
            }
            let mut state = self.state();
            state.users = Arc::new(users);
            state.stamp = Some(stamp);
            state.proven.clear();
            Ok(())
        });
        let mut state = self.state();
        match result {
            Ok(()) => state.said = false,
            Err(error) if !state.said => {
                state.said = true;
                let path = path.display();
                tracing::error!("{path}: {error}; users are as they were before");
            }
            Err(_) => {}
        }
        Arc::clone(&state.users)
    }
}

/// Reads a file, and tells of each line that cannot be used.
///
/// # Errors
/// When the file cannot be read.
pub(crate) fn examine(path: &Path) -> io::Result<Vec<(usize, String)>> {
    load(path, &fs::metadata(path)?).map(|(_, problems)| problems)
}

fn load(path: &Path, facts: &Metadata) -> io::Result<(Users, Vec<(usize, String)>)> {
    if facts.len() > LARGEST {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is too large for a file of users",
        ));
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
