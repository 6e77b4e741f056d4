//! The order in which a path is looked for: hidden names, the `try` list, index files, listings.
//!
//! An [`Opener`] does the rest. One serves requests; another explains to an administrator what would be served.

use std::sync::Arc;

use dunlin_http::semantics::path::has_hidden_segment;

use crate::config::{Candidate, Settings, Site, TryStep};

/// A path, with the site and the settings that hold for it.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) site: &'a Arc<Site>,
    pub(crate) settings: &'a Arc<Settings>,
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

/// Why a path is nothing that can be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    Missing,
    /// It exists, but clients may not have it: by its permissions or its type, or because a symlink leads out.
    Forbidden,
    /// It is a directory without an index file, and `listing` is off.
    Unlisted,
    /// Descriptors or memory have run out.
    Exhausted,
    /// An error that the log reports.
    Broken,
    WouldBlock,
}

impl Failure {
    /// The status of the response.
    pub(crate) fn status(self) -> u16 {
        match self {
            Self::Missing => 404,
            Self::Forbidden | Self::Unlisted => 403,
            Self::Exhausted => 503,
            Self::Broken | Self::WouldBlock => 500,
        }
    }
}

/// Opens the files and directories that a search comes to.
pub(crate) trait Opener {
    type File;
    type Directory;

    /// Opens the file at `file`, a path beneath the root without slashes at its ends. `is_probe`: the search only needs
    /// to know that it exists.
    fn file(
        &self,
        wanted: &Wanted<'_>,
        file: &[u8],
        is_probe: bool,
    ) -> Result<Found<Self::File, Self::Directory>, Failure>;

    /// Opens the directory at that path beneath the root, to be listed when `listing` is on.
    fn directory(&self, wanted: &Wanted<'_>, directory: &[u8]) -> Result<Self::Directory, Failure>;
}

/// Finds what `wanted` is. `open_root` opens the root, unless the path can have no file.
pub(crate) fn search<O: Opener>(
    wanted: &Wanted<'_>,
    open_root: impl FnOnce() -> Result<O, Failure>,
) -> SearchResult<O> {
    let Wanted { settings, path, .. } = *wanted;
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
fn search_list<O: Opener>(wanted: &Wanted<'_>, opener: &O) -> SearchResult<O> {
    let Wanted { settings, path, query, site } = *wanted;
    let mut last = Failure::Missing;
    for (at, step) in settings.try_files.iter().enumerate() {
        let candidate = match step {
            TryStep::Status(status) => return Ok(Found::Status(*status)),
            TryStep::Path(step) => step.expand(path, query),
        };
        let Some(candidate) = candidate else { continue };
        let is_last = at + 1 == settings.try_files.len();
        if is_last && !Arc::ptr_eq(site.route(&candidate.path), settings) {
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
    wanted: &Wanted<'_>,
    opener: &O,
    path: &[u8],
    is_probe: bool,
) -> SearchResult<O> {
    let relative = path.strip_prefix(b"/").unwrap_or(path);
    let directory = relative.strip_suffix(b"/").or(relative.is_empty().then_some(b""));
    let Some(directory) = directory else {
        return search_file(wanted, opener, relative, is_probe);
    };
    for name in &wanted.settings.index {
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
    if wanted.settings.listing { Ok(Found::Listing(opened)) } else { Err(Failure::Unlisted) }
}

fn search_file<O: Opener>(
    wanted: &Wanted<'_>,
    opener: &O,
    file: &[u8],
    is_probe: bool,
) -> SearchResult<O> {
    // The source of a script is never sent, even when the file has become a script since it was looked for.
    if wanted.settings.handler.script().is_some_and(|script| script.is_script(file)) {
        return Err(Failure::Missing);
    }
    opener.file(wanted, file, is_probe)
}

impl Wanted<'_> {
    /// A program is missing here, unless a route runs it by its own path, and the client requested another one: the
    /// program is an index, or a path of a `try` list.
    pub(super) fn run_elsewhere(&self, program: &[u8]) -> Result<Candidate, Failure> {
        let url = [b"/", program].concat();
        let route = self.site.route(&url);
        if url == self.path || route.handler.script().is_none() || Arc::ptr_eq(route, self.settings)
        {
            return Err(Failure::Missing);
        }
        let query = self.query.map(<[u8]>::to_vec);
        // The configuration names an index file in every directory.
        let name = program.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        let is_fixed = self.settings.index.iter().any(|index| index.as_bytes() == name);
        Ok(Candidate { path: url, query, is_fixed })
    }
}

/// Whether `candidate` is `path` with a slash behind it.
pub(crate) fn is_slash_of(candidate: &[u8], path: &[u8]) -> bool {
    candidate.strip_suffix(b"/") == Some(path)
}
