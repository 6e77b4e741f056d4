//! The files of a scenario. Their content depends on the seed alone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

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
        Content::CgiProgram | Content::CgiplusProgram | Content::FastcgiProgram => {
            let (options, libraries): (&[&str], &[(&str, &str)]) = match fixture.content {
                Content::FastcgiProgram => (&["-DFASTCGI", "-lfcgi"], &[]),
                Content::CgiplusProgram => (&["-DCGIPLUS"], &CGIPLUS),
                _ => (&[], &[]),
            };
            // Not an error: rows with scripts report that the program is missing.
            if let Err(error) = compile(file, options, libraries) {
                eprintln!("  {error}");
            }
            return Ok(());
        }
    }
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    fs::File::options().write(true).open(file)?.set_modified(hour_ago)
}

/// The file with the lines of a record file.
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

const PROGRAM: &str = r#"#ifdef FASTCGI
#include <fcgi_stdio.h>
#include <fcgiapp.h>
#include <unistd.h>
#else
#include <stdio.h>
#endif
#include <stdlib.h>
#include <string.h>
#ifdef CGIPLUS
#include "cgiplus.h"
#define getenv cgiplus_variable
#endif
/* Reads the body to its end, and responds with as many bytes as the query states. */
static void respond(void) {
    const char *query = getenv("QUERY_STRING"), *length = getenv("CONTENT_LENGTH");
    long size = query ? atol(query) : 0, rest = length ? atol(length) : 0;
    char line[1024];
    while (rest > 0) {
        size_t got = fread(line, 1, rest < 1024 ? rest : 1024, stdin);
        if (got == 0) exit(1);
        rest -= got;
    }
    printf("Content-Type: text/plain\r\n\r\n");
    memset(line, 'x', sizeof line);
    for (; size > 0; size -= 1024) fwrite(line, 1, size < 1024 ? size : 1024, stdout);
}
int main(int count, char **words) {
#ifdef FASTCGI
    /* Listens on its standard input, or on the socket that is named. */
    if (count > 1 && dup2(FCGX_OpenSocket(words[1], 1024), 0) != 0) return 1;
    while (FCGI_Accept() >= 0) respond();
#elif defined CGIPLUS
    (void)count, (void)words;
    while (cgiplus_next()) respond();
#else
    (void)count, (void)words;
    respond();
#endif
    return 0;
}
"#;

/// The CGIplus library.
const CGIPLUS: [(&str, &str); 2] = [
    ("cgiplus.h", include_str!("../../../scripting/cgiplus/cgiplus.h")),
    ("cgiplus.c", include_str!("../../../scripting/cgiplus/cgiplus.c")),
];

/// Compiles the program with `libraries`, which are names and texts of source files.
fn compile(file: &Path, options: &[&str], libraries: &[(&str, &str)]) -> io::Result<()> {
    let folder = tempfile::tempdir()?;
    let mut sources = vec![folder.path().join("program.c")];
    fs::write(&sources[0], PROGRAM)?;
    for (name, text) in libraries {
        let library = folder.path().join(name);
        fs::write(&library, text)?;
        sources.extend(name.ends_with(".c").then_some(library));
    }
    // The linker requires system libraries after the files that use them.
    let mut cc = Command::new("cc");
    let done = cc.arg("-O2").arg("-o").arg(file).args(&sources).args(options).output();
    let done = done.map_err(|error| io::Error::other(format!("cc: {error}")))?;
    if done.status.success() {
        Ok(())
    } else {
        let errors = String::from_utf8_lossy(&done.stderr);
        let first = errors.lines().find(|line| line.contains("error")).unwrap_or_default();
        Err(io::Error::other(format!("cc: {}", first.trim())))
    }
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
