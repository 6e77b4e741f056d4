//! What a start verifies of a configuration, without opening a socket or changing anything: `dunlin check` does the
//! same.

use std::path::{Path, PathBuf};

use nix::unistd::{Group, geteuid};

use super::access::{Use, failures};
use super::sandbox::{self, Confined, Identity};
use crate::config::{Config, Jail, Problem};

/// What was found.
#[derive(Debug, Default)]
pub struct Findings {
    /// What keeps the server from starting.
    pub errors: Vec<Problem>,
    /// What will fail or surprise later.
    pub warnings: Vec<Problem>,
}

/// Verifies the files, programs and users that `config` names. `confined` is what a process that is about to serve
/// has become; `None` for one that only checks.
pub fn verify(config: &Config, confined: Option<&Confined>) -> Findings {
    let looked_up;
    let identity = match confined {
        Some(confined) => confined.identity.as_ref(),
        // Inside of a chroot no names are known, and the process has its user already.
        None if Jail::entered().is_some() => None,
        None => {
            let server = &config.server;
            let found = sandbox::identity(server.user.as_deref(), server.group.as_deref());
            // That there is no such user is reported with the files.
            looked_up = found.ok().flatten();
            looked_up.as_ref()
        }
    };
    let mut findings = Findings::default();
    config.verify_files(confined.is_none(), &mut findings);
    if let Some(identity) = identity.filter(|identity| !identity.is_present()) {
        use_files(config, identity, &mut findings);
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

/// A file that the server opens again once it has become another user.
pub(crate) struct Again {
    pub(crate) path: PathBuf,
    pub(crate) purpose: Purpose,
    /// Where it is named, without words.
    pub(crate) problem: Problem,
}

/// What such a file is for.
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

    /// What fails, and what to do.
    fn explain(self, path: &Path, identity: &Identity, error: &str) -> String {
        let (name, gid) = (&identity.name, identity.gid);
        let path = path.display();
        match self {
            Self::Users => {
                // By number where the system's files are out of reach.
                let group = Group::from_gid(gid).ok().flatten();
                let group = group.map_or_else(|| gid.to_string(), |group| group.name);
                format!(
                    "auth: {path}: {name} cannot read it ({error}), and the server becomes that user: \
                     `chgrp {group} {path}` and `chmod 640 {path}`, and let that user enter every directory on the way"
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

/// Reports files that the user whom the server becomes cannot use: users' files are read with every login, so that
/// these keep the server from starting.
fn use_files(config: &Config, identity: &Identity, findings: &mut Findings) {
    // What is missing is reported with the other files, or made at the start.
    let files: Vec<Again> =
        config.opened_again().into_iter().filter(|file| file.path.exists()).collect();
    // Once inside of a chroot, this process finds no directory of that name.
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
