//! The fork servers of all scripts: which one a request goes to, and when a new one is started.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use tokio::sync::watch;

use super::super::file_version::FileVersion;
use super::super::process::Start;
use super::fork_server::{ForkServer, ForkServerStatus};
use super::plan::plan;
use crate::context::Shared;

/// Scripts that are remembered, most of which have fork servers.
const MAX: usize = 64;
/// The first and the longest pause between the unexpected end of a fork server and the start of the next.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));
/// After this time, the end of a fork server is not taken for a failed start.
const LONG_LIFE: Duration = Duration::from_secs(60);

/// The time for which requests wait for a fork server that is starting; then they run as plain CGI.
const START_WAIT: Duration = Duration::from_secs(1);

/// A route and a program: routes may give their programs different environments.
type Key = (usize, PathBuf);

/// The fork servers of all routes, by program.
#[derive(Debug, Default)]
pub(crate) struct ForkServers(Mutex<HashMap<Key, Entry>>);

#[derive(Debug)]
struct Entry {
    /// The version of the program that the entry is about.
    stamp: FileVersion,
    slot: Slot,
    /// The pause after the next unexpected end.
    pause: Duration,
    used: Instant,
    /// Notified, or closed, when a fork server that starts is ready or has failed.
    settled: watch::Receiver<()>,
    /// Requests wait for it until then.
    until: Instant,
}

/// The state of a program's fork server, for a request.
pub(super) enum ForkServerState {
    Ready(Arc<ForkServer>),
    /// It is starting: what to wait for, and until when.
    Starting(watch::Receiver<()>, Instant),
    Nothing,
}

#[derive(Debug)]
enum Slot {
    /// A request is starting one.
    Starting,
    ForkServer(Arc<ForkServer>),
    /// The program cannot be forked.
    Never,
    /// None is started until then.
    Pausing(Instant),
}

impl ForkServers {
    /// Returns the fork server of a program. If there is none, one is started.
    pub(super) fn find(self: &Arc<Self>, shared: &Arc<Shared>, start: &Start) -> ForkServerState {
        let Some(stamp) = FileVersion::of(&start.program) else { return ForkServerState::Nothing };
        let key = (start.rules.id, start.program.clone());
        let now = Instant::now();
        let mut entries = self.lock();
        let mut pause = PAUSES.0;
        if let Some(entry) = entries.get_mut(&key)
            && entry.stamp == stamp
        {
            entry.used = now;
            match entry.look(now) {
                Look::Found(found) => return found,
                Look::Start => pause = entry.pause,
            }
        }
        let (sender, settled) = watch::channel(());
        let until = now + START_WAIT;
        let slot = Slot::Starting;
        let entry = Entry { stamp, slot, pause, used: now, settled: settled.clone(), until };
        let previous = entries.insert(key.clone(), entry);
        let superfluous = make_room(&mut entries);
        drop(entries);
        // Dropping a fork server closes a socket, which is not done under the lock.
        drop((previous, superfluous));
        self.begin(shared, start, key, stamp, sender);
        ForkServerState::Starting(settled, until)
    }

    /// Removes the fork servers of scripts for which `has` is false.
    pub(in super::super) fn retain(&self, has: &impl Fn(usize) -> bool) {
        let gone: Vec<Entry> = {
            let mut entries = self.lock();
            entries.extract_if(|(id, _), _| !has(*id)).map(|(_, entry)| entry).collect()
        };
        // Dropping a fork server closes a socket, which is not done under the lock.
        drop(gone);
    }

