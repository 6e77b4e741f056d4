//! Finds programs that cannot be forked, for `dunlin check`.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::plan::plan;
use dunlin_config::Config;

/// Directory entries that are examined.
const MAX: usize = 10_000;

/// Returns the programs beneath the directories of warm scripts that will run as plain CGI, and why. Only the first ten
/// thousand files are examined, and symlinks are not followed.
pub fn cold_programs(config: &Config) -> Vec<(PathBuf, String)> {
    let mut cold = Vec::new();
    let sites = config.sites.iter();
    for (directory, path) in sites.flat_map(|site| site.warm_scripts()) {
        let path = path.map(OsString::from).or_else(|| std::env::var_os("PATH"));
        let path = path.unwrap_or_default();
        for program in programs(directory.to_owned()) {
            if let Err(reason) = plan(&program, &path) {
                cold.push((program, reason));
            }
        }
    }
    cold.sort();
    cold.dedup();
    cold
}

/// Returns the executable files beneath a directory, or the one program. Unreadable directories are skipped.
fn programs(directory: PathBuf) -> Vec<PathBuf> {
    if directory.is_file() {
        return vec![directory];
    }
    let mut folders = vec![directory];
    let mut programs = Vec::new();
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            seen += 1;
            if seen > MAX {
                return programs;
            }
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => folders.push(entry.path()),
                Ok(metadata)
                    if metadata.is_file() && metadata.permissions().mode() & 0o111 != 0 =>
                {
                    programs.push(entry.path());
                }
                _ => {}
            }
        }
    }
    programs
}
