//! Reading a configuration: from a file, from a text, or for a directory without a file.

use std::path::Path;

use super::check::check;
use super::chroot::{self, Chroot};
use super::config::Config;
use super::error::{Problem, Source};
use super::file;
use super::includes::Files;
use super::overrides::Overrides;
use super::read;
use super::spanned::Spanned;

impl Config {
    /// Reads and checks the file at `path`, without the files that it names.
    ///
    /// # Errors All problems that were found, with their positions.
    pub fn load(path: &Path, overrides: &Overrides) -> Result<Self, Vec<Problem>> {
        Self::parse(&read(path)?, path, overrides)
    }

    /// Returns `true` if there is a file at `path`, as it is named from the working directory of the start.
    pub fn exists(path: &Path) -> bool {
        chroot::reach(path).is_ok_and(|path| path.is_file())
    }

    /// Like [`Config::load`], for a process that is going to serve: if the file names a chroot, paths are translated
    /// into it.
    ///
    /// # Errors All problems that were found, with their positions.
    pub fn load_to_serve(path: &Path, overrides: &Overrides) -> Result<Self, Vec<Problem>> {
        Self::parse_for(&read(path)?, path, overrides, true)
    }

    /// Checks `text`, the content of the file at `path`, without access to the disk. Relative paths are relative to
    /// that file.
    ///
    /// # Errors All problems that were found, with their positions.
    pub fn parse(text: &str, path: &Path, overrides: &Overrides) -> Result<Self, Vec<Problem>> {
        Self::parse_for(text, path, overrides, Chroot::entered().is_some())
    }

    /// If `inside`, paths are translated into the chroot that the file names, if any.
    fn parse_for(
        text: &str,
        path: &Path,
        overrides: &Overrides,
        inside: bool,
    ) -> Result<Self, Vec<Problem>> {
        let files = Files::gather(path, text)?;
        let source = Source { path, text: &files.text, parts: &files.parts };
        let mut file = read::read(&source).map_err(Problem::sorted)?;
        let overrides = overrides.clone().absolute();
        overrides.apply(&mut file)?;
        let config = check(file, &source, inside).map_err(Problem::sorted)?;
        Ok(Self { overrides, ..config })
    }

    /// Returns the configuration that serves `directory` without a file: listings and compression are on, and the
    /// access log is written to standard output.
    ///
    /// # Errors `directory` is not a directory.
    pub fn for_directory(directory: &Path, overrides: &Overrides) -> Result<Self, Vec<Problem>> {
        let mut file = file::File::default();
        file.listen.push(file::ListenTable::default());
        file.server.access_log = Some(Spanned::detached(file::AccessLogForm::to("-")));
        file.server.admin = overrides.admin.clone().map(Spanned::detached);
        let root = Some(Spanned::detached(directory.to_owned()));
        file.site.push(Spanned::detached(file::SiteTable {
            root,
            listing: Some(Spanned::detached(true)),
            ..Default::default()
        }));
        let overrides = overrides.clone().absolute();
        overrides.apply(&mut file)?;
        let source = Source { path: Path::new(""), text: "", parts: &[] };
        let config = check(file, &source, false)?;
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        let unused = Some(directory.join("dunlin.toml"));
        Ok(Self { overrides, unused, ..config })
    }
}

/// Reads the file, from outside or inside of the chroot.
fn read(path: &Path) -> Result<String, Vec<Problem>> {
    let content =
        chroot::reach(path).and_then(|path| std::fs::read(path).map_err(|error| error.to_string()));
    let content = content.map_err(|what| vec![Problem::of_file(path, &what)])?;
    String::from_utf8(content).map_err(|error| {
        let end = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(&error.as_bytes()[..end]);
        let what = "a byte here is not UTF-8, in which configurations are written".to_owned();
        vec![Source { path, text: &text, parts: &[] }.problem(Some(&(end..end)), what)]
    })
}
