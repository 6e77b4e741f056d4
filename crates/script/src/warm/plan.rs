//! Decides how a program can be forked, by its first bytes.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, getxattr};

use super::super::start_error::{FIRST_LINE, interpreter};

/// The start of a program's fork server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The executable.
    pub(super) command: PathBuf,
    /// The `argv[0]` of the program.
    pub(super) name: OsString,
    /// The interpreter's option in the script's first line.
    pub(super) option: Option<OsString>,
    pub(super) language: Language,
}

/// The preparation of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    /// Not at all: the executable is stopped before it begins.
    Native,
    Python,
    Perl,
}

/// Size of the largest executable that is examined.
const LARGEST: u64 = 512 << 20;

/// Makes the plan for `program`. `path` is the value of PATH.
///
/// # Errors
/// Why it cannot be forked.
pub(super) fn plan(program: &Path, path: &OsStr) -> Result<Plan, String> {
    let mut first = Vec::new();
    let file = File::open(program).map_err(|error| error.to_string())?;
    file.take(FIRST_LINE).read_to_end(&mut first).map_err(|error| error.to_string())?;
    if first.starts_with(b"\x7fELF") {
        can_be_stopped(program)?;
        return Ok(Plan {
            command: program.to_owned(),
            name: program.as_os_str().to_owned(),
            option: None,
            language: Language::Native,
        });
    }
    access(program, Access::EXEC_OK).map_err(|error| error.to_string())?;
    let (interpreter, option) = interpreter(&first).ok_or("it names no interpreter")?;
    let (command, name, option) = match option {
        Some(name) if interpreter.ends_with("env") => {
            let found = look_for(name, path).ok_or("its interpreter is not in PATH")?;
            (found, name.to_owned(), None)
        }
        option => (interpreter.to_owned(), interpreter.as_os_str().to_owned(), option),
    };
    can_be_stopped(&command)?;
    let language = language(&command, option);
    Ok(Plan { command, name, option: option.map(OsStr::to_owned), language })
}

/// Returns the language, if the interpreter's options only affect its start. With any other option, the interpreter is
/// stopped before it begins, like any program.
fn language(command: &Path, option: Option<&OsStr>) -> Language {
    let name = command.file_name().unwrap_or_default().as_bytes();
    let is_version = |rest: &[u8]| rest.iter().all(|b| b.is_ascii_digit() || *b == b'.');
    let plain = |letters: &[u8]| {
        option.is_none_or(|option| match option.as_bytes().strip_prefix(b"-") {
            Some(given) => !given.is_empty() && given.iter().all(|letter| letters.contains(letter)),
            None => false,
        })
    };
    match (name.strip_prefix(b"python"), name.strip_prefix(b"perl")) {
        (Some(rest), _) if is_version(rest) && plain(b"bdEIOPqRsSu") => Language::Python,
        (_, Some(rest)) if is_version(rest) && plain(b"tTUwWX") => Language::Perl,
        _ => Language::Native,
    }
}

fn look_for(name: &OsStr, path: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') || name.as_bytes().contains(&b'=') {
        return None;
    }
    let mut folders = path.as_bytes().split(|&byte| byte == b':');
    folders.find_map(|folder| {
        let candidate = Path::new(OsStr::from_bytes(folder)).join(name);
        (candidate.is_file() && access(&candidate, Access::EXEC_OK).is_ok()).then_some(candidate)
    })
}

/// Returns whether the dynamic loader would load the preloaded library and call it before the program begins. A program that
/// is not stopped would run without a request.
fn can_be_stopped(executable: &Path) -> Result<(), String> {
    let metadata = std::fs::metadata(executable).map_err(|error| error.to_string())?;
    if metadata.mode() & 0o6000 != 0
        || getxattr(executable, "security.capability", &mut [0; 64]).is_ok()
    {
        return Err("it has its own privileges (setuid, setgid or capabilities)".into());
    }
    access(executable, Access::EXEC_OK).map_err(|error| error.to_string())?;
    if metadata.size() > LARGEST {
        return Err("it is too large to be looked at".into());
    }
    let bytes = std::fs::read(executable).map_err(|error| error.to_string())?;
    let loader = loader(&bytes).ok_or("it is not dynamically linked")?;
    let of_this_library = memchr::memmem::find(loader, b"/ld-linux").is_some();
    if !of_this_library || memchr::memmem::find(&bytes, b"\0__libc_start_main\0").is_none() {
        return Err("it does not begin as programs of the GNU C library do".into());
    }
    Ok(())
}

/// Returns the dynamic loader that a 64-bit executable of this machine's byte order names (ELF, PT_INTERP).
fn loader(bytes: &[u8]) -> Option<&[u8]> {
    const INTERP: u32 = 3;
    let part = |at: usize, length| bytes.get(at..at.checked_add(length)?);
    let word = |at| Some(u16::from_ne_bytes(part(at, 2)?.try_into().ok()?));
    let long = |at| Some(u32::from_ne_bytes(part(at, 4)?.try_into().ok()?));
    let size = |at| usize::try_from(u64::from_ne_bytes(part(at, 8)?.try_into().ok()?)).ok();
    if bytes.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let (start, step, count) = (size(32)?, usize::from(word(54)?), usize::from(word(56)?));
    (0..count).find_map(|index| {
        let header = start.checked_add(index.checked_mul(step)?)?;
        if long(header)? != INTERP {
            return None;
        }
        let from = size(header.checked_add(8)?)?;
        part(from, size(header.checked_add(32)?)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_options_of_the_start_keep_the_language() {
        let of =
            |command, option: Option<&str>| language(Path::new(command), option.map(OsStr::new));
        assert_eq!(of("/usr/bin/python3", None), Language::Python);
        assert_eq!(of("/usr/bin/python3.11", Some("-u")), Language::Python);
        assert_eq!(of("/usr/bin/python3", Some("-u -E")), Language::Native);
        assert_eq!(of("/usr/bin/python3", Some("-c")), Language::Native);
        assert_eq!(of("/usr/bin/python3-config", None), Language::Native);
        assert_eq!(of("/usr/bin/perl", Some("-wT")), Language::Perl);
        assert_eq!(of("/usr/bin/perl", Some("-n")), Language::Native);
        assert_eq!(of("/bin/sh", None), Language::Native);
    }

    #[test]
    fn a_file_that_is_not_executable_has_no_loader() {
        let own = std::fs::read("/proc/self/exe").expect("it runs");
        assert!(loader(&own).is_some_and(|path| path.starts_with(b"/lib")));
        for length in 0..own.len().min(600) {
            loader(&own[..length]);
        }
        let mut wild = own[..64].to_vec();
        wild[32..40].fill(0xff);
        assert_eq!(loader(&wild), None);
    }
}
