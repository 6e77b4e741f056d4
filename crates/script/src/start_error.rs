//! Describes why a script cannot be run: which file, and what to change.

use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::search_path::search_path;
use dunlin_config::Symlinks;

/// Bytes that the kernel reads of a file to find its interpreter.
pub(super) const FIRST_LINE: u64 = 256;

/// A script that exists and may not be run.
#[derive(Debug)]
pub struct Rejected {
    /// The file of the program, if known.
    pub(super) program: Option<PathBuf>,
    pub(super) reason: String,
}

impl Rejected {
    pub(super) fn new(program: &Path, reason: impl Into<String>) -> Self {
        Self { program: Some(program.to_owned()), reason: reason.into() }
    }
}

/// Describes why starting `program` failed with `error`.
pub(super) fn not_started(program: &Path, error: &io::Error) -> String {
    if !program.as_os_str().as_bytes().contains(&b'/') {
        return match error.kind() {
            ErrorKind::NotFound => "there is no program of that name in PATH".into(),
            // The system reports the first directory that it may not search.
            ErrorKind::PermissionDenied if !is_in_path(program) => {
                "there is no program of that name in PATH, as far as the server's user may search it".into()
            }
            _ => error.to_string(),
        };
    }
    match fs::metadata(program) {
        Err(found) if found.kind() == ErrorKind::NotFound => return "it does not exist".into(),
        Err(found) => return format!("it cannot be reached: {found}"),
        Ok(metadata) if !metadata.is_file() => return "it is not a file".into(),
        Ok(_) if access(program, Access::EXEC_OK).is_err() => {
            return "it is not executable by the server's user (chmod +x)".into();
        }
        Ok(_) => {}
    }
    of_first_line(program, error).unwrap_or_else(|| error.to_string())
}

fn is_in_path(program: &Path) -> bool {
    std::env::split_paths(&search_path()).any(|folder| folder.join(program).is_file())
}

/// Explains `error` by the first line of an executable file.
fn of_first_line(program: &Path, error: &io::Error) -> Option<String> {
    let mut first = Vec::new();
    File::open(program).ok()?.take(FIRST_LINE).read_to_end(&mut first).ok()?;
    let Some((interpreter, _)) = interpreter(&first) else {
        let is_script = !first.starts_with(b"\x7fELF") && !first.starts_with(b"#!");
        return match error.kind() {
            _ if is_script => Some(
                "it has no first line such as \"#!/bin/sh\" and is not a program for this machine"
                    .into(),
            ),
            ErrorKind::NotFound => Some("the dynamic loader that it names does not exist".into()),
            _ => None,
        };
    };
    let name = interpreter.display().to_string();
    if interpreter.as_os_str().as_bytes().ends_with(b"\r") {
        return Some(format!(
            "its first line ends in CR LF, so that its interpreter would be {name:?}; save it with LF line ends"
        ));
    }
    match fs::metadata(interpreter) {
        Err(found) if found.kind() == ErrorKind::NotFound => {
            Some(format!("its interpreter {name} does not exist"))
        }
        _ if access(interpreter, Access::EXEC_OK).is_err() => {
            Some(format!("its interpreter {name} cannot be executed by the server's user"))
        }
        _ => None,
    }
}

/// Returns the interpreter that the first line of a script names and its one argument, as the kernel reads them.
pub(super) fn interpreter(first: &[u8]) -> Option<(&Path, Option<&OsStr>)> {
    const BLANK: [u8; 2] = [b' ', b'\t'];
    let line = first.strip_prefix(b"#!")?;
    // A line without its end within the limit may be incomplete.
    let line = trim(&line[..memchr::memchr(b'\n', line)?], BLANK);
    let space = line.iter().position(|byte| BLANK.contains(byte)).unwrap_or(line.len());
    let (interpreter, rest) = line.split_at(space);
    let rest = trim(rest, BLANK);
    let rest = (!rest.is_empty()).then(|| OsStr::from_bytes(rest));
    (!interpreter.is_empty()).then(|| (Path::new(OsStr::from_bytes(interpreter)), rest))
}

