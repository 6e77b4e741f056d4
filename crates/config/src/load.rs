//! Reading a configuration: from a file, from a text, or for a directory without a file.

use std::path::Path;

use super::check::check;
use super::config::Config;
use super::error::{Problem, Source};
use super::file;
use super::jail::{self, Jail};
use super::overrides::Overrides;
use super::read;
use super::spanned::Spanned;

impl Config {
    /// Reads and checks the file at `path`; the files that it names are not examined.
    ///
    /// # Errors
    /// Every problem that could be found, each with its place.
    pub fn load(path: &Path, overrides: &Overrides) -> Result<Self, Vec<Problem>> {
        Self::parse(&read(path)?, path, overrides)
    }

    /// Whether there is a file at `path`, as it is called from where the server was started.
    pub fn is_there(path: &Path) -> bool {
        jail::reach(path).is_ok_and(|path| path.is_file())
    }

    /// The same for a process that is going to serve by it: where the file names a directory that becomes
    /// all the files there are, paths mean what they will mean inside.
    ///
    /// # Errors
    /// Every problem that could be found, each with its place.
    pub fn load_to_serve(path: &Path, overrides: &Overrides) -> Result<Self, Vec<Problem>> {
        Self::parse_for(&read(path)?, path, overrides, true)
    }

    /// Checks `text`, the content of the file at `path`; relative paths in it are relative to
    /// that file. Nothing is looked up on the disk.
    ///
    /// # Errors
    /// Every problem that could be found, each with its place.
    pub fn parse(text: &str, path: &Path, overrides: &Overrides) -> Result<Self, Vec<Problem>> {
        Self::parse_for(text, path, overrides, Jail::entered().is_some())
    }

    /// `inside`: paths are to mean what they do inside the directory that the file names, if any.
    fn parse_for(
        text: &str,
        path: &Path,
        overrides: &Overrides,
        inside: bool,
    ) -> Result<Self, Vec<Problem>> {
        let source = Source { path, text };
        let mut file = read::read(&source).map_err(Problem::sorted)?;
        let overrides = overrides.clone().absolute();
        overrides.apply(&mut file)?;
        let config = check(file, &source, inside).map_err(Problem::sorted)?;
        Ok(Self { overrides, ..config })
    }

    /// The configuration that serves `directory` without any file: listings and compression on,
    /// the access log on standard output.
    ///
    /// # Errors
    /// When the directory is not one.
    pub fn for_directory(directory: &Path, overrides: &Overrides) -> Result<Self, Vec<Problem>> {
        let mut file = file::File::default();
        file.listen.push(file::Listen::default());
        file.server.access_log = Some(Spanned::detached(file::AccessLog::to("-")));
        let route = file::Route { listing: Some(Spanned::detached(true)), ..Default::default() };
        let root = Some(Spanned::detached(directory.to_owned()));
        file.site.push(Spanned::detached(file::Site {
            root,
            route: vec![route],
            ..Default::default()
        }));
        let overrides = overrides.clone().absolute();
        overrides.apply(&mut file)?;
        let source = Source { path: Path::new(""), text: "" };
        let config = check(file, &source, false)?;
        let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        let unused = Some(directory.join("dunlin.toml"));
        Ok(Self { overrides, unused, ..config })
    }
}

/// The file's text, wherever this process is.
fn read(path: &Path) -> Result<String, Vec<Problem>> {
    let text = jail::reach(path)
        .and_then(|path| std::fs::read_to_string(path).map_err(|error| error.to_string()));
    text.map_err(|what| vec![Problem::of_file(path, &what)])
}
