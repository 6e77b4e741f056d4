//! Finding the script that a path names, and its `PATH_INFO`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dunlin_http::semantics::path::{has_hidden_segment, with_slashes};
use rustix::fs::{FileType, Mode as Permissions, fstat};

use super::call::Call;
use super::context::Files;
use super::failure::Failure;
use super::location_cache;
use super::resolved_script::ResolvedScript;
use super::route::Route;
use super::start_error::{Rejected, not_opened};
use dunlin_config::{Candidate, Mapping, Script, Settings, TryStep};
use dunlin_fs::failure::Failure as OpenFailure;
use dunlin_fs::mode::Mode;
use dunlin_fs::open::open_path;
use dunlin_fs::roots::Root;
use dunlin_fs::validity::Validity;
use dunlin_net::temp_files::lacks_descriptors;

/// The path that is looked up, with its rules.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) route: &'a dyn Route,
    pub(super) path: &'a [u8],
    pub(super) query: Option<&'a [u8]>,
}

/// The resource that a path leads to.
#[derive(Debug)]
pub(super) enum Found {
    Script(Arc<ResolvedScript>),
    /// A file beneath the site's root that is not a script.
    File,
    /// A directory, for a path without its slash.
    Directory,
    /// Another path of the site, whose own route responds.
    Elsewhere(Candidate),
}

/// Finds what the path names, for scripts that [`without_files`] does not locate.
///
/// # Errors
/// The error is `None` when a disk would have to be waited for and `mode` forbids it.
pub(super) fn look_up(
    wanted: &Wanted<'_>,
    files: &dyn Files,
    rules: &Script,
    mode: Mode,
) -> Result<Found, Option<Failure>> {
    let Wanted { route, path, query } = *wanted;
    let settings = route.settings();
    let root = files.root(&rules.directory).map_err(|error| {
        Some(match lacks_descriptors(&error) {
            true => Failure::NoDescriptor,
            false => Failure::Broken(format!("{}: {error}", rules.directory.display())),
        })
    })?;
    let search = Search { root: &root, settings, rules, mode };
    if rules.extensions.is_empty() || settings.try_files.is_empty() {
        return search.path(path);
    }
    for (at, step) in settings.try_files.iter().enumerate() {
        let candidate = match step {
            // Index files alone are programs.
            TryStep::Directory => match search.path(path) {
                Err(Some(Failure::Missing)) => continue,
                result => return result,
            },
            TryStep::Status(status) => return Err(Some(Failure::Status(*status))),
            // Only the list of a route with a proxy has it.
            TryStep::Proxy => return Err(Some(Failure::Missing)),
            TryStep::Path(step) => step.expand(path, query, None),
        };
        let Some(candidate) = candidate else { continue };
        let is_last = at + 1 == settings.try_files.len();
        if is_last && !route.covers(&candidate.path) {
            return Ok(Found::Elsewhere(candidate));
        }
        match search.path(&candidate.path) {
            // A directory counts only if the list names it with its slash.
            Ok(Found::Directory) | Err(Some(Failure::Missing)) => {}
            // The directory has matched, but the request lacks the slash.
            Ok(_) if candidate.lacks_slash(path, |other| route.covers(other)) => {
                return Ok(Found::Directory);
            }
            Ok(Found::Script(located)) => return Ok(Found::Script(located.with(candidate.query))),
            result => return result,
        }
    }
    Err(Some(Failure::Missing))
}

/// Returns the location of the one program or application of `rules`; `None` if files have to be looked up.
fn without_files(rules: &Script, path: &[u8]) -> Option<ResolvedScript> {
    let (program, label) = match rules.mapping {
        Mapping::Application => (PathBuf::new(), Arc::default()),
        Mapping::Program => (rules.directory.clone(), Arc::clone(&rules.label)),
        _ => return None,
    };
    let (name, info) = rules.split(path);
    let (name, info) = (name.to_vec(), with_slashes(info));
    Some(ResolvedScript { program, label, name, info, ..ResolvedScript::default() })
}

struct Search<'a> {
    root: &'a Root,
    settings: &'a Settings,
    rules: &'a Script,
    mode: Mode,
}

