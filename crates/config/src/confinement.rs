//! What a configuration needs of the system, and what can therefore be given up.

use std::path::{Path, PathBuf};

use super::address::Address;
use super::allowed_paths::AllowedPaths;
use super::config::Config;
use super::file::ScriptTable;
use super::jail;
use super::server::ErrorLogTarget;
use super::tls::Acme;

impl Config {
    /// Every file that the configuration names, with those that it adds; `None` when files are not
    /// confined. The server's own program, which a new process of it needs, is not among them.
    pub fn places(&self) -> Option<AllowedPaths> {
        let mut places = self.server.landlock.clone()?;
        if !self.path.as_os_str().is_empty()
            && let Ok(path) = jail::reach(&self.path)
        {
            places.read.push(folder(&path));
        }
        for directory in &self.directories {
            let path = directory.path.clone();
            match directory.key {
                "access_log" | "pid_file" => places.write.push(path),
                "directory" => places.execute.push(path),
                "landlock" | "admin" | "address" => {}
                _ => places.read.push(path),
            }
        }
        if let ErrorLogTarget::File(path) = &self.server.error_log.target {
            places.write.push(folder(path));
        }
        places.write.extend(self.state_directory().map(Path::to_owned));
        places.read.extend(self.users.iter().map(|file| folder(&file.path)));
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
        let AllowedPaths { read, write, sockets, execute } = &mut places;
        for list in [read, write, sockets, execute] {
            list.sort();
            list.dedup();
        }
        Some(places)
    }

    /// The directory that the server keeps what it obtains in; `None` when it obtains nothing.
    pub fn state_directory(&self) -> Option<&Path> {
        let mut sites = self.sites.iter().filter_map(|site| site.tls.as_ref());
        sites.any(|tls| tls.acme.is_some()).then_some(&*self.server.state)
    }

    /// The users whom the processes of scripts belong to, a line for each script.
    pub fn script_users(&self) -> Vec<String> {
        let scripts = self.sites.iter().flat_map(|site| site.scripts_started_here());
        scripts.map(|(name, script)| format!("scripts {name}: {}", owner(script))).collect()
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
