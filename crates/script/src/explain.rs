//! Reports which script a path leads to, by the lookup that serves requests.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dunlin_config::{Candidate, Script};
use dunlin_fs::mode::Mode;
use dunlin_fs::roots::{Root, Roots};
use dunlin_fs::watch::Watch;

use super::context::Files;
use super::failure::Failure;
use super::lookup::{Found, Wanted, look_up};
use super::route::Route;

/// The result of a path of a route with scripts.
#[derive(Debug)]
pub enum Explained {
    /// The script of this file.
    Script(PathBuf),
    /// A file that is not a script, and is sent.
    File,
    /// A redirect to the path with a slash.
    Directory,
    /// Another path of the site, whose route responds.
    Elsewhere(Candidate),
    /// A response with this status: the reason, unless it is that there is no such script.
    Status(u16, Option<String>),
}

/// Looks for the script of `path` with the permissions of this process.
pub fn explain(route: &dyn Route, rules: &Script, path: &[u8], query: Option<&[u8]>) -> Explained {
    let wanted = Wanted { route, path, query };
    match look_up(&wanted, &ByPath(Roots::default()), rules, Mode::Blocking) {
        Ok(Found::Script(located)) => Explained::Script(located.program.clone()),
        Ok(Found::File) => Explained::File,
        Ok(Found::Directory) => Explained::Directory,
        Ok(Found::Elsewhere(candidate)) => Explained::Elsewhere(candidate),
        Err(Some(Failure::Forbidden(rejected))) => Explained::Status(403, Some(rejected.reason)),
        Err(Some(Failure::Broken(reason))) => Explained::Status(500, Some(reason)),
        Err(failure) => Explained::Status(failure.map_or(500, |failure| failure.status()), None),
    }
}

/// Files, without a cache.
struct ByPath(Roots);

impl Files for ByPath {
    fn root(&self, directory: &Path) -> io::Result<Arc<Root>> {
        self.0.get(directory, None, u64::MAX).root
    }

    fn watch(&self) -> Option<&Watch> {
        None
    }

    fn release_descriptors(&self) {}
}
