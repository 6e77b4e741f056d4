//! Settings that are fixed at the start of a process and that a later configuration cannot change.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::allowed_paths::AllowedPaths;
use super::config::Config;
use super::file::LogFormat;
use super::server::{Calls, ErrorLogTarget, ResourceLimits};

/// Settings that are fixed at the start of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartupSettings {
    /// Restrictions of the process.
    pub confinement: Confinement,
    /// The file with the process ID.
    pub pid_file: Option<PathBuf>,
    /// The text of the configuration that the process was started with, without its secrets.
    pub text: Box<str>,
    threads: usize,
    notify: bool,
    error_log_format: LogFormat,
    error_log_target: ErrorLogTarget,
}

/// Restrictions of a process. The new process of an upgrade inherits them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// The user that the process has switched to.
    pub user: Option<String>,
    /// The group that the process has switched to.
    pub group: Option<String>,
    /// The root directory, as it is named from outside.
    pub chroot: Option<PathBuf>,
    /// Resource limits.
    pub limits: ResourceLimits,
    /// Programs that the process starts gain no privileges.
    pub no_new_privs: bool,
    /// Allowed system calls.
    pub calls: Calls,
    /// Allowed files. Every list has to allow a file: each process of a series of upgrades adds one.
    pub landlock: Vec<AllowedPaths>,
    /// The server's program, which may be executed in addition.
    program: Option<PathBuf>,
}

impl StartupSettings {
    /// Returns the settings of a process that starts with `config`.
    pub fn of(config: &Config) -> Self {
        let server = &config.server;
        Self {
            confinement: Confinement::of(config),
            pid_file: server.pid_file.clone(),
            text: config.text_without_secrets().into(),
            threads: server.threads,
            notify: server.cache.notify,
            error_log_format: server.error_log.format,
            error_log_target: server.error_log.target.clone(),
        }
    }

    /// Returns the settings of a process whose running server has reported its confinement. `text` is the configuration
    /// that it was started with, as this process reads it.
    #[must_use]
    pub fn with_confinement(mut self, confinement: Confinement) -> Self {
        // In a chroot, files have other names: the configurations are compared instead.
        let same = self.confinement.landlock.len() == confinement.landlock.len();
        let landlock = std::mem::take(&mut self.confinement.landlock);
        self.confinement.landlock = if same { landlock } else { confinement.landlock };
        let Confinement { user, group, limits, no_new_privs, calls, .. } = confinement;
        Self {
            confinement: Confinement {
                user,
                group,
                limits,
                no_new_privs,
                calls,
                ..self.confinement
            },
            ..self
        }
    }
}

impl Confinement {
    fn of(config: &Config) -> Self {
        let server = &config.server;
        let landlock = config.places();
        let is_outside = server.chroot.is_none();
        Self {
            user: server.user.clone(),
            group: server.group.clone(),
            chroot: server.chroot.clone(),
            limits: server.limits,
            no_new_privs: server.no_new_privs,
            calls: server.calls,
            // In a chroot, the configuration names the program's file like others.
            program: landlock.as_ref().filter(|_| is_outside).and(std::env::current_exe().ok()),
            landlock: landlock.into_iter().collect(),
        }
    }

    /// Returns the confinement of a process that has inherited `before` from an upgrade's old process.
    #[must_use]
    pub fn after(self, before: Self) -> Self {
        let (own, old) = (self.limits, before.limits);
        let has_identity = self.user.is_some() || self.group.is_some();
        let mut landlock = before.landlock;
        landlock.extend(self.landlock);
        let mut layers: Vec<AllowedPaths> = Vec::new();
        for places in landlock {
            if !layers.contains(&places) {
                layers.push(places);
            }
        }
        Self {
            group: if has_identity { self.group } else { before.group },
            user: self.user.or(before.user),
            chroot: before.chroot.or(self.chroot),
            limits: ResourceLimits {
                open_files: own.open_files.or(old.open_files),
                core: own.core.or(old.core),
                processes: own.processes.or(old.processes),
                memory: own.memory.or(old.memory),
            },
            no_new_privs: self.no_new_privs || before.no_new_privs,
            calls: self.calls.max(before.calls),
            landlock: layers,
            program: self.program.or(before.program),
        }
    }

