//! The properties that clients set, in an extended attribute of the file or directory.

use dunlin_dav::xml::Element;
use dunlin_dav::{headers, multistatus, properties, requests};
use rustix::fd::AsFd;
use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;

use super::conditions::Changed;
use super::tree::failed;
use super::{DavRequest, Outcome, Performed, Tree, tree_path};

/// The attribute.
const ATTRIBUTE: &str = "user.dunlin.dav";
/// The maximum size of its value: the most that a file system stores.
const MAX: usize = 64 * 1024;

impl Tree {
    /// Changes properties (PROPPATCH).
    pub(super) fn patch(&self, request: &DavRequest) -> Performed {
        let changes = requests::proppatch(&request.body)?;
        headers::depth(&request.request.as_request())?;
        let path = tree_path(&request.path);
        let item = self.find(&path)?.ok_or(Outcome::of(404))?;
        let changed = Changed { path: &path, with_members: false, is_member: false };
        self.check_conditions(request, &path, &[changed])?;
        let is_prevented = changes.iter().any(|change| properties::is_live(&change.name));
        let mut status = 200;
        if !is_prevented {
            let mut all = read(&item.fd);
            properties::apply(&mut all, &changes);
            if let Err(error) = write(&item.fd, &all) {
                status = failed(error).status;
            }
        }
        let href = self.href(&path, item.is_collection);
        let body = multistatus::patch_response(&href, &changes, status);
        Ok(Outcome { body: Some(body), ..Outcome::of(207) })
    }
}

/// Returns the properties of an open file; none where the file system has no such attributes.
pub(super) fn read(fd: impl AsFd) -> Vec<Element> {
    stored(fd).map_or_else(Vec::new, |stored| properties::decode(&stored))
}

fn stored(fd: impl AsFd) -> Option<Vec<u8>> {
    let mut value = Vec::with_capacity(4096);
    match fgetxattr(&fd, ATTRIBUTE, rustix::buffer::spare_capacity(&mut value)) {
        Ok(_) => return Some(value),
        Err(Errno::RANGE) => {}
        Err(_) => return None,
    }
    let mut value = Vec::with_capacity(MAX);
    fgetxattr(&fd, ATTRIBUTE, rustix::buffer::spare_capacity(&mut value)).ok()?;
    Some(value)
}

fn write(fd: impl AsFd, all: &[Element]) -> rustix::io::Result<()> {
    match properties::encode(all) {
        Some(text) => fsetxattr(fd, ATTRIBUTE, text.as_bytes(), XattrFlags::empty()),
        None => match fremovexattr(fd, ATTRIBUTE) {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
            result => result,
        },
    }
}

/// Gives one open file the properties of another.
pub(super) fn copy(from: impl AsFd, to: impl AsFd) -> rustix::io::Result<()> {
    match stored(from) {
        Some(stored) => fsetxattr(to, ATTRIBUTE, &stored, XattrFlags::empty()),
        None => Ok(()),
    }
}
