//! The search for the file of a path: hidden names, the `try` list, index files, listings.
//!
//! An [`Opener`] opens the files. The server uses one that loads them; `dunlin explain` uses one that reports their paths.

use std::sync::Arc;

use dunlin_http::semantics::path::has_hidden_segment;

use dunlin_config::{Candidate, Settings, Site, TryStep};
use dunlin_fs::failure::Failure;

/// A decoded path with its site and its route.
pub struct Wanted<'a> {
    /// The site.
    pub site: &'a Arc<Site>,
    /// The settings of the path: [`Site::route`] of `site`, or those of a directory for `X-Sendfile`.
    pub route: &'a Arc<Settings>,
    /// Decoded, with its leading slash; encoded slashes are NULs.
    pub path: &'a [u8],
    /// The query as it was sent.
    pub query: Option<&'a [u8]>,
}

/// The result of a search: `F` is a file, `D` an open directory.
pub enum Found<F, D> {
    /// A file.
    File(F),
    /// A directory that was requested without a final slash.
    Directory,
    /// A directory without an index file, to be listed.
    Listing(D),
    /// The status at the end of a `try` list.
    Status(u16),
    /// None of the files exists before which the route has its proxy.
    Proxy,
    /// Another path of the site, whose route makes the response.
    Elsewhere(Candidate),
}

impl<F, D> Found<F, D> {
    /// Returns the same with another type of directories. A directory to be listed becomes one that was requested without a
    /// slash; the caller has handled it.
    pub fn without_listing<E>(self) -> Found<F, E> {
        match self {
            Self::File(file) => Found::File(file),
            Self::Directory | Self::Listing(_) => Found::Directory,
            Self::Status(status) => Found::Status(status),
            Self::Proxy => Found::Proxy,
            Self::Elsewhere(candidate) => Found::Elsewhere(candidate),
        }
    }
}

/// The result of a search with the opener `O`.
pub type SearchResult<O> = Result<Found<<O as Opener>::File, <O as Opener>::Directory>, Failure>;

/// Opens the files and directories that a search visits.
pub trait Opener {
    /// The result for a file.
    type File;
    /// The result for a directory to be listed.
    type Directory;

    /// Opens `file`, a path beneath the root without leading and final slashes. `is_probe`: the search only needs to know
    /// that it exists.
    fn file(
        &self,
        wanted: &Wanted<'_>,
        file: &[u8],
        is_probe: bool,
    ) -> Result<Found<Self::File, Self::Directory>, Failure>;

