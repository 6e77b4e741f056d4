//! Verification of the files, directories and users that a configuration names.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use dunlin_config::{Chroot, Config, NamedPath, Problem, Server, WEAK_HASHES};

use super::Findings;
use crate::checks::{UserFile, read_keys};
use crate::password::Users;
use dunlin_process::sandbox::check_identity;

/// Checks that the directories of the configuration exist and can be read, that certificates and files of users can be
/// used, and that the server's user and group exist. In a check (`is_check`), a directory that a service manager creates
/// for the server may be missing.
pub(super) fn check_files(config: &Config, is_check: bool, findings: &mut Findings) {
    for directory in config.directories() {
        match directory_problem(directory) {
            None => {}
            Some(what) if is_check && is_made_by_manager(directory) => {
                let advice = "; systemd makes it where the unit has RuntimeDirectory=, LogsDirectory= or \
                              StateDirectory=, else make it before the start";
                findings.warnings.push(directory.problem.with_message(format!("{what}{advice}")));
            }
            Some(what) => findings.errors.push(directory.problem.with_message(what)),
        }
    }
    let problems = &mut findings.errors;
    for tls in config.sites.iter().filter_map(|site| site.tls.as_ref()) {
        if let Err(what) = dunlin_tls::examine(tls) {
            problems.push(tls.problem.with_message(what));
        }
    }
    config.users_files().iter().for_each(|file| check_users_file(file, problems));
    for NamedPath { key, path, problem } in config.key_files() {
        if let Err(what) = read_keys(path) {
            problems.push(problem.with_message(format!("{key}: {}: {what}", path.display())));
        }
    }
    for NamedPath { key, path, problem } in config.authorities() {
        if let Err(what) = dunlin_tls::client_config(Some(path)) {
            problems.push(problem.with_message(format!("{key}: {what}")));
        }
    }
    for (certificate, key) in config.client_certificates() {
        if let Err(what) = dunlin_tls::check_pair(&certificate.path, &key) {
            let what = format!("proxy: client_certificate: {what}");
            problems.push(certificate.problem.with_message(what));
        }
    }
    let Server { user, group, identity_places: [user_place, group_place], .. } = &config.server;
    // In a chroot, names of users are not available, and the identity was determined before.
    if Chroot::entered().is_none() {
        let names = [(user.as_deref(), None, user_place), (None, group.as_deref(), group_place)];
        for (user, group, place) in names {
            if let Err(what) = check_identity(user, group) {
                problems.push(config.problem_at(place, what));
            }
        }
    }
}

/// Reports errors in a file of users.
fn check_users_file(file: &NamedPath, problems: &mut Vec<Problem>) {
    let path = file.path.display();
    let report = |what: String| file.problem.with_message(format!("auth: {path}{what}"));
    let is_weak = file.key == WEAK_HASHES;
    match UserFile::new(is_weak).refresh(&file.path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            problems.push(report(format!(": {error}; create it with `dunlin passwd {path} NAME`")));
        }
        Err(error) => problems.push(report(format!(": {error}"))),
        // They are warnings, see `weak_passwords`.
        Ok(_) if is_weak => {}
        Ok(lines) => {
            problems.extend(lines.iter().map(|(line, what)| report(format!(":{line}: {what}"))));
        }
    }
}

/// Reports files of users with passwords that are hashed without protection, and lines that cannot be read.
pub(super) fn weak_passwords(config: &Config, warnings: &mut Vec<Problem>) {
    for file in config.users_files().iter().filter(|file| file.key == WEAK_HASHES) {
        let Ok(text) = std::fs::read_to_string(&file.path) else { continue };
        let path = file.path.display();
        let report = |what: String| file.problem.with_message(format!("auth: {path}{what}"));
        let (_, unread) = Users::parse_weak(&text);
        warnings.extend(unread.iter().map(|(line, what)| report(format!(":{line}: {what}"))));
        let (_, weak) = Users::parse(&text);
        if weak.len() > unread.len() {
            let what =
                "some passwords are hashed without protection; set them again with `dunlin passwd`";
            warnings.push(report(format!(": {what}")));
        }
    }
}

/// Returns the error of a file that has to be a program.
fn program_problem(path: &Path) -> Option<String> {
    let what = match std::fs::metadata(path) {
        Err(error) => error.to_string(),
        Ok(metadata) if metadata.is_dir() => "it is a directory; `directory` names one".into(),
        Ok(metadata) if metadata.permissions().mode() & 0o111 == 0 => {
            "it is not executable (chmod +x)".into()
        }
        Ok(_) => return None,
    };
    Some(format!("script: file {}: {what}", path.display()))
}

/// Returns the error of a directory or file that has to exist.
fn directory_problem(directory: &NamedPath) -> Option<String> {
    let NamedPath { key, path, .. } = directory;
    let error = match *key {
        // A file is allowed, too.
        "landlock" => std::fs::metadata(path).err()?,
        "file" => return program_problem(path),
        _ => std::fs::read_dir(path).err()?,
    };
    let missing = error.kind() == ErrorKind::NotFound;
    let advice = match error.kind() {
        ErrorKind::NotADirectory if *key == "directory" => "; `file` names a single program",
        ErrorKind::NotFound if matches!(*key, "root" | "directory") => {
            let path = path.display();
            return Some(format!(
                "{key}: there is no directory {path}; create it, or change `{key}`"
            ));
        }
        ErrorKind::NotADirectory if *key == "root" => {
            return Some(format!("root: {} is a file, not a directory", path.display()));
        }
        _ if *key == "root" => "",
        ErrorKind::NotFound if FILES.contains(key) || SOCKETS.contains(key) => {
            let advice = match is_made_by_manager(directory) {
                true => "",
                false => "; create it, or name a file elsewhere",
            };
            return Some(format!("{key}: there is no directory {}{advice}", path.display()));
        }
        ErrorKind::NotFound if is_made_by_manager(directory) => "",
        ErrorKind::NotFound => "; check that the directory exists",
        // Permission to write a log does not require permission to list its directory.
        ErrorKind::PermissionDenied => return None,
        _ => "",
    };
    // Only the server's user may be able to list the directory of a socket.
    if SOCKETS.contains(key) && !missing {
        return None;
    }
    Some(format!("{key} {}: {error}{advice}", path.display()))
}

/// Returns `true` for a missing directory that service managers usually create when they start the server.
fn is_made_by_manager(directory: &NamedPath) -> bool {
    let NamedPath { key, path, .. } = directory;
    let made = ["/run", "/var/run", "/var/log", "/var/lib", "/var/cache"];
    (FILES.contains(key) || SOCKETS.contains(key))
        && made.iter().any(|folder| path.starts_with(folder))
        && !path.exists()
}

/// The keys that name files which the server makes.
const FILES: [&str; 3] = ["access_log", "error_log", "pid_file"];
/// The keys that name Unix sockets.
const SOCKETS: [&str; 2] = ["admin", "address"];
