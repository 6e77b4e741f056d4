//! The files of a scenario. Their content depends on the seed alone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

mod programs;

use crate::scenario::{Content, Fixture};
use dunlin_load::rng::SplitMix64;

/// Creates the files beneath `root`. Their modification time is an hour ago, so that no server treats them as just changed.
///
/// # Errors
/// The first file that cannot be created.
pub(crate) fn make(root: &Path, fixtures: &[Fixture], seed: u64) -> Result<(), String> {
    for (index, fixture) in fixtures.iter().enumerate() {
        for number in 0..fixture.count {
            let file = root.join(fixture.path.replace("{n}", &number.to_string()));
            let mut rng = SplitMix64::stream(seed, (index as u64) << 32 | u64::from(number));
            one(&file, fixture, &mut rng)
                .map_err(|error| format!("{}: {error}", file.display()))?;
        }
    }
    Ok(())
}

fn one(file: &Path, fixture: &Fixture, rng: &mut SplitMix64) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let size = fixture.size as usize;
    match fixture.content {
        Content::Random => fs::write(file, random(size, rng))?,
        Content::Text => fs::write(file, lines(size, rng))?,
        Content::VariableRecords => {
            let text = lines(size, rng);
            fs::write(file, records(&text))?;
            // The expected response, for the comparison of bodies.
            fs::write(served_as(file), text)?;
        }
        content => {
            // Not an error: rows with scripts report that the program is missing.
            if let Err(error) = programs::compile(file, content) {
                eprintln!("  {error}");
            }
            return Ok(());
        }
    }
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    fs::File::options().write(true).open(file)?.set_modified(hour_ago)
}

/// Returns the file with the lines of a record file.
fn served_as(file: &Path) -> PathBuf {
    file.with_extension("txt")
}

fn random(size: usize, rng: &mut SplitMix64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

/// Lines of about a hundred characters, as in an access log.
fn lines(size: usize, rng: &mut SplitMix64) -> Vec<u8> {
    let mut text = String::with_capacity(size + 128);
    while text.len() < size {
        let (host, page, bytes) = (rng.below(254) + 1, rng.below(10_000), rng.below(100_000));
        text += &format!(
            "192.0.2.{host} - - [10/Oct/2000:13:55:36 +0000] \"GET /page/{page} HTTP/1.1\" 200 {bytes}\n"
        );
    }
    let mut bytes = text.into_bytes();
    bytes.truncate(size);
    if let Some(last) = bytes.last_mut() {
        *last = b'\n';
    }
    bytes
}

/// Converts lines to records: a length of two bytes, the line without its end, and padding to an even length.
fn records(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() + text.len() / 32);
    for line in text.strip_suffix(b"\n").unwrap_or(text).split(|&byte| byte == b'\n') {
        bytes.extend_from_slice(&(line.len() as u16).to_le_bytes());
        bytes.extend_from_slice(line);
        if line.len() % 2 == 1 {
            bytes.push(0);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_reproducible_and_records_contain_the_lines() {
        let fixture =
            |path: &str, content| Fixture { path: path.into(), size: 5000, count: 2, content };
        let made = || {
            let root = tempfile::tempdir().unwrap();
            let fixtures = [
                fixture("many/{n}.bin", Content::Random),
                fixture("log-{n}.var", Content::VariableRecords),
            ];
            make(root.path(), &fixtures, 1).unwrap();
            let read = |name: &str| fs::read(root.path().join(name)).unwrap();
            (read("many/0.bin"), read("many/1.bin"), read("log-0.var"), read("log-0.txt"))
        };
        let (first, second, records, lines) = made();
        assert_eq!((&first, &records), (&made().0, &made().2));
        assert_ne!(first, second);
        assert_eq!((first.len(), lines.len()), (5000, 5000));
        let length = usize::from(u16::from_le_bytes([records[0], records[1]]));
        assert_eq!(records[2..2 + length], *lines.split(|&byte| byte == b'\n').next().unwrap());
    }
}
