//! A cache of scripts that were found lately, which saves the lookup on disk.
//!
//! As with cached files, inotify reports changes of names on the way to a script. What it does not report is looked
//! up again after a second.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use super::resolved_script::ResolvedScript;
use super::route::Route;
use dunlin_config::Script;
use dunlin_fs::validity::Validity;

/// Time after which a script is looked up again.
const TRUSTED: Duration = Duration::from_secs(1);
/// Cached paths per route, and cached routes.
const MAX_ENTRIES: usize = 256;

/// The cache of one worker thread.
#[derive(Default)]
pub(crate) struct LocationCache(HashMap<usize, Paths>);

struct Paths {
    /// Keeps the address, which is the key, from being reused.
    _route: Arc<dyn Route + Send + Sync>,
    scripts: HashMap<Box<[u8]>, Entry>,
}

#[derive(Debug)]
struct Entry {
    rules: Arc<Script>,
    located: Arc<ResolvedScript>,
    validity: Arc<Validity>,
}

impl LocationCache {
    /// Returns the script for `path`. `now` is in milliseconds.
    pub(super) fn get(
        &self,
        route: &dyn Route,
        rules: &Arc<Script>,
        path: &[u8],
        now: u64,
    ) -> Option<&Arc<ResolvedScript>> {
        let entry = self.0.get(&address(route))?.scripts.get(path)?;
        let holds = entry.validity.is_fresh(now) && Arc::ptr_eq(&entry.rules, rules);
        holds.then_some(&entry.located)
    }

    /// Adds the script for `path`, which was found after `validity` began to watch it.
    pub(super) fn put(
        &mut self,
        route: &dyn Route,
        rules: &Arc<Script>,
        path: &[u8],
        (located, validity): (Arc<ResolvedScript>, Arc<Validity>),
        now: u64,
    ) {
        validity.set_fresh_until(now + TRUSTED.as_millis() as u64);
        if self.0.len() >= MAX_ENTRIES {
            self.0.clear();
        }
        let paths = self
            .0
            .entry(address(route))
            .or_insert_with(|| Paths { _route: route.share(), scripts: HashMap::new() });
        if paths.scripts.len() >= MAX_ENTRIES {
            paths.scripts.clear();
        }
        paths.scripts.insert(path.into(), Entry { rules: Arc::clone(rules), located, validity });
    }
}

fn address(route: &dyn Route) -> usize {
    std::ptr::from_ref(route.settings()).addr()
}

/// Returns `true` if no symlink lies on the way to a program. Changes behind symlinks are not reported.
pub(super) fn is_real(program: &Path) -> bool {
    program.canonicalize().is_ok_and(|real| real == program)
}
