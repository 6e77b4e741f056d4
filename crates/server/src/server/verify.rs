//! Verification of a configuration without opening sockets or changing anything: at start, at reload and in
//! `dunlin check`.

mod files;
mod http3;
mod names;
mod programs;
mod redirects;

use std::path::{Path, PathBuf};

use dunlin_config::{Acme, Chroot, Config, Problem, Site};
use nix::unistd::{Group, geteuid};

use self::files::{check_files, weak_passwords};
pub use self::http3::http3_notes;
pub use self::names::unresolved_names;
use self::programs::check_programs;
use self::redirects::check_redirects;
use crate::component;
use dunlin_process::access::{Use, failures};
use dunlin_process::sandbox::{self, Confined, Identity};

/// The result of a verification.
#[derive(Debug, Default)]
pub struct Findings {
    /// Problems that prevent a start.
    pub errors: Vec<Problem>,
    /// Problems that cause failures later.
    pub warnings: Vec<Problem>,
}

/// Verifies the files, programs and users that `config` names. `confined` is the state of a process that is about to
/// serve; `None` for one that only checks.
pub fn verify(config: &Config, confined: Option<&Confined>) -> Findings {
    let looked_up;
    let identity = match confined {
        Some(confined) => confined.identity.as_ref(),
        // In a chroot user names are not available, and the process has switched users already.
        None if Chroot::entered().is_some() => None,
        None => {
            let server = &config.server;
            let found = sandbox::identity(server.user.as_deref(), server.group.as_deref());
            // A missing user is reported with the files.
            looked_up = found.ok().flatten();
            looked_up.as_ref()
        }
    };
    let mut findings = Findings::default();
    findings.errors.extend(crate::fleet::conflict(config));
    check_files(config, confined.is_none(), &mut findings);
    check_object_roots(config, &mut findings.errors);
    if let Some(identity) = identity.filter(|identity| !identity.is_present()) {
        check_access(config, identity, &mut findings);
    }
    config.sites.iter().for_each(|site| check_certificates(site, &mut findings.warnings));
    findings.warnings.extend(config.warnings());
    check_programs(config, &mut findings.warnings);
    weak_passwords(config, &mut findings.warnings);
    check_redirects(config, &mut findings.warnings);
    check_components(config, &mut findings);
    let root = config.server.user.as_deref().is_none_or(|user| user == "root");
    if geteuid().is_root() && root {
        findings.warnings.extend(config.scripts_as_root());
    }
    findings.errors = Problem::sorted(findings.errors);
    findings.warnings = Problem::sorted(findings.warnings);
    findings
}

/// Why a build without the feature `fleet` rejects a root in object storage.
pub(super) const NO_STORES: &str = "object stores: this build lacks the feature `fleet`; build with `--features fleet`, or install a package";

/// Reports roots and certificates in object storage, if this build has no clients of object stores.
fn check_object_roots(config: &Config, errors: &mut Vec<Problem>) {
    if cfg!(feature = "fleet") {
        return;
    }
    for (root, problem) in config.object_roots() {
        errors.push(problem.with_message(format!("root {root}: {NO_STORES}")));
    }
    if let Some(root) = &config.server.acme_storage {
        let file = config.path().unwrap_or(Path::new(""));
        errors.push(Problem::of_file(file, &format!("acme_storage {root}: {NO_STORES}")));
    }
}

/// A file that the server opens again after it has switched users.
struct ReopenedFile {
    path: PathBuf,
    purpose: Purpose,
    /// The place in the configuration, with an empty message.
    problem: Problem,
}

/// The purpose of such a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Users,
    Keys,
    Certificate,
    Root,
    Scripts,
    Log,
    State,
    Responses,
    Qlog,
}

impl Purpose {
    fn r#use(self) -> Use {
        match self {
            Self::Users | Self::Keys | Self::Certificate => Use::Read,
            Self::Root | Self::Scripts => Use::Execute,
            Self::Log | Self::State | Self::Responses | Self::Qlog => Use::Write,
        }
    }

    /// Describes the failure and its remedy.
    fn explain(self, path: &Path, identity: &Identity, error: &str) -> String {
        let (name, gid) = (&identity.name, identity.gid);
        let path = path.display();
        match self {
            Self::Users | Self::Keys => {
                // A number where /etc/group is not available.
                let group = Group::from_gid(gid).ok().flatten();
                let group = group.map_or_else(|| gid.to_string(), |group| group.name);
                format!(
                    "auth: {path}: {name} cannot read it ({error}), and the server switches to that user: \
                     `chgrp {group} {path}` and `chmod 640 {path}`, and let that user enter every directory above it"
                )
            }
            Self::Certificate => format!(
                "tls: {path}: {name} cannot read it ({error}): a renewed certificate is not loaded until a restart, \
                 and `dunlin upgrade` fails; let the group of that user read it"
            ),
            Self::Root => {
                format!("root {path}: {name} cannot enter it ({error}): requests get 403 or 500")
            }
            Self::Scripts => format!("script: {path}: {name} cannot enter it ({error})"),
            Self::Log => format!(
                "{path}: {name} cannot create files there ({error}): logs cannot be reopened after a rotation; \
                 let the user own the directory"
            ),
            Self::State => format!(
                "state {path}: {name} cannot write there ({error}): certificates cannot be obtained or renewed; \
                 let the user own the directory"
            ),
            Self::Qlog => format!(
                "http3: qlog {path}: {name} cannot write there ({error}): no connections are recorded; let the user own \
                 the directory"
            ),
            Self::Responses => format!(
                "cache {path}: {name} cannot write there ({error}): content is cached in memory only; let the user own \
                 the directory"
            ),
        }
    }
}

