//! The directory entries that the resolution of a path visits.

use rustix::io::Errno;

/// A directory entry that is visited. `directory` is absolute.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) directory: Vec<u8>,
    pub(crate) name: Vec<u8>,
    pub(crate) is_symlink: bool,
}

/// The kernel's limit on symlinks in one path.
const MAX_SYMLINKS: usize = 40;

/// Returns every entry that the resolution of the absolute `path` visits, including those in the targets of symlinks, up to
/// the first that is missing.
pub(crate) fn steps(path: &[u8]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut symlinks = 0;
    let mut reached: Vec<u8> = Vec::new();
    // Names that are still to be visited, the next one last.
    let mut rest = names(path);
    while let Some(name) = rest.pop() {
        if name == b".." {
            reached.truncate(memchr::memrchr(b'/', &reached).unwrap_or(0));
            continue;
        }
        let directory = if reached.is_empty() { b"/".to_vec() } else { reached.clone() };
        let at = [&*reached, b"/", &*name].concat();
        let target = rustix::fs::readlink(&*at, Vec::new());
        steps.push(Step { directory, name, is_symlink: target.is_ok() });
        match target {
            Ok(target) if symlinks < MAX_SYMLINKS => {
                symlinks += 1;
                if target.as_bytes().starts_with(b"/") {
                    reached.clear();
                }
                rest.extend(names(target.as_bytes()));
            }
            // The entry exists and is not a symlink.
            Err(Errno::INVAL) => reached = at,
            _ => break,
        }
    }
    steps
}

/// Returns the names of a path in reverse order.
fn names(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|&b| b == b'/').filter(|name| !matches!(*name, b"" | b"."));
    let mut names: Vec<_> = names.map(<[u8]>::to_vec).collect();
    names.reverse();
    names
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    #[test]
    fn steps_include_symlinks_and_the_entries_of_their_targets() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let base = base.as_os_str().as_bytes();
        let at = |name: &str| Path::new(OsStr::from_bytes(base)).join(name);
        fs::create_dir_all(at("real/deep")).unwrap();
        symlink("b", at("a")).unwrap();
        symlink(at("real/../real"), at("b")).unwrap();
        symlink("loop", at("loop")).unwrap();
        let walk = |path: &str| {
            let steps = steps(at(path).as_os_str().as_bytes()).into_iter();
            let steps = steps.filter_map(|Step { directory, name, is_symlink }| {
                let beneath = directory.strip_prefix(base)?;
                let path = [beneath, b"/", &name].concat();
                Some((String::from_utf8(path).unwrap(), is_symlink))
            });
            steps.collect::<Vec<_>>()
        };
        let expected = [
            ("/a", true),
            ("/b", true),
            ("/real", false),
            ("/real", false),
            ("/real/deep", false),
            ("/real/deep/missing", false),
        ];
        let expected = expected.map(|(path, is_symlink)| (path.to_owned(), is_symlink));
        assert_eq!(walk("a/deep/missing/further"), expected);
        assert_eq!(walk("loop").len(), MAX_SYMLINKS + 1);
    }
}
