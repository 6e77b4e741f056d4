//! The key `alias`: a directory for what the `*` of a pattern stands for.

use std::borrow::Cow;

use super::pattern::Pattern;

/// The place of a directory in the paths of URLs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alias {
    /// The path of the directory, without a slash at its end; or the path of the only file.
    mount: Box<[u8]>,
    /// The name of the only file in its directory, with a slash before it.
    file: Option<Box<[u8]>>,
}

impl Alias {
    /// Creates the alias of a route. `file` is the name of the file, for a pattern without `*`.
    pub(super) fn new(pattern: &Pattern, file: Option<&[u8]>) -> Option<Self> {
        let mount = match file {
            Some(_) => pattern.prefix(),
            None => pattern.prefix().strip_suffix(b"/")?,
        };
        let file = file.map(|name| [b"/", name].concat().into());
        Some(Self { mount: mount.into(), file })
    }

    /// Describes it in one line.
    pub(super) fn describe(&self) -> String {
        format!("at {}", String::from_utf8_lossy(&self.mount))
    }

    /// Returns `true` if the alias is for one file.
    pub(super) fn is_file(&self) -> bool {
        self.file.is_some()
    }

    /// Returns the path beneath the directory for a decoded path; `None` if the path is not beneath the mount.
    fn file_path<'p>(&self, path: &'p [u8]) -> Option<Cow<'p, [u8]>> {
        let rest = path.strip_prefix(&*self.mount)?;
        match &self.file {
            Some(name) => rest.is_empty().then(|| Cow::Owned(name.to_vec())),
            None => rest.starts_with(b"/").then_some(Cow::Borrowed(rest)),
        }
    }

    /// Returns the path of the URL for a path beneath the directory, which has no slash at its front.
    fn url_path(&self, file: &[u8]) -> Vec<u8> {
        match &self.file {
            Some(_) => self.mount.to_vec(),
            None => [&*self.mount, b"/", file].concat(),
        }
    }
}

impl super::Settings {
    /// Returns the path beneath the root for the decoded path of a URL, with its leading slash; `None` if there is none.
    #[inline]
    pub fn file_path<'p>(&self, path: &'p [u8]) -> Option<Cow<'p, [u8]>> {
        match &self.alias {
            None => Some(Cow::Borrowed(path)),
            Some(alias) => alias.file_path(path),
        }
    }

    /// Returns the path of the URL for a path beneath the root, which has no slash at its front.
    pub fn url_path(&self, file: &[u8]) -> Vec<u8> {
        match &self.alias {
            None => [b"/", file].concat(),
            Some(alias) => alias.url_path(file),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_place_beneath_the_directory() {
        let pattern = |text| Pattern::parse(text).unwrap();
        let alias = Alias::new(&pattern("/pma/*"), None).unwrap();
        let found = |path: &str| alias.file_path(path.as_bytes()).map(Cow::into_owned);
        assert_eq!(found("/pma/a/b"), Some(b"/a/b".to_vec()));
        assert_eq!(found("/pma/"), Some(b"/".to_vec()));
        assert_eq!((found("/pmax"), found("/a"), found("/pma")), (None, None, None));
        assert_eq!(alias.url_path(b"a/b"), b"/pma/a/b");
        let one = Alias::new(&pattern("/robots.txt"), Some(b"r.txt")).unwrap();
        assert_eq!(one.file_path(b"/robots.txt").as_deref(), Some(&b"/r.txt"[..]));
        assert_eq!(one.file_path(b"/robots.txt/a"), None);
        assert_eq!(one.url_path(b"r.txt"), b"/robots.txt");
        assert!(Alias::new(&pattern("/a*"), None).is_none());
    }
}