/// Returns the files that the server opens again after it has switched users.
fn reopened_files(config: &Config) -> Vec<ReopenedFile> {
    let whole = || Problem::of_file(config.path().unwrap_or(Path::new("")), "");
    let users = config.users_files().iter().map(|file| (file, Purpose::Users));
    let keys = config.key_files().iter().map(|file| (file, Purpose::Keys));
    let mut files: Vec<ReopenedFile> = users
        .chain(keys)
        .map(|(file, purpose)| ReopenedFile {
            path: file.path.clone(),
            purpose,
            problem: file.problem.clone(),
        })
        .collect();
    for directory in config.directories() {
        let purpose = match directory.key {
            "root" | "sendfile_root" => Purpose::Root,
            "directory" => Purpose::Scripts,
            "access_log" | "error_log" => Purpose::Log,
            _ => continue,
        };
        let problem = directory.problem.clone();
        files.push(ReopenedFile { path: directory.path.clone(), purpose, problem });
    }
    for tls in config.sites.iter().filter_map(|site| site.tls.as_ref()) {
        let external = tls.acme.iter().flat_map(Acme::files);
        for path in tls.files().chain(external) {
            let (path, problem) = (path.clone(), tls.problem.clone());
            files.push(ReopenedFile { path, purpose: Purpose::Certificate, problem });
        }
    }
    if let Some(state) = config.state_directory() {
        let path = state.to_owned();
        files.push(ReopenedFile { path, purpose: Purpose::State, problem: whole() });
    }
    if let Some(directory) = config.cache_directory() {
        let path = directory.to_owned();
        files.push(ReopenedFile { path, purpose: Purpose::Responses, problem: whole() });
    }
    if let Some(directory) = config.qlog_directory() {
        let path = directory.to_owned();
        files.push(ReopenedFile { path, purpose: Purpose::Qlog, problem: whole() });
    }
    // Only regular files are rotated.
    let devices = [Path::new("/dev"), Path::new("/proc/self/fd")];
    files.retain(|file| file.purpose != Purpose::Log || !devices.contains(&&*file.path));
    files
}

/// Reports files that the user to which the server switches cannot use. Files of users are read at every login, so they
/// prevent a start.
fn check_access(config: &Config, identity: &Identity, findings: &mut Findings) {
    // Missing files are reported elsewhere, or created at start.
    let files: Vec<ReopenedFile> =
        reopened_files(config).into_iter().filter(|file| file.path.exists()).collect();
    // In a chroot, the path of the directory does not resolve.
    let root = config.server.chroot.as_deref().filter(|_| Chroot::entered().is_none());
    let uses: Vec<_> = files.iter().map(|file| (file.path.clone(), file.purpose.r#use())).collect();
    for (file, failure) in files.iter().zip(failures(identity, &uses, root)) {
        let Some(error) = failure else { continue };
        let error = std::io::Error::from(error).to_string();
        let error = error.split(" (os error").next().unwrap_or_default();
        let what = file.purpose.explain(&file.path, identity, error);
        let problem = file.problem.with_message(what);
        if matches!(file.purpose, Purpose::Users | Purpose::Keys) {
            findings.errors.push(problem);
        } else {
            findings.warnings.push(problem);
        }
    }
}

/// Reports components that this build cannot run, and files that are none.
fn check_components(config: &Config, findings: &mut Findings) {
    for table in config.script_tables().filter(|table| table.kind.is_component()) {
        if !component::IS_PRESENT {
            let what = format!("script: kind \"component\": {}", component::ABSENT);
            findings.errors.push(config.problem_at(&table.kind.span, what));
        } else if let Some(file) = &table.file
            && let Err(why) = component::check_component(file)
        {
            let what = format!("script: file {}: {why}", file.display());
            findings.errors.push(config.problem_at(&file.span, what));
        }
    }
}

/// Reports certificates that browsers will reject for a name of the site.
fn check_certificates(site: &Site, warnings: &mut Vec<Problem>) {
    let Some(tls) = site.tls.as_ref().filter(|tls| tls.acme.is_none()) else { return };
    // No certificate is for a name in every domain.
    let names = site.hosts().iter().filter(|host| !host.ends_with(".*"));
    let names: Vec<String> = names.cloned().collect();
    for (file, _) in &tls.certificates {
        // An unreadable certificate is reported as an error elsewhere.
        for what in dunlin_tls::shortcomings(file, &names) {
            let what = format!("tls: certificate {}: {what}", file.display());
            warnings.push(tls.problem.with_message(what));
        }
    }
}

/// Describes the certificates that the configuration names, one line for each.
pub fn certificates(config: &Config) -> Vec<String> {
    let sites = config.sites.iter().filter_map(|site| site.tls.as_ref());
    sites.flat_map(|tls| dunlin_tls::examine(tls).unwrap_or_else(|error| vec![error])).collect()
}

#[cfg(test)]
mod tests {
    use dunlin_config::Overrides;

    use super::*;

    #[test]
    fn a_missing_directory_is_found_when_files_are_verified() {
        let text = "[[listen]]\naddress = '127.0.0.1:8080'\n[[site]]\nroot = 'none'\n";
        let config =
            Config::parse(text, Path::new("/etc/dunlin.toml"), &Overrides::default()).unwrap();
        let errors = verify(&config, None).errors;
        let messages: Vec<_> = errors.iter().map(Problem::to_string).collect();
        assert!(
            messages.iter().any(|message| message
                .starts_with("/etc/dunlin.toml:4:8: root: there is no directory /etc/none")),
            "{messages:?}"
        );
    }
}