impl Search<'_> {
    /// Walks down the path. The first file on the way is the script, because nothing lies beneath a file.
    fn path(&self, path: &[u8]) -> Result<Found, Option<Failure>> {
        let rest = self.rules.rest(path);
        let mount = path.len() - rest.len();
        let mut end = 0;
        while end < rest.len() {
            let slash = memchr::memchr(b'/', &rest[end..]);
            end = slash.map_or(rest.len(), |slash| end + slash);
            let name = &rest[..end];
            match self.look(name)? {
                Kind::Directory => end += 1,
                Kind::File { executable } => {
                    return self.file(name, executable, &path[..mount + end], &rest[end..]);
                }
            }
        }
        let is_by_extension = !self.rules.extensions.is_empty();
        let has_slash = path.ends_with(b"/");
        if is_by_extension && !has_slash {
            return Ok(Found::Directory);
        }
        for index in &self.settings.index {
            let slash: &[u8] = if has_slash { b"" } else { b"/" };
            let name = [rest, slash, index.as_bytes()].concat();
            match self.look(&name) {
                // A file that is not executable is not served from a directory of programs.
                Ok(Kind::File { executable: false }) if !is_by_extension => {}
                Ok(Kind::File { .. }) if !has_slash => return Ok(Found::Directory),
                Ok(Kind::File { executable }) => {
                    let url = [path, index.as_bytes()].concat();
                    return self.file(&name, executable, &url, b"");
                }
                Ok(Kind::Directory) | Err(Some(Failure::Missing)) => {}
                Err(failure) => return Err(failure),
            }
        }
        Err(Some(Failure::Missing))
    }

    /// Classifies the file `name`. The URL's path `url` leads to it, and `info` follows.
    fn file(
        &self,
        name: &[u8],
        executable: bool,
        url: &[u8],
        info: &[u8],
    ) -> Result<Found, Option<Failure>> {
        let by_extension = !self.rules.extensions.is_empty();
        let is_script = !by_extension || self.rules.is_script(name);
        if is_script {
            let program = Path::new(OsStr::from_bytes(&self.root.path));
            let program = program.join(OsStr::from_bytes(name));
            if !executable && (self.rules.kind.is_cgi() || !by_extension) {
                let reason = "it is not executable (chmod +x)";
                return Err(Some(Failure::Forbidden(Rejected::new(&program, reason))));
            }
            return Ok(Found::Script(Arc::new(ResolvedScript {
                label: program.display().to_string().into(),
                program,
                name: url.to_vec(),
                info: with_slashes(info),
                ..ResolvedScript::default()
            })));
        }
        // A file that is not a script must not become one through the path behind it, which could end in a script's
        // extension.
        let is_beside = self.rules.mapping == Mapping::Path || self.settings.alias.is_some();
        let beneath_root =
            is_beside && self.rules.directory == self.settings.root && info.is_empty();
        if beneath_root { Ok(Found::File) } else { Err(Some(Failure::Missing)) }
    }

    fn look(&self, name: &[u8]) -> Result<Kind, Option<Failure>> {
        look(self.root, self.settings, name, self.mode)
    }
}

enum Kind {
    Directory,
    File { executable: bool },
}

fn look(
    root: &Root,
    settings: &Settings,
    name: &[u8],
    mode: Mode,
) -> Result<Kind, Option<Failure>> {
    // An encoded slash is part of a name, and no file has such a name.
    if name.contains(&0) {
        return Err(Some(Failure::Missing));
    }
    // The name has no slash at its begin, and `.well-known` is not hidden there, either.
    let is_hidden = name.starts_with(b".") && has_hidden_segment(&[b"/", name].concat());
    if !settings.hidden && (is_hidden || has_hidden_segment(name)) {
        return Err(Some(Failure::Missing));
    }
    let directory = Path::new(OsStr::from_bytes(&root.path));
    let fd = open_path(root, name, settings.symlinks, mode).map_err(|failure| match failure {
        OpenFailure::WouldBlock => None,
        OpenFailure::Missing => Some(Failure::Missing),
        OpenFailure::Forbidden | OpenFailure::Unlisted => {
            Some(Failure::Forbidden(not_opened(directory, name, settings.symlinks)))
        }
        OpenFailure::Exhausted => Some(Failure::NoDescriptor),
        OpenFailure::Broken | OpenFailure::Unavailable => {
            Some(Failure::Broken("its folder cannot be read".into()))
        }
    })?;
    let metadata = fstat(&fd).map_err(|error| Some(Failure::Broken(error.to_string())))?;
    match FileType::from_raw_mode(metadata.st_mode) {
        FileType::Directory => Ok(Kind::Directory),
        FileType::RegularFile => {
            let executable = Permissions::XUSR | Permissions::XGRP | Permissions::XOTH;
            let executable = Permissions::from_raw_mode(metadata.st_mode).intersects(executable);
            Ok(Kind::File { executable })
        }
        _ => {
            let program = directory.join(OsStr::from_bytes(name));
            Err(Some(Failure::Forbidden(Rejected::new(&program, "it is not a file"))))
        }
    }
}

