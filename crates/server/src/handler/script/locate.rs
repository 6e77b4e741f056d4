//! Which file of the scripts' directory a path names, and what of the path is left for it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dunlin_http::semantics::path::has_hidden_segment;
use rustix::fs::{FileType, Mode as Permissions, fstat};

use super::{Call, Failure};
use crate::config::{Script, Settings};
use crate::event_loop::Shared;
use crate::handler::file::{self, Mode, Root, open_path};

/// A script that was found.
#[derive(Debug)]
pub(super) struct Located {
    pub(super) program: PathBuf,
    /// The URL's path up to the script's name.
    pub(super) name: Vec<u8>,
    /// The URL's path behind it: empty, or beginning with a slash.
    pub(super) info: Vec<u8>,
}

/// Finds the script that `path` names. A file has nothing beneath it, so that the first name on
/// the way which is a file is the script, and the longest path to one.
///
/// # Errors
/// `None` within the error when `mode` forbids to wait for a disk that has to be waited for.
fn locate(
    shared: &Shared,
    settings: &Settings,
    rules: &Script,
    path: &[u8],
    mode: Mode,
) -> Result<Located, Option<Failure>> {
    let root = shared.roots.get(&rules.directory).map_err(|error| {
        Some(Failure::Broken(format!("{}: {error}", rules.directory.display())))
    })?;
    let rest = rules.rest(path);
    let mount = path.len() - rest.len();
    let mut end = 0;
    while end < rest.len() {
        let slash = memchr::memchr(b'/', &rest[end..]);
        end = slash.map_or(rest.len(), |slash| end + slash);
        let name = &rest[..end];
        match look(&root, settings, name, mode)? {
            Kind::Directory => end += 1,
            Kind::Script => {
                return Ok(Located {
                    program: Path::new(OsStr::from_bytes(&root.path)).join(OsStr::from_bytes(name)),
                    name: path[..mount + end].to_vec(),
                    info: rest[end..].to_vec(),
                });
            }
        }
    }
    // A directory, or nothing.
    Err(Some(Failure::Missing))
}

enum Kind {
    Directory,
    Script,
}

fn look(
    root: &Root,
    settings: &Settings,
    name: &[u8],
    mode: Mode,
) -> Result<Kind, Option<Failure>> {
    if !settings.hidden && (name.starts_with(b".") || has_hidden_segment(name)) {
        return Err(Some(Failure::Missing));
    }
    let fd = open_path(root, name, settings.symlinks, mode).map_err(|failure| match failure {
        file::Failure::WouldBlock => None,
        file::Failure::Missing => Some(Failure::Missing),
        file::Failure::Forbidden => Some(Failure::Forbidden("it may not be opened".into())),
        file::Failure::Exhausted => Some(Failure::Broken("no descriptor is free".into())),
        file::Failure::Broken => Some(Failure::Broken("its folder cannot be read".into())),
    })?;
    let facts = fstat(&fd).map_err(|error| Some(Failure::Broken(error.to_string())))?;
    match FileType::from_raw_mode(facts.st_mode) {
        FileType::Directory => Ok(Kind::Directory),
        FileType::RegularFile => {
            let executable = Permissions::XUSR | Permissions::XGRP | Permissions::XOTH;
            if Permissions::from_raw_mode(facts.st_mode).intersects(executable) {
                Ok(Kind::Script)
            } else {
                Err(Some(Failure::Forbidden("it is not executable".into())))
            }
        }
        _ => Err(Some(Failure::Forbidden("it is not a file".into()))),
    }
}

/// Looks on the loop when the way there is in memory, and elsewhere when it is not.
pub(super) async fn find(call: &Call) -> Result<Located, Failure> {
    let Call { ctx, subject, rules, .. } = call;
    let found = locate(&ctx.shared, &subject.settings, rules, &subject.path, Mode::Inline);
    match found {
        Ok(located) => return Ok(located),
        Err(Some(failure)) => return Err(failure),
        Err(None) => {}
    }
    let (shared, rules) = (Arc::clone(&ctx.shared), Arc::clone(rules));
    let (settings, path) = (Arc::clone(&subject.settings), subject.path.clone());
    let found = tokio::task::spawn_blocking(move || {
        locate(&shared, &settings, &rules, &path, Mode::Blocking)
    });
    let missing = || Failure::Broken("it could not be looked for".into());
    found.await.map_err(|_| missing())?.map_err(|failure| failure.unwrap_or_else(missing))
}
