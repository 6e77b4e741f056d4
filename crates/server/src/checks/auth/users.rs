//! Password file that is read again when it changes.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

use super::basic::CredentialHash;
use crate::password::Users;
use dunlin_limits::prehashed::Prehashed;

/// The users of a password file, with a cache of recent successful verifications.
#[derive(Debug)]
pub(crate) struct UserFile {
    state: Mutex<State>,
    /// Serializes reading the file.
    reading: Mutex<()>,
    /// Bounds the verifications of this file's users, so that those of one file cannot take all permits of
    /// [`VERIFYING`].
    verifying: Semaphore,
    waiting: AtomicUsize,
    /// The file may have passwords that are hashed without protection, and lines that cannot be read.
    accepts_weak_hashes: bool,
}

#[derive(Debug, Default)]
struct State {
    users: Arc<Users>,
    /// Identifies the version of the file that was read.
    stamp: Option<Stamp>,
    /// When the file's metadata was last read.
    looked: Option<Instant>,
    /// Successful verifications.
    verified: HashMap<CredentialHash, Verified, Prehashed>,
    /// Verifications in progress.
    verifications: HashMap<CredentialHash, Weak<OnceCell<bool>>, Prehashed>,
    /// The error of the current version of the file has been logged.
    logged: bool,
}

/// Result of a verification, which requests with the same credentials share.
pub(super) type Verification = Arc<OnceCell<bool>>;

#[derive(Debug)]
struct Verified {
    name: Arc<str>,
    until: Instant,
}

/// The version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    modified: (i64, i64),
    changed: (i64, i64),
    size: u64,
    inode: u64,
}

impl Stamp {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            size: metadata.size(),
            inode: metadata.ino(),
        }
    }
}

/// The time for which a successful verification is cached.
const VERIFIED_FOR: Duration = Duration::from_secs(60);
/// Maximum of cached verifications.
const MAX_VERIFIED: usize = 4096;
/// Maximum of requests per file that wait for the verification of a password.
const MAX_WAITING: usize = 64;
/// Maximum of concurrent verifications per file. Verification is slow by design, and other work needs these threads
/// too.
const PER_FILE: usize = 2;
/// Permits for concurrent verifications in the process. Each verification takes the memory that its hash demands,
/// up to 1 GiB.
static VERIFYING: Semaphore = Semaphore::const_new(4);
/// Interval in which the file's metadata is compared.
const LOOK: Duration = Duration::from_secs(1);
/// Maximum size of the file in bytes.
const MAX_SIZE: u64 = 64 << 20;

impl Default for UserFile {
    fn default() -> Self {
        Self::new(false)
    }
}

impl UserFile {
    /// Creates one for a file that is read later.
    pub(crate) fn new(accepts_weak_hashes: bool) -> Self {
        Self {
            state: Mutex::default(),
            reading: Mutex::default(),
            verifying: Semaphore::new(PER_FILE),
            waiting: AtomicUsize::new(0),
            accepts_weak_hashes,
        }
    }

    /// Returns `true` if passwords that are hashed without protection are accepted.
    pub(crate) fn accepts_weak_hashes(&self) -> bool {
        self.accepts_weak_hashes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the permits of the file and of the process to verify a password. `None` if too many requests wait.
    pub(super) async fn permits(&self) -> Option<[SemaphorePermit<'_>; 2]> {
        struct Waiting<'a>(&'a AtomicUsize);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        if before >= MAX_WAITING {
            return None;
        }
        let own = self.verifying.acquire().await.ok()?;
        Some([own, VERIFYING.acquire().await.ok()?])
    }

    /// Returns the verification in progress for these credentials, and whether this call has created it.
    pub(super) fn verification(&self, credential_hash: CredentialHash) -> (Verification, bool) {
        let mut state = self.state();
        if let Some(known) = state.verifications.get(&credential_hash).and_then(Weak::upgrade) {
            return (known, false);
        }
        state.verifications.retain(|_, verification| verification.strong_count() > 0);
        let verification = Verification::default();
        state.verifications.insert(credential_hash, Arc::downgrade(&verification));
        (verification, true)
    }

