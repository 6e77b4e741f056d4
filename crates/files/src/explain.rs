//! Reports which file a path leads to, by the search that serves requests.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::media_type::content_type;
use super::objects::resolve;
use super::resolve::open_file;
use super::search::{Found, Opener, Wanted, search};
use super::source::source_of;
use dunlin_coding::MIN_LENGTH;
use dunlin_config::{Config, ObjectRoot, Settings};
use dunlin_fs::failure::Failure;
use dunlin_fs::mode::Mode;
use dunlin_fs::open::open_directory;
use dunlin_fs::protected::Protected;
use dunlin_fs::roots::{Root, Roots};
use dunlin_http::semantics::ContentCoding;

/// The result of a search that loads nothing.
pub struct Explained {
    /// The path of the file or directory.
    pub result: Result<Found<PathBuf, PathBuf>, Failure>,
    /// Each path without a result, with the reason.
    pub tried: Vec<String>,
}

/// Searches for the file of `wanted` with the permissions of this process.
pub fn explain(config: &Config, wanted: &Wanted<'_>) -> Explained {
    let roots = Roots::default();
    let protected = Protected::new(config.protected_files());
    let tried: RefCell<Vec<String>> = RefCell::default();
    if let Some(objects) = &wanted.route.objects {
        let result = search(wanted, || Ok(KeyOpener { root: objects, tried: &tried }));
        return Explained { result, tried: tried.into_inner() };
    }
    let result = search(wanted, || {
        let path = &wanted.route.root;
        let root = open_root(&roots, path).map_err(|error| {
            let error = error.to_string();
            // The number of the error does not help an administrator.
            let reason = error.split(" (os error").next().unwrap_or_default();
            tried.borrow_mut().push(format!("root {}: {reason}", path.display()));
            Failure::Broken
        })?;
        Ok(PathOpener { root, roots: &roots, protected: &protected, tried: &tried })
    });
    Explained { result, tried: tried.into_inner() }
}

/// Describes the codings in which a file is sent.
pub fn codings(settings: &Settings, file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let content = content_type(&name, &settings.types, &settings.charset);
    if content.coding != ContentCoding::Identity {
        return format!("{}, which the file itself has", content.coding.as_str());
    }
    let metadata = std::fs::metadata(file);
    let length = metadata.as_ref().map_or(0, std::fs::Metadata::len);
    let modified = metadata.and_then(|metadata| metadata.modified()).ok();
    let sibling = |coding: &ContentCoding| {
        let name = format!("{name}{}", coding.suffix().unwrap_or_default());
        let sibling = std::fs::metadata(file.with_file_name(&name)).ok()?;
        (sibling.is_file() && sibling.modified().ok() >= modified).then_some(name)
    };
    let is_made =
        content.is_compressible && (MIN_LENGTH..=settings.compress_size).contains(&length);
    let mut codings = Vec::new();
    for coding in [ContentCoding::Zstd, ContentCoding::Brotli, ContentCoding::Gzip] {
        let has_siblings = settings.precompressed.contains(&coding) && !content.is_compressed;
        match Some(coding).filter(|_| has_siblings).as_ref().and_then(sibling) {
            Some(name) => codings.push(format!("{} from the file {name}", coding.as_str())),
            None if is_made && settings.compress.contains(&coding) => {
                codings.push(format!("{} that is made once", coding.as_str()));
            }
            None => {}
        }
    }
    match codings.join(", ") {
        some if !some.is_empty() => format!("{some}, as the client accepts it"),
        _ if settings.compress.is_empty() => "none: `compress` is false".to_owned(),
        _ if !content.is_compressible => format!("none: {} is not compressed", content.media_type),
        _ => format!(
            "none: the file has {length} bytes, and those of {MIN_LENGTH} bytes up to `compress_size` are compressed"
        ),
    }
}

fn open_root(roots: &Roots, path: &Path) -> std::io::Result<Arc<Root>> {
    roots.get(path, None, u64::MAX).root
}

/// Opens files as the server does, and returns only their paths.
struct PathOpener<'a> {
    root: Arc<Root>,
    roots: &'a Roots,
    protected: &'a Protected,
    tried: &'a RefCell<Vec<String>>,
}

impl PathOpener<'_> {
    fn report(&self, wanted: &Wanted<'_>, file: &[u8], reason: impl fmt::Display) {
        let path = place(wanted, file);
        self.tried.borrow_mut().push(format!("{}: {reason}", path.display()));
    }
}

impl Opener for PathOpener<'_> {
    type File = PathBuf;
    type Directory = PathBuf;

    fn file(
        &self,
        wanted: &Wanted<'_>,
        file: &[u8],
        _is_probe: bool,
    ) -> Result<Found<PathBuf, PathBuf>, Failure> {
        let settings = wanted.route;
        let opened = open_file(&self.root, file, settings, self.protected, Mode::Blocking)
            .inspect_err(|failure| self.report(wanted, file, failure))?;
        let Some((fd, metadata)) = opened else { return Ok(Found::Directory) };
        let open = |path: &Path| open_root(self.roots, path);
        if let Some(rule) = source_of(settings, &open, &self.root, file, &fd, &metadata) {
            let reason = format!("route {:?} runs it, and its source is not sent", rule.route);
            self.report(wanted, file, reason);
            return wanted.run_elsewhere(file).map(Found::Elsewhere);
        }
        Ok(Found::File(place(wanted, file)))
    }

    fn directory(&self, wanted: &Wanted<'_>, directory: &[u8]) -> Result<PathBuf, Failure> {
        open_directory(&self.root, directory, wanted.route.symlinks, Mode::Blocking)
            .inspect_err(|failure| self.report(wanted, directory, failure))?;
        Ok(place(wanted, directory))
    }
}

/// Lists the keys that the server would request. It does not send requests.
struct KeyOpener<'a> {
    root: &'a ObjectRoot,
    tried: &'a RefCell<Vec<String>>,
}

impl Opener for KeyOpener<'_> {
    type File = PathBuf;
    type Directory = PathBuf;

    fn file(
        &self,
        _wanted: &Wanted<'_>,
        file: &[u8],
        _is_probe: bool,
    ) -> Result<Found<PathBuf, PathBuf>, Failure> {
        let line = match resolve::key_of(self.root, file) {
            Some(key) => {
                let (scheme, bucket) = (self.root.scheme.as_str(), &self.root.bucket);
                format!("{scheme}://{bucket}/{key}: requested from the store (not by this command)")
            }
            None => format!("{}: no object has this key", String::from_utf8_lossy(file)),
        };
        self.tried.borrow_mut().push(line);
        Err(Failure::Missing)
    }

    fn directory(&self, _wanted: &Wanted<'_>, _directory: &[u8]) -> Result<PathBuf, Failure> {
        Err(Failure::Missing)
    }
}

fn place(wanted: &Wanted<'_>, file: &[u8]) -> PathBuf {
    wanted.route.root.join(OsStr::from_bytes(file))
}
