//! MKCOL, DELETE, COPY and MOVE.

use std::io;

use dunlin_dav::headers::{self, Depth};
use dunlin_dav::multistatus;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, fchmod, mkdirat, openat2,
    renameat_with, unlinkat,
};

use super::conditions::Changed;
use super::tree::{Entry, Item, failed};
use super::upload::NewFile;
use super::{DavRequest, Outcome, Performed, Tree, properties, tree_path};

/// The levels of collections that a request changes at most.
const MAX_LEVELS: usize = 64;

/// The resources that were not changed, with the status of each.
type Failures = Vec<(String, u16)>;

impl Tree {
    /// Makes a collection (MKCOL).
    pub(super) fn make_collection(&self, request: &DavRequest) -> Performed {
        if !request.body.is_empty() {
            return Err(Outcome::of(415));
        }
        let path = tree_path(&request.path);
        self.check_permitted(&path, true)?;
        if self.find(&path)?.is_some() {
            return Err(Outcome::of(405));
        }
        let changed = Changed { path: &path, with_members: false, is_member: true };
        self.check_conditions(request, &path, &[changed])?;
        let Entry { directory, name } = self.entry(&path)?;
        mkdirat(directory, &*name, Mode::from_raw_mode(0o777)).map_err(failed)?;
        Ok(Outcome::of(201))
    }

    /// Removes a resource with its members (DELETE).
    pub(super) fn delete(&self, request: &DavRequest) -> Performed {
        let path = tree_path(&request.path);
        let item = self.find(&path)?.ok_or(Outcome::of(404))?;
        let depth = headers::depth(&request.request.as_request())?;
        if item.is_collection && depth.is_some_and(|depth| depth != Depth::Infinity) {
            return Err(Outcome::of(400));
        }
        if !item.is_collection && request.path.ends_with(b"/") {
            return Err(Outcome::of(404));
        }
        let changed = Changed { path: &path, with_members: true, is_member: true };
        self.check_conditions(request, &path, &[changed])?;
        let mut failures = Failures::new();
        self.remove(&path, 0, &mut failures)?;
        Ok(concluded(failures, 204))
    }

    /// Removes what is at a path. What cannot be removed beneath it is added to `failures`.
    fn remove(&self, path: &[u8], level: usize, failures: &mut Failures) -> Result<(), Outcome> {
        let entry = self.entry(path)?;
        let Some(kind) = entry.kind()? else { return Ok(()) };
        self.check_removable(path, kind)?;
        if kind == FileType::Directory {
            if level >= MAX_LEVELS {
                return Err(Outcome::of(507));
            }
            let before = failures.len();
            for name in self.names(path, usize::MAX)? {
                let member = [path, b"/", &*name].concat();
                if let Err(outcome) = self.remove(&member, level + 1, failures) {
                    failures.push((self.href(&member, false), outcome.status));
                }
            }
            if failures.len() > before {
                return Ok(());
            }
        }
        let flags = if kind == FileType::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        unlinkat(&entry.directory, &*entry.name, flags).map_err(failed)?;
        if level == 0 {
            self.locks().remove_tree(&self.lock_path(path));
        }
        Ok(())
    }

    /// Copies or moves a resource with its members (COPY, MOVE).
    pub(super) fn copy_or_move(&self, request: &DavRequest, moves: bool) -> Performed {
        let head = request.request.as_request();
        let (from, to) = (tree_path(&request.path), self.destination(request)?);
        let depth = headers::depth(&head)?.unwrap_or(Depth::Infinity);
        let item = self.find(&from)?.ok_or(Outcome::of(404))?;
        if depth == Depth::One || moves && item.is_collection && depth != Depth::Infinity {
            return Err(Outcome::of(400));
        }
        if from == to || is_within(&to, &from) && (moves || depth > Depth::Zero) {
            return Err(Outcome::of(403));
        }
        if is_within(&from, &to) {
            // It would be removed with what it replaces.
            return Err(Outcome::of(409));
        }
        self.check_permitted(&to, item.is_collection)?;
        let replaced = self.find(&to)?;
        if replaced.is_some() && !headers::overwrites(&head)? {
            return Err(Outcome::of(412));
        }
        let is_new = replaced.is_none();
        let source = Changed { path: &from, with_members: true, is_member: true };
        let target = Changed { path: &to, with_members: true, is_member: is_new };
        let changed = if moves { vec![source, target] } else { vec![target] };
        self.check_conditions(request, &from, &changed)?;
        let mut failures = Failures::new();
        // A file takes the place of another at once.
        let (is_collection, deep) = (item.is_collection, depth == Depth::Infinity);
        if moves {
            self.check_movable(&from, &to, 0)?;
        }
        if replaced.is_some_and(|replaced| replaced.is_collection || is_collection) {
            self.remove(&to, 0, &mut failures)?;
        }
        if !failures.is_empty() {
            return Ok(concluded(failures, 207));
        }
        drop(item);
        match moves {
            true => self.rename(&from, &to)?,
            false => self.copy(&from, &to, (deep, 0), &mut failures)?,
        }
        Ok(concluded(failures, if is_new { 201 } else { 204 }))
    }