    /// Returns the user of these credentials, if they were verified within the last minute and the file has not
    /// changed since.
    pub(super) fn cached_user(
        &self,
        path: &Path,
        credential_hash: CredentialHash,
        now: Instant,
    ) -> Option<Arc<str>> {
        let mut state = self.state();
        if state.looked.is_none_or(|looked| now.duration_since(looked) >= LOOK) {
            state.looked = Some(now);
            // This does not block: the file was read recently, so its metadata is in memory.
            if fs::metadata(path).ok().map(|metadata| Stamp::of(&metadata)) != state.stamp {
                state.verified.clear();
                return None;
            }
        }
        let verified = state.verified.get(&credential_hash)?;
        (verified.until > now).then(|| Arc::clone(&verified.name))
    }

    /// Verifies a password and caches success. Blocks for as long as the hash takes.
    pub(super) fn verify(
        &self,
        path: &Path,
        name: &str,
        password: &[u8],
        credential_hash: CredentialHash,
    ) -> bool {
        let users = self.read(path);
        let right = users.verify(name, password);
        if right {
            let (now, mut state) = (Instant::now(), self.state());
            if state.verified.len() >= MAX_VERIFIED {
                state.verified.retain(|_, verified| verified.until > now);
            }
            if state.verified.len() >= MAX_VERIFIED {
                state.verified.clear();
            }
            // Do not cache a result of an older version of the file.
            if Arc::ptr_eq(&state.users, &users) {
                let verified = Verified { name: name.into(), until: now + VERIFIED_FOR };
                state.verified.insert(credential_hash, verified);
            }
        }
        right
    }

    /// Reads the file if it has changed, and replaces the users if every line is valid, or may be invalid. Returns the number and the
    /// problem of each invalid line.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn refresh(&self, path: &Path) -> io::Result<Vec<(usize, String)>> {
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = Stamp::of(&fs::metadata(path)?);
        if self.state().stamp == Some(stamp) {
            return Ok(Vec::new());
        }
        let (users, problems) = load(path, self.accepts_weak_hashes)?;
        if problems.is_empty() || self.accepts_weak_hashes {
            let mut state = self.state();
            state.users = Arc::new(users);
            state.stamp = Some(stamp);
            state.verified.clear();
        }
        Ok(problems)
    }

    /// Returns the users of the file. Keeps the previous users if the file cannot be read or has an invalid line.
    fn read(&self, path: &Path) -> Arc<Users> {
        let result = self.refresh(path);
        let mut state = self.state();
        let is_first = !state.logged;
        state.logged = !matches!(&result, Ok(lines) if lines.is_empty());
        if state.logged && is_first {
            let path = path.display();
            let kept = match self.accepts_weak_hashes && result.is_ok() {
                true => "the other users can log in",
                false => "the previous users stay in use",
            };
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

fn load(path: &Path, accepts_weak_hashes: bool) -> io::Result<(Users, Vec<(usize, String)>)> {
    if fs::metadata(path)?.len() > MAX_SIZE {
        let what = format!("larger than {} MiB, the maximum for a password file", MAX_SIZE >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let text = fs::read_to_string(path)?;
    Ok(if accepts_weak_hashes { Users::parse_weak(&text) } else { Users::parse(&text) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::password::{self, Algorithm, Hash};

    #[test]
    fn a_changed_file_invalidates_cached_verifications() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        let set = |name: &str, word: &str| {
            let hash = Hash::of(word.as_bytes(), Algorithm::Sha512).unwrap();
            password::set(&path, name, &hash).unwrap();
        };
        set("ann", "1");
        let users = UserFile::default();
        let now = Instant::now();
        let credential_hash = 7;
        assert!(users.cached_user(&path, credential_hash, now).is_none());
        assert!(!users.verify(&path, "ann", b"2", credential_hash));
        assert!(users.verify(&path, "ann", b"1", credential_hash));
        assert_eq!(users.cached_user(&path, credential_hash, now).as_deref(), Some("ann"));
        assert!(users.cached_user(&path, 8, now).is_none());
        set("ann", "3");
        assert!(users.cached_user(&path, credential_hash, now + LOOK).is_none());
        assert!(
            !users.verify(&path, "ann", b"1", credential_hash)
                && users.verify(&path, "ann", b"3", credential_hash)
        );
        assert!(users.cached_user(&path, credential_hash, now + 2 * VERIFIED_FOR).is_none());
        // The previous users stay when the file is gone.
        fs::remove_file(&path).unwrap();
        assert!(users.verify(&path, "ann", b"3", credential_hash));
    }
}
