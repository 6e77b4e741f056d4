//! What a configuration needs of the system, and what can therefore be given up.

use std::path::{Path, PathBuf};

use super::Acme;
use super::file::ScriptTable;
use super::{Address, Calls, Config, ErrorLogPlace};

/// Files that may be used: each a file, or a directory with all that is beneath it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    /// What may be read.
    pub read: Vec<PathBuf>,
    /// What may be written, made and removed.
    pub write: Vec<PathBuf>,
    /// Where sockets may be made and removed.
    pub sockets: Vec<PathBuf>,
    /// What may be run, and read.
    pub execute: Vec<PathBuf>,
}

impl Config {
    /// Every file that the configuration names, with those that it adds; `None` when files are not
    /// confined.
    pub fn places(&self) -> Option<Places> {
        let mut places = self.server.landlock.clone()?;
        if !self.path.as_os_str().is_empty()
            && let Ok(path) = super::jail::reach(&self.path)
        {
            places.read.push(folder(&path));
        }
        for directory in &self.directories {
            let path = directory.path.clone();
            match directory.key {
                "access_log" | "pid_file" => places.write.push(path),
                "directory" => places.execute.push(path),
                "landlock" => {}
                _ => places.read.push(path),
            }
        }
        if let ErrorLogPlace::File(path) = &self.server.error_log.place {
            places.write.push(folder(path));
        }
        places.write.extend(self.state_directory().map(Path::to_owned));
        places.read.extend(self.users.iter().map(|(path, _)| folder(path)));
        for site in self.sites.iter() {
            let tls = site.tls.iter().flat_map(|tls| tls.files());
            places.read.extend(tls.map(|path| folder(path)));
            let acme = site.tls.iter().filter_map(|tls| tls.acme.as_ref());
            places.read.extend(acme.flat_map(Acme::files).map(|path| folder(path)));
            for script in site.scripts() {
                let programs = script.command.iter().flat_map(|command| command.first());
                for program in programs.chain(&script.interpreter) {
                    if program.contains('/') {
                        places.execute.push(program.value.clone().into());
                    }
                }
                // Where a root holds scripts and files alike, the scripts are run.
                places.execute.extend(script.root.iter().map(|root| root.value.clone()));
            }
            let written = site.roots_with_records();
            places.write.extend(written);
        }
        for listen in &self.listen {
            if let Address::Unix(path) = &listen.address {
                places.sockets.push(folder(path));
            }
        }
        // For a new process that takes over; inside of a directory of its own, its file is among others
        // that are named.
        if self.server.chroot.is_none() {
            places.execute.extend(std::env::current_exe());
        }
        let Places { read, write, sockets, execute } = &mut places;
        for list in [read, write, sockets, execute] {
            list.sort();
            list.dedup();
        }
        Some(places)
    }

    /// The directory that the server keeps what it obtains in; `None` when it obtains nothing.
    pub(crate) fn state_directory(&self) -> Option<&Path> {
        let mut sites = self.sites.iter().filter_map(|site| site.tls.as_ref());
        sites.any(|tls| tls.acme.is_some()).then_some(&*self.server.state)
    }

    /// What the server gives up, a line for each.
    pub fn confinement(&self) -> Vec<String> {
        let server = &self.server;
        let mut lines = Vec::new();
        let limits = &server.limits;
        let list = [
            ("open files", limits.open_files),
            ("core", limits.core),
            ("processes", limits.processes),
            ("memory", limits.memory),
        ];
        let list: Vec<_> =
            list.iter().filter_map(|(key, most)| Some(format!("{key} {}", (*most)?))).collect();
        if !list.is_empty() {
            lines.push(format!("limits: {}", list.join(", ")));
        }
        if let Some(directory) = &server.chroot {
            lines.push(format!("chroot {}", directory.display()));
        }
        match (&server.user, &server.group) {
            (Some(user), Some(group)) => lines.push(format!("user {user}, group {group}")),
            (Some(user), None) => lines.push(format!("user {user}")),
            (None, Some(group)) => lines.push(format!("group {group}")),
            (None, None) => {}
        }
        if server.no_new_privs {
            lines.push("no new privileges".into());
        }
        if let Some(places) = self.places() {
            let list = |paths: &[PathBuf]| {
                paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
            };
            lines.push(format!("landlock: reads {}", list(&places.read)));
            lines.push(format!("landlock: writes {}", list(&places.write)));
            if !places.sockets.is_empty() {
                lines.push(format!("landlock: makes sockets in {}", list(&places.sockets)));
            }
            lines.push(format!("landlock: runs {}", list(&places.execute)));
        }
        let calls = match server.calls {
            Calls::Any => None,
            Calls::Harmless => Some(
                "seccomp: calls that a web site has no use for are refused; a list of those that are \
                 needed would hold for the scripts, too",
            ),
            Calls::Needed => Some(
                "seccomp: only the calls that the server needs are allowed, as it starts no programs",
            ),
        };
        lines.extend(calls.map(str::to_owned));
        let scripts = self.sites.iter().flat_map(|site| site.scripts_started_here());
        lines.extend(scripts.map(|(name, script)| format!("scripts {name}: {}", owner(script))));
        lines
    }
}

/// Where the file is. It is replaced by another of its name: its folder is what stays.
fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        // A bare name is looked for where the server was started.
        Some(folder) if folder.as_os_str().is_empty() => PathBuf::from("."),
        folder => folder.unwrap_or(path).to_owned(),
    }
}

/// Whom the processes of a script belong to, as the file calls them.
fn owner(script: &ScriptTable) -> String {
    match (&script.user, &script.group) {
        (Some(user), Some(group)) => format!("user {}, group {}", user.value, group.value),
        (Some(user), None) => format!("user {}", user.value),
        (None, Some(group)) => format!("the server's user, group {}", group.value),
        (None, None) => "the server's user".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_in_a_folder() {
        for (file, expected) in
            [("d.toml", "."), ("a/d.toml", "a"), ("./d.toml", "."), ("/d.toml", "/"), ("/", "/")]
        {
            assert_eq!(folder(Path::new(file)), Path::new(expected), "{file}");
        }
    }
}