    /// Describes the restrictions, one line each.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let limits = &self.limits;
        let list = [
            ("open files", limits.open_files),
            ("core", limits.core),
            ("processes", limits.processes),
            ("memory", limits.memory),
        ];
        let list: Vec<_> =
            list.iter().filter_map(|(key, max)| Some(format!("{key} {}", (*max)?))).collect();
        if !list.is_empty() {
            lines.push(format!("limits: {}", list.join(", ")));
        }
        if let Some(directory) = &self.chroot {
            lines.push(format!("chroot {}", directory.display()));
        }
        match (&self.user, &self.group) {
            (Some(user), Some(group)) => lines.push(format!("user {user}, group {group}")),
            (Some(user), None) => lines.push(format!("user {user}")),
            (None, Some(group)) => lines.push(format!("group {group}")),
            (None, None) => {}
        }
        if self.no_new_privs {
            lines.push("no new privileges".into());
        }
        for (number, places) in self.landlock.iter().rev().enumerate() {
            let what = if number == 0 { "landlock" } else { "landlock of a process before" };
            self.files(what, places, &mut lines);
        }
        let calls = match self.calls {
            Calls::Any => None,
            Calls::Harmless => Some(
                "seccomp: system calls that web sites do not use are rejected; scripts inherit the list, so that it \
                 is not limited to those that the server needs",
            ),
            Calls::Needed => Some(
                "seccomp: only the system calls that the server needs are allowed, as it starts no programs",
            ),
        };
        lines.extend(calls.map(str::to_owned));
        lines
    }

    fn files(&self, what: &str, places: &AllowedPaths, lines: &mut Vec<String>) {
        let list = |paths: &[PathBuf]| {
            paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
        };
        lines.push(format!("{what}: reads {}", list(&places.read)));
        lines.push(format!("{what}: writes {}", list(&places.write)));
        if !places.sockets.is_empty() {
            lines.push(format!("{what}: makes sockets in {}", list(&places.sockets)));
        }
        let programs: Vec<PathBuf> = places.execute.iter().chain(&self.program).cloned().collect();
        lines.push(format!("{what}: runs {}", list(&programs)));
    }
}

/// Returns the lists in a form that does not depend on whether the configuration was named by an absolute path.
fn comparable(layers: &[AllowedPaths]) -> Vec<[Vec<PathBuf>; 4]> {
    let whole = |paths: &[PathBuf]| {
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let mut paths: Vec<PathBuf> = paths.iter().map(absolute).collect();
        paths.sort();
        paths.dedup();
        paths
    };
    let all = |places: &AllowedPaths| {
        let AllowedPaths { read, write, sockets, execute } = places;
        [read, write, sockets, execute].map(|paths| whole(paths))
    };
    layers.iter().map(all).collect()
}

impl Config {
    /// Returns the keys whose values differ from those in force and need a restart.
    pub fn needs_restart(&self, startup: &StartupSettings) -> Vec<&'static str> {
        let now = StartupSettings::of(self);
        let (new, old) = (&now.confinement, &startup.confinement);
        [
            ("server.threads", now.threads != startup.threads),
            ("server.user", new.user != old.user),
            ("server.group", new.group != old.group),
            ("server.chroot", new.chroot != old.chroot),
            ("server.limits", new.limits != old.limits),
            ("server.no_new_privs", new.no_new_privs != old.no_new_privs),
            ("server.landlock", comparable(&new.landlock) != comparable(&old.landlock)),
            ("server.seccomp", new.calls != old.calls),
            ("server.pid_file", now.pid_file != startup.pid_file),
            ("server.error_log.format", now.error_log_format != startup.error_log_format),
            ("server.error_log.path", now.error_log_target != startup.error_log_target),
            ("server.cache.notify", now.notify != startup.notify),
        ]
        .into_iter()
        .filter_map(|(key, differs)| differs.then_some(key))
        .collect()
    }

    /// Describes the restrictions of a server that starts with this configuration, and the users of its scripts.
    pub fn confinement(&self) -> Vec<String> {
        let mut lines = Confinement::of(self).lines();
        lines.extend(self.script_users());
        lines
    }
}