fn trim(mut text: &[u8], blank: [u8; 2]) -> &[u8] {
    while let [first, rest @ ..] = text
        && blank.contains(first)
    {
        text = rest;
    }
    while let [rest @ .., last] = text
        && blank.contains(last)
    {
        text = rest;
    }
    text
}

/// Returns why the file `name` beneath `directory` may not be opened.
pub(super) fn not_opened(directory: &Path, name: &[u8], symlinks: Symlinks) -> Rejected {
    let program = directory.join(OsStr::from_bytes(name));
    let mut path = directory.to_owned();
    for part in Path::new(OsStr::from_bytes(name)) {
        path.push(part);
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_symlink() => {
                let reason = of_symlink(&path, &program, symlinks);
                return Rejected { program: Some(program), reason };
            }
            Ok(_) => {}
            Err(error) => {
                let reason = format!("{} cannot be reached: {error}", path.display());
                return Rejected { program: Some(program), reason };
            }
        }
    }
    Rejected { reason: "the server's user may not open it".into(), program: Some(program) }
}

fn of_symlink(path: &Path, program: &Path, symlinks: Symlinks) -> String {
    let what: &dyn Display = if path == program { &"it" } else { &path.display() };
    let target = fs::read_link(path).unwrap_or_default();
    let target = target.display();
    match symlinks {
        Symlinks::Deny => {
            format!("{what} is a symlink to {target}, and the route has symlinks = \"deny\"")
        }
        Symlinks::Beneath | Symlinks::Follow => format!(
            "{what} is a symlink to {target}, which leads out of the directory; symlinks = \"follow\" in the route allows that"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn read(line: &str) -> Option<(&str, Option<&str>)> {
        let (path, option) = interpreter(line.as_bytes())?;
        Some((path.to_str()?, option.and_then(OsStr::to_str)))
    }

    #[test]
    fn first_lines_are_read_as_the_kernel_does() {
        assert_eq!(read("#!/bin/sh\n"), Some(("/bin/sh", None)));
        assert_eq!(read("#! /bin/x  -a -b \nmore"), Some(("/bin/x", Some("-a -b"))));
        assert_eq!(read("#!/bin/sh\r\n"), Some(("/bin/sh\r", None)));
        assert_eq!(read("#!/bin/sh -e\r\n"), Some(("/bin/sh", Some("-e\r"))));
        assert_eq!(read("#!/bin/sh"), None);
        assert_eq!(read("#!\n"), None);
        assert_eq!(read("echo\n"), None);
    }

    #[test]
    fn the_reason_names_the_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("script");
        let error = io::Error::from(ErrorKind::NotFound);
        let check = |text: &str, mode, expected: &str| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            let reason = not_started(&file, &error);
            assert!(reason.contains(expected), "{reason}");
        };
        check("#!/bin/sh\n", 0o644, "chmod +x");
        check("#!/bin/sh\r\n", 0o755, "\"/bin/sh\\r\"");
        check("#!/no/such -x\n", 0o755, "interpreter /no/such does not exist");
        check("#!/etc/passwd\n", 0o755, "interpreter /etc/passwd cannot be executed");
        check("echo\n", 0o755, "no first line");
        check("", 0o755, "no first line");
        fs::remove_file(&file).unwrap();
        assert!(not_started(&file, &error).contains("does not exist"));
        assert!(not_started(Path::new("no-such"), &error).contains("PATH"));
        symlink("/bin/sh", &file).unwrap();
        let rejected = not_opened(folder.path(), b"script", Symlinks::Beneath);
        assert!(
            rejected.reason.contains("symlink to /bin/sh") && rejected.reason.contains("follow")
        );
        assert_eq!(rejected.program, Some(file));
        assert!(not_opened(folder.path(), b"script", Symlinks::Deny).reason.contains("deny"));
    }
}
