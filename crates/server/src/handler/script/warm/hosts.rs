//! The hosts of all scripts: which one a request goes to, and when another is started.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use tokio::sync::watch;

use super::super::process::Start;
use super::super::stamp::Stamp;
use super::host::{Host, Standing};
use super::plan::plan;
use crate::worker::SharedState;

/// Most scripts that are known, of which most have hosts.
const MOST: usize = 64;
/// Between the end of a host that nobody has ended and the start of the next: at first, and at most.
const REST: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));
/// A host that has lived so long did not end for a reason that it was started with.
const GOOD_LIFE: Duration = Duration::from_secs(60);

/// How long requests wait for a host that is starting; then they run as plain CGI.
const PATIENCE: Duration = Duration::from_secs(1);

/// A route and a program: routes may give their programs different environments.
type Key = (usize, PathBuf);

/// The hosts of all routes, by program.
#[derive(Debug, Default)]
pub(crate) struct Hosts(Mutex<HashMap<Key, Entry>>);

#[derive(Debug)]
struct Entry {
    /// The program as it was when this was found out about it.
    stamp: Stamp,
    place: Place,
    /// How long to wait after the host's next end.
    rest: Duration,
    used: Instant,
    /// Changes, or loses its sender, when it is clear what becomes of a host that starts.
    settled: watch::Receiver<()>,
    /// Nobody waits for it longer.
    until: Instant,
}

/// What there is for a request.
pub(super) enum Found {
    Ready(Arc<Host>),
    /// A host that is starting: what changes when it is ready, and how long to wait for that.
    Soon(watch::Receiver<()>, Instant),
    Nothing,
}

#[derive(Debug)]
enum Place {
    /// Somebody is on the way to start one.
    Starting,
    Host(Arc<Host>),
    /// There can be none.
    Never,
    /// There is none until then.
    Resting(Instant),
}

impl Hosts {
    /// The host to ask for a process. If there is none, one is started.
    pub(super) fn find(shared: &Arc<SharedState>, start: &Start) -> Found {
        let Some(stamp) = Stamp::of(&start.program) else { return Found::Nothing };
        let key = (start.rules.id, start.program.clone());
        let now = Instant::now();
        let mut entries = shared.pools.warm.lock();
        let mut rest = REST.0;
        if let Some(entry) = entries.get_mut(&key)
            && entry.stamp == stamp
        {
            entry.used = now;
            match entry.look(now) {
                Look::Found(found) => return found,
                Look::Start => rest = entry.rest,
            }
        }
        let (sender, settled) = watch::channel(());
        let until = now + PATIENCE;
        let place = Place::Starting;
        let entry = Entry { stamp, place, rest, used: now, settled: settled.clone(), until };
        let previous = entries.insert(key.clone(), entry);
        let superfluous = make_room(&mut entries);
        drop(entries);
        // The end of a host is the end of a socket: not within the lock.
        drop((previous, superfluous));
        begin(shared, start, key, stamp, sender);
        Found::Soon(settled, until)
    }

    /// Lets go of those of scripts that there are no longer.
    pub(in super::super) fn retain(&self, has: &impl Fn(usize) -> bool) {
        let gone: Vec<Entry> = {
            let mut entries = self.lock();
            entries.extract_if(|(id, _), _| !has(*id)).map(|(_, entry)| entry).collect()
        };
        // The end of a host is the end of a socket: not within the lock.
        drop(gone);
    }

    /// Drops what is known of programs that cannot be kept warm, and of hosts whose files have changed; of all when
    /// `all`. The next request has a new host started.
    pub(in super::super) fn renew(&self, all: bool) {
        let is_old = |entry: &Entry| match &entry.place {
            Place::Starting => false,
            Place::Never | Place::Resting(_) => true,
            Place::Host(host) => all || host.has_other_files(),
        };
        let old: Vec<Entry> = {
            let mut entries = self.lock();
            entries.extract_if(|_, entry| is_old(entry)).map(|(_, entry)| entry).collect()
        };
        // The end of a host is the end of a socket: not within the lock.
        drop(old);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts what was found out where it belongs, unless the program is another by now.
    fn put(&self, key: &Key, stamp: Stamp, place: Place) {
        if let Some(entry) = self.lock().get_mut(key)
            && entry.stamp == stamp
            && matches!(entry.place, Place::Starting)
        {
            entry.place = place;
        }
    }
}

enum Look {
    Found(Found),
    Start,
}

impl Entry {
    fn look(&mut self, now: Instant) -> Look {
        let standing = match &self.place {
            Place::Starting => return self.wait(now),
            Place::Never => return Look::Found(Found::Nothing),
            Place::Resting(until) if now < *until => return Look::Found(Found::Nothing),
            Place::Resting(_) => return Look::Start,
            Place::Host(host) => match host.standing() {
                Standing::Ready => return Look::Found(Found::Ready(Arc::clone(host))),
                standing => standing,
            },
        };
        match standing {
            Standing::Starting | Standing::Ready => self.wait(now),
            Standing::Retired => Look::Start,
            Standing::Stale(path) => {
                tracing::debug!(file = %path.display(), "it has changed: the warm host is replaced");
                Look::Start
            }
            Standing::Refused => {
                self.place = Place::Never;
                Look::Found(Found::Nothing)
            }
            Standing::Ended(life) => {
                if life >= GOOD_LIFE {
                    self.rest = REST.0;
                }
                self.place = Place::Resting(now + self.rest);
                self.rest = (self.rest * 2).min(REST.1);
                Look::Found(Found::Nothing)
            }
        }
    }

    fn wait(&self, now: Instant) -> Look {
        let is_late = now >= self.until || self.settled.has_changed().is_err();
        Look::Found(match is_late {
            true => Found::Nothing,
            false => Found::Soon(self.settled.clone(), self.until),
        })
    }
}

/// Takes out what has been used least lately.
fn make_room(entries: &mut HashMap<Key, Entry>) -> Option<Entry> {
    if entries.len() <= MOST {
        return None;
    }
    let oldest = entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone())?;
    entries.remove(&oldest)
}

fn begin(
    shared: &Arc<SharedState>,
    start: &Start,
    key: Key,
    stamp: Stamp,
    settled: watch::Sender<()>,
) {
    let for_job = Arc::clone(shared);
    let rules = Arc::clone(&start.rules);
    let path = start.environment.value("PATH").map_or_else(OsString::new, OsStr::to_owned);
    let work = move || {
        let shared = for_job;
        let program = &key.1;
        let (told, waits) = (settled.clone(), settled);
        let place = match plan(program, &path) {
            Ok(plan) => match Host::start(&shared, program, &plan, &rules, &path, told) {
                Ok(host) => Place::Host(Arc::new(host)),
                Err(error) => {
                    tracing::error!(
                        script = %program.display(),
                        "its warm host cannot be started: {error}"
                    );
                    Place::Resting(Instant::now() + REST.1)
                }
            },
            Err(reason) => {
                tracing::warn!(script = %program.display(), "it runs as plain CGI: {reason}");
                Place::Never
            }
        };
        shared.pools.warm.put(&key, stamp, place);
        // Requests that wait look only when it is there.
        drop(waits);
    };
    // When it is rejected, the dropped sender wakes the requests that wait.
    let _ = shared.blocking.starts.submit(0, work);
}
