//! Verification of a configuration without opening sockets or changing anything: at start, at reload and in
//! `dunlin check`.

use std::path::{Path, PathBuf};

use nix::unistd::{Group, geteuid};

use super::access::{Use, failures};
use super::sandbox::{self, Confined, Identity};
use crate::config::{Config, Jail, Problem};

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
        None if Jail::entered().is_some() => None,
        None => {
            let server = &config.server;
            let found = sandbox::identity(server.user.as_deref(), server.group.as_deref());
            // A missing user is reported with the files.
            looked_up = found.ok().flatten();
            looked_up.as_ref()
        }
    };
    let mut findings = Findings::default();
    config.verify_files(confined.is_none(), &mut findings);
    if let Some(identity) = identity.filter(|identity| !identity.is_present()) {
        check_access(config, identity, &mut findings);
    }
    config.warnings(&mut |problem| findings.warnings.push(problem));
    let root = config.server.user.as_deref().is_none_or(|user| user == "root");
    if geteuid().is_root() && root {
        findings.warnings.extend(config.scripts_as_root());
    }
    findings.errors = Problem::sorted(findings.errors);
    findings.warnings = Problem::sorted(findings.warnings);
    findings
}

/// A file that the server opens again after it has switched users.
pub(crate) struct ReopenedFile {
    pub(crate) path: PathBuf,
    pub(crate) purpose: Purpose,
    /// Its place in the configuration, with an empty message.
    pub(crate) problem: Problem,
}

/// The purpose of such a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Users,
    Certificate,
    Root,
    Scripts,
    Log,
    State,
}

impl Purpose {
    fn r#use(self) -> Use {
        match self {
            Self::Users | Self::Certificate => Use::Read,
            Self::Root | Self::Scripts => Use::Execute,
            Self::Log | Self::State => Use::Write,
        }
    }

    /// Describes the failure and its remedy.
    fn explain(self, path: &Path, identity: &Identity, error: &str) -> String {
        let (name, gid) = (&identity.name, identity.gid);
        let path = path.display();
        match self {
            Self::Users => {
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
        }
    }
}

/// Reports files that the user to which the server switches cannot use. Files of users are read at every login, so they
/// prevent a start.
fn check_access(config: &Config, identity: &Identity, findings: &mut Findings) {
    // Missing files are reported elsewhere, or created at start.
    let files: Vec<ReopenedFile> =
        config.opened_again().into_iter().filter(|file| file.path.exists()).collect();
    // In a chroot, the path of the directory does not resolve.
    let root = config.server.chroot.as_deref().filter(|_| Jail::entered().is_none());
    let uses: Vec<_> = files.iter().map(|file| (file.path.clone(), file.purpose.r#use())).collect();
    for (file, failure) in files.iter().zip(failures(identity, &uses, root)) {
        let Some(error) = failure else { continue };
        let error = std::io::Error::from(error).to_string();
        let error = error.split(" (os error").next().unwrap_or_default();
        let what = file.purpose.explain(&file.path, identity, error);
        let problem = file.problem.saying(what);
        if file.purpose == Purpose::Users {
            findings.errors.push(problem);
        } else {
            findings.warnings.push(problem);
        }
    }
}