    /// Opens `directory`, a path beneath the root, for a listing.
    fn directory(&self, wanted: &Wanted<'_>, directory: &[u8]) -> Result<Self::Directory, Failure>;
}

/// Searches for the file of `wanted`. `open_root` opens the root; it is not called if the path cannot have a file.
pub fn search<O: Opener>(
    wanted: &Wanted<'_>,
    open_root: impl FnOnce() -> Result<O, Failure>,
) -> SearchResult<O> {
    let (settings, path) = (wanted.route, wanted.path);
    if !settings.hidden && has_hidden_segment(path) {
        return if settings.tries_files() { Ok(Found::Proxy) } else { Err(Failure::Missing) };
    }
    let opener = open_root()?;
    if settings.try_files.is_empty() {
        return search_path(wanted, &opener, path, false);
    }
    search_list(wanted, &opener)
}

/// Searches for the paths of the `try` list in order.
fn search_list<O: Opener>(wanted: &Wanted<'_>, opener: &O) -> SearchResult<O> {
    let Wanted { path, query, site, route } = *wanted;
    let settings = wanted.route;
    let mut last = Failure::Missing;
    for (at, step) in settings.try_files.iter().enumerate() {
        let candidate = match step {
            TryStep::Directory => match search_directory(wanted, opener) {
                None => continue,
                Some(result) => return result,
            },
            TryStep::Status(status) => return Ok(Found::Status(*status)),
            TryStep::Proxy => return Ok(Found::Proxy),
            TryStep::Path(step) => step.expand(path, query, None),
        };
        let Some(candidate) = candidate else { continue };
        let is_last = at + 1 == settings.try_files.len();
        if is_last && !site.has_settings(&candidate.path, route) {
            return Ok(Found::Elsewhere(candidate));
        }
        if !settings.hidden && has_hidden_segment(&candidate.path) {
            continue;
        }
        let is_same = |other: &[u8]| site.has_settings(other, route);
        let is_probe = candidate.lacks_slash(path, is_same);
        match search_path(wanted, opener, &candidate.path, is_probe) {
            // A directory matches only if the list names it with a final slash.
            Ok(Found::Directory) => {}
            // The directory has matched, but the request lacks the slash.
            Ok(_) if is_probe => return Ok(Found::Directory),
            Err(failure @ (Failure::Missing | Failure::Forbidden | Failure::Unlisted)) => {
                last = failure;
            }
            Ok(Found::Elsewhere(run)) => {
                let query = candidate.query.or(run.query);
                return Ok(Found::Elsewhere(Candidate { query, ..run }));
            }
            result => return result,
        }
    }
    Err(last)
}

/// Returns the result for a path that is a directory; `None` for another path.
fn search_directory<O: Opener>(wanted: &Wanted<'_>, opener: &O) -> Option<SearchResult<O>> {
    let has_slash = wanted.path.ends_with(b"/");
    match search_path(wanted, opener, wanted.path, !has_slash) {
        Err(Failure::Missing) => None,
        result if has_slash || matches!(result, Ok(Found::Directory)) => Some(result),
        _ => None,
    }
}

fn search_path<O: Opener>(
    wanted: &Wanted<'_>,
    opener: &O,
    path: &[u8],
    is_probe: bool,
) -> SearchResult<O> {
    // An encoded slash is part of a name, and no file has such a name.
    if path.contains(&0) {
        return Err(Failure::Missing);
    }
    let path = wanted.route.file_path(path).ok_or(Failure::Missing)?;
    let relative = path.strip_prefix(b"/").unwrap_or(&path);
    let directory = relative.strip_suffix(b"/").or(relative.is_empty().then_some(b""));
    let Some(directory) = directory else {
        return search_file(wanted, opener, relative, is_probe);
    };
    for name in &wanted.route.index {
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
    if wanted.route.listing { Ok(Found::Listing(opened)) } else { Err(Failure::Unlisted) }
}

fn search_file<O: Opener>(
    wanted: &Wanted<'_>,
    opener: &O,
    file: &[u8],
    is_probe: bool,
) -> SearchResult<O> {
    // The source of a script is never sent, even if the file became a script after its path was looked up.
    if wanted.route.handler.script().is_some_and(|script| script.is_script(file)) {
        return Err(Failure::Missing);
    }
    // The route of its own path runs an index file or a path of a `try` list, also if the configuration does not state which of
    // its files are scripts. What is only probed is not cached.
    let runs = wanted.site.runs_scripts() && !wanted.route.serve_source;
    match runs.then(|| wanted.run_elsewhere(file)) {
        Some(Ok(candidate)) => match opener.file(wanted, file, true)? {
            Found::File(_) => Ok(Found::Elsewhere(candidate)),
            other => Ok(other),
        },
        _ => opener.file(wanted, file, is_probe),
    }
}

impl Wanted<'_> {
    /// Returns the path that runs `program`. Without one, the program is missing: the request must be for another path (the
    /// program is an index file or a path of a `try` list), and a route must run the program by its own path.
    pub(super) fn run_elsewhere(&self, program: &[u8]) -> Result<Candidate, Failure> {
        let url = self.route.url_path(program);
        // Mostly it is the path of the request, whose route is known.
        if url == self.path {
            return Err(Failure::Missing);
        }
        let route = self.site.route(&url);
        if route.handler.script().is_none() || Arc::ptr_eq(&route, self.route) {
            return Err(Failure::Missing);
        }
        let query = self.query.map(<[u8]>::to_vec);
        // The configuration names an index file in every directory.
        let name = program.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let is_fixed = self.route.index.iter().any(|index| index.as_bytes() == name);
        Ok(Candidate { path: url, query, is_fixed, is_directory: false })
    }
}
