//! A cache of scripts that were found lately, which saves the lookup on disk.
//!
//! As with cached files, inotify reports changes of names on the way to a script. What it does not report is looked
//! up again after a second.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use super::lookup::Located;
use crate::config::Script;
use crate::route::Route;
use dunlin_fs::validity::Validity;

/// Time after which a script is looked up again.
const TRUSTED: Duration = Duration::from_secs(1);
/// Cached paths per settings, and cached settings.
const MAX_ENTRIES: usize = 256;

/// The cache of one worker thread.
#[derive(Debug, Default)]
pub(crate) struct LocationCache(HashMap<usize, Paths>);

#[derive(Debug)]
struct Paths {
    /// Keeps the address, which is the key, from being reused.
    _settings: Arc<Route>,
    scripts: HashMap<Box<[u8]>, Entry>,
}

#[derive(Debug)]
struct Entry {
    rules: Arc<Script>,
    located: Arc<Located>,
    validity: Arc<Validity>,
}

impl LocationCache {
    /// The script for `path`. `now` is in milliseconds.
    pub(super) fn get(
        &self,
        settings: &Arc<Route>,
        rules: &Arc<Script>,
        path: &[u8],
        now: u64,
    ) -> Option<&Arc<Located>> {
        let entry = self.0.get(&address(settings))?.scripts.get(path)?;
        let holds = entry.validity.is_fresh(now) && Arc::ptr_eq(&entry.rules, rules);
        holds.then_some(&entry.located)
    }

    /// Adds the script for `path`, which was found after `validity` began to watch it.
    pub(super) fn put(
        &mut self,
        settings: &Arc<Route>,
        rules: &Arc<Script>,
        path: &[u8],
        (located, validity): (Arc<Located>, Arc<Validity>),
        now: u64,
    ) {
        validity.set_fresh_until(now + TRUSTED.as_millis() as u64);
        if self.0.len() >= MAX_ENTRIES {
            self.0.clear();
        }
        let paths = self
            .0
            .entry(address(settings))
            .or_insert_with(|| Paths { _settings: Arc::clone(settings), scripts: HashMap::new() });
        if paths.scripts.len() >= MAX_ENTRIES {
            paths.scripts.clear();
        }
        paths.scripts.insert(path.into(), Entry { rules: Arc::clone(rules), located, validity });
    }
}

fn address(settings: &Arc<Route>) -> usize {
    Arc::as_ptr(settings).addr()
}

/// Whether no symlink lies on the way to a program. Changes behind symlinks are not reported.
pub(super) fn is_real(program: &Path) -> bool {
    program.canonicalize().is_ok_and(|real| real == program)
}
