//! The order in which a path is looked for: hidden names, the `try` list, index files, listings.
//!
//! An [`Opener`] does the rest. One serves requests; another explains to an administrator what would be served.

use std::borrow::Borrow;
use std::sync::Arc;

use dunlin_http::semantics::path::has_hidden_segment;

use crate::config::{self, Candidate, Settings, TryStep};
use crate::fs::failure::Failure;
use crate::route;

/// A site, as it serves requests or as it is configured only.
pub(crate) trait Routes {
    type Route: Borrow<Settings>;

    /// The route of a decoded path.
    fn route(&self, path: &[u8]) -> &Arc<Self::Route>;
}

impl Routes for route::Site {
    type Route = route::Route;

    fn route(&self, path: &[u8]) -> &Arc<route::Route> {
        self.route(path)
    }
}

impl Routes for config::Site {
    type Route = Settings;

    fn route(&self, path: &[u8]) -> &Arc<Settings> {
        self.route(path)
    }
}

/// A path, with the site and the route that hold for it.
pub(crate) struct Wanted<'a, S: Routes = route::Site> {
    pub(crate) site: &'a Arc<S>,
    pub(crate) route: &'a Arc<S::Route>,
    /// Decoded, with its leading slash.
    pub(crate) path: &'a [u8],
    pub(crate) query: Option<&'a [u8]>,
}

/// What a path is: `F` is a file, `D` an open directory.
pub(crate) enum Found<F, D> {
    File(F),
    /// A directory, requested without its slash.
    Directory,
    /// A directory without an index file, to be listed.
    Listing(D),
    /// A status that a `try` list ends in.
    Status(u16),
    /// Another path of the site, whose route responds.
    Elsewhere(Candidate),
}

/// The result of a search with the opener `O`.
pub(crate) type SearchResult<O> =
    Result<Found<<O as Opener>::File, <O as Opener>::Directory>, Failure>;

/// Opens the files and directories that a search comes to.
pub(crate) trait Opener {
    type Site: Routes;
    type File;
    type Directory;

    /// Opens the file at `file`, a path beneath the root without slashes at its ends. `is_probe`: the search only needs
    /// to know that it exists.
    fn file(
        &self,
        wanted: &Wanted<'_, Self::Site>,
        file: &[u8],
        is_probe: bool,
    ) -> Result<Found<Self::File, Self::Directory>, Failure>;

    /// Opens the directory at that path beneath the root, to be listed when `listing` is on.
    fn directory(
        &self,
        wanted: &Wanted<'_, Self::Site>,
        directory: &[u8],
    ) -> Result<Self::Directory, Failure>;
}

/// Finds what `wanted` is. `open_root` opens the root, unless the path can have no file.
pub(crate) fn search<O: Opener>(
    wanted: &Wanted<'_, O::Site>,
    open_root: impl FnOnce() -> Result<O, Failure>,
) -> SearchResult<O> {
    let (settings, path) = (wanted.settings(), wanted.path);
    if !settings.hidden && has_hidden_segment(path) {
        return Err(Failure::Missing);
    }
    let opener = open_root()?;
    if settings.try_files.is_empty() {
        return search_path(wanted, &opener, path, false);
    }
    search_list(wanted, &opener)
}

/// Looks for the paths of the `try` list in turn.
fn search_list<O: Opener>(wanted: &Wanted<'_, O::Site>, opener: &O) -> SearchResult<O> {
    let Wanted { path, query, site, route } = *wanted;
    let settings = wanted.settings();
    let mut last = Failure::Missing;
    for (at, step) in settings.try_files.iter().enumerate() {
        let candidate = match step {
            TryStep::Status(status) => return Ok(Found::Status(*status)),
            TryStep::Path(step) => step.expand(path, query),
        };
        let Some(candidate) = candidate else { continue };
        let is_last = at + 1 == settings.try_files.len();
        if is_last && !Arc::ptr_eq(site.route(&candidate.path), route) {
            return Ok(Found::Elsewhere(candidate));
        }
        if !settings.hidden && has_hidden_segment(&candidate.path) {
            continue;
        }
        let is_probe = is_slash_of(&candidate.path, path);
        match search_path(wanted, opener, &candidate.path, is_probe) {
            // A directory counts only when the list names it with its slash.
            Ok(Found::Directory) => {}
            // `{path}/` has found one, but the request is without the slash.
            Ok(_) if is_probe => return Ok(Found::Directory),
            Err(failure @ (Failure::Missing | Failure::Forbidden | Failure::Unlisted)) => {
                last = failure;
            }
            result => return result,
        }
    }
    Err(last)
}

fn search_path<O: Opener>(
    wanted: &Wanted<'_, O::Site>,
    opener: &O,
    path: &[u8],
    is_probe: bool,
) -> SearchResult<O> {
    let relative = path.strip_prefix(b"/").unwrap_or(path);
    let directory = relative.strip_suffix(b"/").or(relative.is_empty().then_some(b""));
    let Some(directory) = directory else {
        return search_file(wanted, opener, relative, is_probe);
    };
    for name in &wanted.settings().index {
        let mut file = directory.to_vec();
        if !file.is_empty() {
            file.push(b'/');
        }
        file.extend_from_slice(name.as_bytes());
        match search_file(wanted, opener, &file, is_probe) {
            Ok(Found::Directory) | Err(Failure::Missing) => {}
            result => return result,
        }
    }
    let opened = opener.directory(wanted, directory)?;
    if wanted.settings().listing { Ok(Found::Listing(opened)) } else { Err(Failure::Unlisted) }
}

fn search_file<O: Opener>(
    wanted: &Wanted<'_, O::Site>,
    opener: &O,
    file: &[u8],
    is_probe: bool,
) -> SearchResult<O> {
    // The source of a script is never sent, even when the file has become a script since it was looked for.
    if wanted.settings().handler.script().is_some_and(|script| script.is_script(file)) {
        return Err(Failure::Missing);
    }
    opener.file(wanted, file, is_probe)
}

impl<S: Routes> Wanted<'_, S> {
    /// The settings of the route.
    pub(crate) fn settings(&self) -> &Settings {
        (**self.route).borrow()
    }

    /// A program is missing here, unless a route runs it by its own path, and the client requested another one: the
    /// program is an index, or a path of a `try` list.
    pub(super) fn run_elsewhere(&self, program: &[u8]) -> Result<Candidate, Failure> {
        let url = [b"/", program].concat();
        let route = self.site.route(&url);
        let is_script = (**route).borrow().handler.script().is_some();
        if url == self.path || !is_script || Arc::ptr_eq(route, self.route) {
            return Err(Failure::Missing);
        }
        let query = self.query.map(<[u8]>::to_vec);
        // The configuration names an index file in every directory.
        let name = program.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let is_fixed = self.settings().index.iter().any(|index| index.as_bytes() == name);
        Ok(Candidate { path: url, query, is_fixed })
    }
}

/// Whether `candidate` is `path` with a slash behind it.
pub(crate) fn is_slash_of(candidate: &[u8], path: &[u8]) -> bool {
    candidate.strip_suffix(b"/") == Some(path)
}