/// Caches the script for the next requests, if its directory can be watched for changes.
fn remember(
    call: &Call<'_>,
    wanted: &Wanted<'_>,
    located: Arc<ResolvedScript>,
) -> Arc<ResolvedScript> {
    let Call { scripts, rules, route, path, .. } = *call;
    let ctx = &scripts.ctx;
    let (files, settings) = (&*ctx.shared.files, route.settings());
    // Other names that were tried on the way, of a `try` list or an index, are not watched.
    let is_plain = located.info.is_empty()
        && *located.name == *path
        && (rules.extensions.is_empty() || settings.try_files.is_empty());
    let (Some(watch), Some(directory), Some(name)) =
        (files.watch(), located.program.parent(), located.program.file_name())
    else {
        return located;
    };
    let Ok(root) = files.root(&rules.directory) else { return located };
    if !is_plain || !settings.cache.enabled || !location_cache::is_real(&located.program) {
        return located;
    }
    let (directory, name) = (directory.as_os_str().as_bytes(), name.as_bytes());
    let validity = Arc::new(Validity::default());
    if !watch.follow(&root.path, directory, name, &validity) {
        return located;
    }
    // Looks once more: only changes from now on are reported.
    match look_up(wanted, files, rules, Mode::Inline) {
        Ok(Found::Script(again)) if again.program == located.program => {
            let known = (Arc::clone(&again), validity);
            scripts.locations.borrow_mut().put(route, rules, path, known, ctx.clock.now());
            again
        }
        _ => located,
    }
}

/// Returns the script that the cache has for the path. An application has its location in its configuration.
pub(super) fn cached(call: &Call<'_>) -> Option<Arc<ResolvedScript>> {
    let Call { scripts, rules, route, path, .. } = *call;
    if let Some(located) = without_files(rules, path) {
        return Some(Arc::new(located));
    }
    let now = scripts.ctx.clock.now();
    scripts.locations.borrow().get(route, rules, path, now).cloned()
}

/// Looks up the script that [`cached`] does not return: on the worker thread as far as the kernel has the path in memory, then on
/// a thread that may block.
pub(super) async fn find(call: &Call<'_>) -> Result<Found, Failure> {
    let Call { scripts, rules, route, path, query, .. } = *call;
    let ctx = &scripts.ctx;
    let wanted = Wanted { route, path, query };
    let found = look_up(&wanted, &*ctx.shared.files, rules, Mode::Inline);
    match found {
        Ok(Found::Script(located)) => {
            return Ok(Found::Script(remember(call, &wanted, located)));
        }
        Ok(found) => return Ok(found),
        Err(Some(failure)) => return Err(failure),
        Err(None) => {}
    }
    let (files, rules) = (Arc::clone(&ctx.shared.files), Arc::clone(rules));
    let (route, path, query) = (route.share(), path.to_vec(), query.map(<[u8]>::to_vec));
    let found = ctx.shared.blocking.files.run(move || {
        let wanted = Wanted { route: &*route, path: &path, query: query.as_deref() };
        look_up(&wanted, &*files, &rules, Mode::Blocking)
    });
    let missing = || Failure::Broken("it could not be looked for".into());
    found.await.map_err(|_| missing())?.map_err(|failure| failure.unwrap_or_else(missing))
}
