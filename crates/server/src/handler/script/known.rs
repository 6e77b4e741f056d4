//! Scripts that were found a moment ago, so that the disk is not asked for each request.
//!
//! As with cached files, the kernel's notifications say when a name on the way to a script changes; what
//! they do not tell of is asked for again after a second.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use super::locate::Located;
use crate::cache::Validity;
use crate::config::{Script, Settings};

/// For so long a script is taken to be where it was found.
const TRUSTED: Duration = Duration::from_secs(1);
/// Paths that are known by each settings, and settings that are.
const MOST: usize = 256;

/// What one loop knows.
#[derive(Debug, Default)]
pub(crate) struct Known(HashMap<usize, Paths>);

#[derive(Debug)]
struct Paths {
    /// Kept, so that its address, by which this is found, means no other.
    _settings: Arc<Settings>,
    scripts: HashMap<Box<[u8]>, Entry>,
}

#[derive(Debug)]
struct Entry {
    rules: Arc<Script>,
    located: Arc<Located>,
    validity: Arc<Validity>,
}

impl Known {
    /// What `path` was found to be. `now` is in milliseconds, as elsewhere here.
    pub(super) fn get(
        &self,
        settings: &Arc<Settings>,
        rules: &Arc<Script>,
        path: &[u8],
        now: u64,
    ) -> Option<&Arc<Located>> {
        let entry = self.0.get(&address(settings))?.scripts.get(path)?;
        let holds = entry.validity.is_fresh(now) && Arc::ptr_eq(&entry.rules, rules);
        holds.then_some(&entry.located)
    }

    /// Notes what `path` was found to be after `version` was followed.
    pub(super) fn put(
        &mut self,
        settings: &Arc<Settings>,
        rules: &Arc<Script>,
        path: &[u8],
        (located, validity): (Arc<Located>, Arc<Validity>),
        now: u64,
    ) {
        validity.set_fresh_until(now + TRUSTED.as_millis() as u64);
        if self.0.len() >= MOST {
            self.0.clear();
        }
        let paths = self
            .0
            .entry(address(settings))
            .or_insert_with(|| Paths { _settings: Arc::clone(settings), scripts: HashMap::new() });
        if paths.scripts.len() >= MOST {
            paths.scripts.clear();
        }
        paths.scripts.insert(path.into(), Entry { rules: Arc::clone(rules), located, validity });
    }
}

fn address(settings: &Arc<Settings>) -> usize {
    Arc::as_ptr(settings).addr()
}

/// Whether the name of a program leads to it without symlinks, of whose ends nothing is told.
pub(super) fn is_real(program: &Path) -> bool {
    program.canonicalize().is_ok_and(|real| real == program)
}
