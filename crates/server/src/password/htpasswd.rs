//! Password files in the format of Apache's htpasswd: one line `USER:HASH` per user. Empty lines and lines that
//! start with `#` are ignored.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::Hash;

/// The users of a password file.
#[derive(Debug, Default)]
pub struct Users {
    hashes: HashMap<String, Hash>,
    /// Hash that is verified for unknown users, so that the response time does not reveal which users exist.
    other: Option<Hash>,
}

impl Users {
    /// Parses the text of a file. Also returns the number, from 1, and the problem of each invalid line.
    pub fn parse(text: &str) -> (Self, Vec<(usize, String)>) {
        Self::parse_by(text, Hash::parse)
    }

    /// Parses the text of a file with passwords that are hashed without protection, too ([`Hash::parse_weak`]).
    pub fn parse_weak(text: &str) -> (Self, Vec<(usize, String)>) {
        Self::parse_by(text, Hash::parse_weak)
    }

    fn parse_by(
        text: &str,
        hash: impl Fn(&str) -> Result<Hash, String>,
    ) -> (Self, Vec<(usize, String)>) {
        let (mut users, mut problems) = (Self::default(), Vec::new());
        for (number, line) in text.lines().enumerate() {
            let line = line.trim_end();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let Some((name, rest)) = line.split_once(':').filter(|(name, _)| !name.is_empty())
            else {
                problems.push((number + 1, "the line is not of the form USER:HASH".into()));
                continue;
            };
            // Some programs append a comment.
            match hash(rest.split(':').next().unwrap_or_default()) {
                Ok(hash) => {
                    users.other.get_or_insert_with(|| hash.clone());
                    users.hashes.insert(name.into(), hash);
                }
                Err(what) => problems.push((number + 1, format!("user {name:?}: {what}"))),
            }
        }
        (users, problems)
    }

    /// Returns the number of users.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Returns `true` if there are no users.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Returns `true` if the user exists and has that password. Takes as long for an unknown user.
    pub fn verify(&self, name: &str, password: &[u8]) -> bool {
        match (self.hashes.get(name), &self.other) {
            (Some(hash), _) => hash.verify(password),
            (None, Some(other)) => {
                other.verify(password);
                false
            }
            (None, None) => false,
        }
    }
}

/// Sets the password of a user in the file at `path`. Creates the file with mode 0640 if it is missing, and
/// replaces it atomically otherwise.
///
/// # Errors
/// The file cannot be read or written.
pub fn set(path: &Path, name: &str, hash: &Hash) -> io::Result<()> {
    let line = format!("{name}:{}", hash.as_str());
    let mut found = false;
    let mut lines = read(path)?;
    for other in &mut lines {
        if is_of(other, name) {
            found = true;
            other.clone_from(&line);
        }
    }
    if !found {
        lines.push(line);
    }
    write(path, &lines)
}

/// Removes a user from the file at `path`. Returns `false` if the file has no such user.
///
/// # Errors
/// The file cannot be read or written.
pub fn remove(path: &Path, name: &str) -> io::Result<bool> {
    let mut lines = read(path)?;
    let before = lines.len();
    lines.retain(|line| !is_of(line, name));
    if lines.len() == before {
        return Ok(false);
    }
    write(path, &lines)?;
    Ok(true)
}

fn is_of(line: &str, name: &str) -> bool {
    line.strip_prefix(name).is_some_and(|rest| rest.starts_with(':'))
}

fn read(path: &Path) -> io::Result<Vec<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Replaces the file atomically and keeps its owner.
fn write(path: &Path, lines: &[String]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut file = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
    for line in lines {
        writeln!(file, "{line}")?;
    }
    let mode = match fs::metadata(path) {
        Ok(before) => {
            let (owner, group) = (Some(before.uid()), Some(before.gid()));
            std::os::unix::fs::fchown(&file, owner, group)?;
            before.permissions().mode() & 0o777
        }
        Err(_) => 0o640,
    };
    file.as_file().set_permissions(fs::Permissions::from_mode(mode))?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::password::Algorithm;

    #[test]
    fn users_are_set_changed_and_removed_and_other_lines_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        fs::write(&path, "# staff\nold:secret\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o604)).unwrap();
        let hash = |password: &str| Hash::of(password.as_bytes(), Algorithm::Sha512).unwrap();
        set(&path, "ann", &hash("1")).unwrap();
        set(&path, "bob", &hash("2")).unwrap();
        set(&path, "ann", &hash("3")).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# staff\nold:secret\nann:$6$"));
        let (users, problems) = Users::parse(&text);
        assert_eq!((users.len(), problems.len(), problems[0].0), (2, 1, 2));
        assert!(users.verify("ann", b"3") && users.verify("bob", b"2"));
        assert!(!users.verify("ann", b"1") && !users.verify("eve", b"1"));
        assert!(remove(&path, "ann").unwrap() && !remove(&path, "an").unwrap());
        assert!(!Users::parse(&fs::read_to_string(&path).unwrap()).0.verify("ann", b"3"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o604);
    }
}
