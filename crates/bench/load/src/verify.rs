//! Expected bodies: length and 64-bit hash (XXH3).

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// An expected body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Expected {
    /// Length in bytes.
    pub length: u64,
    /// Hash: XXH3 with 64 bits.
    pub hash: u64,
}

/// Incremental hash of a body.
#[derive(Default)]
pub struct Digest(Xxh3);

impl Digest {
    /// Returns the hash of a complete body.
    #[must_use]
    #[inline]
    pub fn of(body: &[u8]) -> u64 {
        xxh3_64(body)
    }

    /// Adds a part.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// Returns the hash of all parts.
    #[must_use]
    pub fn finish(&self) -> u64 {
        self.0.digest()
    }
}

/// The expected body of each URL, by index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference(Vec<Expected>);

impl Reference {
    /// Reads the expected bodies from the files in `directory` with the paths of the URLs. A path that ends with a slash
    /// refers to its `index.html`.
    ///
    /// # Errors
    /// The first file that cannot be read, with the error.
    pub fn of_directory<'a>(
        directory: &Path,
        paths: impl Iterator<Item = &'a str>,
    ) -> Result<Self, (PathBuf, io::Error)> {
        let mut known = std::collections::HashMap::new();
        let mut expected = Vec::new();
        for path in paths {
            let file = directory.join(relative(path));
            let one = match known.get(&file) {
                Some(one) => *one,
                None => {
                    let one = of_file(&file).map_err(|error| (file.clone(), error))?;
                    known.insert(file, one);
                    one
                }
            };
            expected.push(one);
        }
        Ok(Self(expected))
    }

    /// Returns the expected body of the URL with that index.
    #[must_use]
    #[inline]
    pub fn expected(&self, url: usize) -> Option<Expected> {
        self.0.get(url).copied()
    }
}

fn relative(path: &str) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let decoded: Vec<u8> = percent_encoding::percent_decode_str(path).collect();
    let mut file = PathBuf::new();
    // Neither a second slash nor dots may lead out of the directory.
    let parts = decoded.split(|&byte| byte == b'/');
    for part in parts.filter(|part| !matches!(*part, b"" | b"." | b"..")) {
        file.push(std::ffi::OsStr::from_bytes(part));
    }
    if decoded.is_empty() || decoded.ends_with(b"/") {
        file.push("index.html");
    }
    file
}

fn of_file(path: &Path) -> io::Result<Expected> {
    let mut file = File::open(path)?;
    let (mut digest, mut length) = (Digest::default(), 0);
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(Expected { length, hash: digest.finish() }),
            count => {
                digest.update(&buffer[..count]);
                length += count as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_decoded_paths_and_hashed_in_any_parts() {
        let directory = tempfile::tempdir().unwrap();
        let body: Vec<u8> = (0..700_000_u32).map(|n| (n * 7) as u8).collect();
        std::fs::write(directory.path().join("a b.bin"), &body).unwrap();
        std::fs::write(directory.path().join("index.html"), b"hello").unwrap();
        let paths = ["/a%20b.bin", "/"].into_iter();
        let reference = Reference::of_directory(directory.path(), paths).unwrap();
        assert_eq!(
            reference.expected(0),
            Some(Expected { length: 700_000, hash: Digest::of(&body) })
        );
        assert_eq!(reference.expected(1), Some(Expected { length: 5, hash: Digest::of(b"hello") }));
        assert_eq!(relative("/%2Fetc//../passwd"), Path::new("etc/passwd"));
        let missing = Reference::of_directory(directory.path(), ["/none"].into_iter());
        assert!(missing.is_err_and(|(file, _)| file.ends_with("none")));
    }
}