    /// Forgets programs that cannot be forked, and removes fork servers whose files have changed; all if `all`. The
    /// next request starts a new one.
    pub(in super::super) fn renew(&self, all: bool) {
        let is_old = |entry: &Entry| match &entry.slot {
            Slot::Starting => false,
            Slot::Never | Slot::Pausing(_) => true,
            Slot::ForkServer(fork_server) => all || fork_server.has_other_files(),
        };
        let old: Vec<Entry> = {
            let mut entries = self.lock();
            entries.extract_if(|_, entry| is_old(entry)).map(|(_, entry)| entry).collect()
        };
        // Dropping a fork server closes a socket, which is not done under the lock.
        drop(old);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a fork server on a thread that may block. `settled` notifies the requests that wait for it.
    fn begin(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        start: &Start,
        key: Key,
        stamp: FileVersion,
        settled: watch::Sender<()>,
    ) {
        let (fork_servers, groups) = (Arc::clone(self), Arc::clone(&shared.groups));
        let rules = Arc::clone(&start.rules);
        let path = start.environment.value("PATH").map_or_else(OsString::new, OsStr::to_owned);
        let work = move || {
            let program = &key.1;
            let (notifier, guard) = (settled.clone(), settled);
            let slot = match plan(program, &path) {
                Ok(plan) => {
                    match ForkServer::start(&groups, program, &plan, &rules, &path, notifier) {
                        Ok(fork_server) => Slot::ForkServer(Arc::new(fork_server)),
                        Err(error) => {
                            tracing::error!(
                                script = %program.display(),
                                "the fork server cannot be started: {error}"
                            );
                            Slot::Pausing(Instant::now() + PAUSES.1)
                        }
                    }
                }
                Err(reason) => {
                    tracing::warn!(script = %program.display(), "the script runs as plain CGI: {reason}");
                    Slot::Never
                }
            };
            fork_servers.put(&key, stamp, slot);
            // Notifies the requests that wait, after the entry is set.
            drop(guard);
        };
        // If the task is rejected, the dropped sender wakes the requests that wait.
        let _ = shared.blocking.starts.submit(0, work);
    }

    /// Sets the result of starting a fork server, unless the program has changed since.
    fn put(&self, key: &Key, stamp: FileVersion, slot: Slot) {
        if let Some(entry) = self.lock().get_mut(key)
            && entry.stamp == stamp
            && matches!(entry.slot, Slot::Starting)
        {
            entry.slot = slot;
        }
    }
}

enum Look {
    Found(ForkServerState),
    Start,
}

impl Entry {
    fn look(&mut self, now: Instant) -> Look {
        let status = match &self.slot {
            Slot::Starting => return self.wait(now),
            Slot::Never => return Look::Found(ForkServerState::Nothing),
            Slot::Pausing(until) if now < *until => return Look::Found(ForkServerState::Nothing),
            Slot::Pausing(_) => return Look::Start,
            Slot::ForkServer(fork_server) => match fork_server.status() {
                ForkServerStatus::Ready => {
                    return Look::Found(ForkServerState::Ready(Arc::clone(fork_server)));
                }
                status => status,
            },
        };
        match status {
            ForkServerStatus::Starting | ForkServerStatus::Ready => self.wait(now),
            ForkServerStatus::Retired => Look::Start,
            ForkServerStatus::Stale(path) => {
                tracing::debug!(file = %path.display(), "a file of the fork server has changed; the fork server is replaced");
                Look::Start
            }
            ForkServerStatus::Unforkable => {
                self.slot = Slot::Never;
                Look::Found(ForkServerState::Nothing)
            }
            ForkServerStatus::Ended(life) => {
                if life >= LONG_LIFE {
                    self.pause = PAUSES.0;
                }
                self.slot = Slot::Pausing(now + self.pause);
                self.pause = (self.pause * 2).min(PAUSES.1);
                Look::Found(ForkServerState::Nothing)
            }
        }
    }

    fn wait(&self, now: Instant) -> Look {
        let is_late = now >= self.until || self.settled.has_changed().is_err();
        Look::Found(match is_late {
            true => ForkServerState::Nothing,
            false => ForkServerState::Starting(self.settled.clone(), self.until),
        })
    }
}

/// Removes the least recently used entry.
fn make_room(entries: &mut HashMap<Key, Entry>) -> Option<Entry> {
    if entries.len() <= MAX {
        return None;
    }
    let oldest = entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone())?;
    entries.remove(&oldest)
}
