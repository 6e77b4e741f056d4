//! Conditions on files: `file = "/srv/site/maintenance.html"`, `directory = "/srv/site{path}"`.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::chroot;
use super::facts::Facts;
use super::map::{Map, Maps};
use super::template::Template;

/// What a name has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileKind {
    File,
    Directory,
    Any,
}

/// A condition on the file that a text with values of the request names.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FileTest {
    kind: FileKind,
    /// The directory before the first placeholder, which the name does not leave.
    folder: PathBuf,
    /// What follows the directory.
    name: Template,
    /// As in the configuration.
    text: String,
}

impl FileTest {
    /// Reads the path of a file, which may have values of requests after its first directory.
    ///
    /// # Errors
    /// The path is relative, begins with a placeholder, or is outside of the server's root directory, or a placeholder is unknown.
    pub(super) fn parse(kind: FileKind, text: &str, maps: &Maps) -> Result<Self, String> {
        let fixed = text.split('{').next().unwrap_or_default();
        let end = match fixed.len() == text.len() {
            true => text.len(),
            false => fixed.rfind('/').map_or(0, |slash| slash + 1),
        };
        let (folder, name) = text.split_at(end);
        if !folder.starts_with('/') || text.contains('\0') {
            return Err(format!("{text:?} does not begin with an absolute path"));
        }
        let folder = chroot::reach(Path::new(folder))?;
        let name = Template::with_values(name, &[], maps)?;
        Ok(Self { kind, folder, name, text: text.to_owned() })
    }

    /// Returns the maps whose values the path names.
    pub(super) fn maps(&self) -> impl Iterator<Item = &Map> {
        self.name.maps()
    }

    /// Returns `true` if there is such a file now. A name that leaves the directory is that of none.
    pub(super) fn holds(&self, facts: &Facts<'_>) -> bool {
        let mut name = Vec::new();
        self.name.pieces(Some(facts), &mut |piece| piece.push_plain(&mut name), |_, _| {});
        let leaves = |segment: &[u8]| segment == b"..";
        // A NUL is an encoded slash.
        if name.contains(&0) || name.split(|&byte| byte == b'/').any(leaves) {
            return false;
        }
        let start = name.iter().take_while(|&&byte| byte == b'/').count();
        let path = match &name[start..] {
            [] => self.folder.clone(),
            name => self.folder.join(OsStr::from_bytes(name)),
        };
        let Ok(metadata) = std::fs::metadata(path) else { return false };
        match self.kind {
            FileKind::File => metadata.is_file(),
            FileKind::Directory => metadata.is_dir(),
            FileKind::Any => true,
        }
    }
}

impl fmt::Display for FileTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            FileKind::File => "file",
            FileKind::Directory => "directory",
            FileKind::Any => "exists",
        };
        write!(f, "{kind} {:?}", self.text)
    }
}

#[cfg(test)]
mod tests {
    use dunlin_http::http1::Http1Connection;
    use dunlin_http::{Head, Limits, Request};

    use super::*;

    fn holds(kind: FileKind, text: &str, path: &str) -> bool {
        let message = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        let mut head = Head::default();
        let read = Http1Connection::default().head(message, &Limits::default(), &mut head);
        assert!(matches!(read, Ok(Some(_))));
        let request = Request::new(message, &head);
        let (path, query) = (path.as_bytes(), None);
        let facts = Facts { request, path, query, client: None, encrypted: false, hidden: &[] };
        FileTest::parse(kind, text, &Maps::default()).unwrap().holds(&facts)
    }

    #[test]
    fn files_and_directories_are_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_str().unwrap();
        std::fs::create_dir_all(folder.path().join("a/b")).unwrap();
        std::fs::write(folder.path().join("a/x.html"), "").unwrap();
        let (file, directory, any) = (FileKind::File, FileKind::Directory, FileKind::Any);
        for (kind, text, path, expected) in [
            (file, "{root}/a/x.html", "/", true),
            (file, "{root}{path}", "/a/x.html", true),
            (file, "{root}{path}.html", "/a/x", true),
            (file, "{root}/a{path}", "/x.html", true),
            (file, "{root}{path}", "/a", false),
            (file, "{root}{path}", "/a/y.html", false),
            (directory, "{root}{path}", "/a/", true),
            (directory, "{root}{path}", "/", true),
            (directory, "{root}{path}", "/a/x.html", false),
            (any, "{root}{path}", "/a/b", true),
            (any, "{root}{path}", "/c", false),
            // What a client sends leads nowhere else.
            (any, "{root}/a{path}", "/../a", false),
            (any, "{root}{path}", "/a\0b", false),
        ] {
            assert_eq!(holds(kind, &text.replace("{root}", root), path), expected, "{text} {path}");
        }
    }

    #[test]
    fn paths_begin_with_a_directory() {
        for text in ["x.html", "{path}", "", "/a/{nothing}"] {
            assert!(FileTest::parse(FileKind::File, text, &Maps::default()).is_err(), "{text}");
        }
    }
}