    /// Returns the error for a resource that cannot be moved, because the request may not concern all its members at both places.
    fn check_movable(&self, from: &[u8], to: &[u8], level: usize) -> Result<(), Outcome> {
        let entry = self.entry(from)?;
        let kind = entry.kind()?.ok_or(Outcome::of(404))?;
        if kind == FileType::Symlink {
            // It would lead elsewhere.
            return Err(Outcome::of(403));
        }
        self.check_removable(from, kind)?;
        self.check_permitted(to, kind == FileType::Directory)?;
        if kind != FileType::Directory {
            if level > 0 {
                return self.check_program_name(to, &entry);
            }
            let target = self.entry(to)?;
            return match target.kind()? {
                // It is removed before.
                Some(FileType::Directory) => self.check_program_name(to, &target),
                _ => self.check_new_name(to, &target),
            };
        }
        if level >= MAX_LEVELS {
            return Err(Outcome::of(507));
        }
        for name in self.names(from, usize::MAX)? {
            let of = |path: &[u8]| [path, b"/", &*name].concat();
            self.check_movable(&of(from), &of(to), level + 1)?;
        }
        Ok(())
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Outcome> {
        let (source, target) = (self.entry(from)?, self.entry(to)?);
        renameat_with(
            &source.directory,
            &*source.name,
            &target.directory,
            &*target.name,
            RenameFlags::empty(),
        )
        .map_err(failed)?;
        self.locks().remove_tree(&self.lock_path(from));
        Ok(())
    }

    /// Copies a resource. What cannot be copied beneath it is added to `failures`.
    fn copy(
        &self,
        from: &[u8],
        to: &[u8],
        (deep, level): (bool, usize),
        failures: &mut Failures,
    ) -> Result<(), Outcome> {
        let item = self.find(from)?.ok_or(Outcome::of(403))?;
        self.check_permitted(to, item.is_collection)?;
        let entry = self.entry(to)?;
        if !item.is_collection {
            self.check_new_name(to, &entry)?;
            let mut source = std::fs::File::from(item.fd);
            let mut new = NewFile::create(entry)?;
            io::copy(&mut source, new.file()).map_err(failed)?;
            return new.replace(Some(&(source.into(), item.metadata)));
        }
        if level >= MAX_LEVELS {
            return Err(Outcome::of(507));
        }
        mkdirat(&entry.directory, &*entry.name, Mode::from_raw_mode(0o777)).map_err(failed)?;
        self.copy_attributes(&item, &entry)?;
        if !deep {
            return Ok(());
        }
        for name in self.names(from, usize::MAX)? {
            let of = |path: &[u8]| [path, b"/", &*name].concat();
            let (from, to) = (of(from), of(to));
            // What clients do not see is not copied.
            if !matches!(self.find(&from), Ok(Some(_))) {
                continue;
            }
            if let Err(outcome) = self.copy(&from, &to, (deep, level + 1), failures) {
                failures.push((self.href(&to, false), outcome.status));
            }
        }
        Ok(())
    }

    fn copy_attributes(&self, from: &Item, to: &Entry) -> Result<(), Outcome> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let made = openat2(&to.directory, &*to.name, flags, Mode::empty(), resolve);
        let made = made.map_err(failed)?;
        fchmod(&made, Mode::from_raw_mode(from.metadata.mode & 0o777)).map_err(failed)?;
        properties::copy(&from.fd, &made).map_err(failed)
    }
}

/// Returns `true` if a path is that of a member of a collection.
fn is_within(path: &[u8], collection: &[u8]) -> bool {
    path.strip_prefix(collection).is_some_and(|rest| rest.starts_with(b"/"))
}

/// Returns the response to a request that was performed but for `failures`.
fn concluded(failures: Failures, status: u16) -> Outcome {
    if failures.is_empty() {
        return Outcome::of(status);
    }
    let mut body = multistatus::START.to_owned();
    for (href, status) in failures {
        multistatus::write_status(&href, status, &mut body);
    }
    body.push_str(multistatus::END);
    Outcome { body: Some(body), ..Outcome::of(207) }
}
