//! The files, system calls and users that a configuration needs, so that the process can give up all others.

use std::path::{Path, PathBuf};

use super::acme::Acme;
use super::address::Address;
use super::allowed_paths::AllowedPaths;
use super::chroot;
use super::config::Config;
use super::file::ScriptTable;
use super::server::ErrorLogTarget;

impl Config {
    /// Returns every file that the configuration names or implies; `None` if files are not confined. The server's own
    /// program, which an upgrade needs, is not included.
    pub fn places(&self) -> Option<AllowedPaths> {
        let mut places = self.server.landlock.clone()?;
        if !self.path.as_os_str().is_empty()
            && let Ok(path) = chroot::reach(&self.path)
        {
            places.read.push(folder(&path));
        }
        // A reload reads them again.
        places.read.extend(self.other_files().map(|path| folder(&path)));
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
        places.write.extend(self.cache_directory().map(Path::to_owned));
        places.write.extend(self.qlog_directory().map(Path::to_owned));
        places.read.extend(self.users.iter().chain(&self.keys).map(|file| folder(&file.path)));
        for site in self.sites.iter() {
            let tls = site.tls.iter().flat_map(|tls| tls.files());
            places.read.extend(tls.map(|path| folder(path)));
            let acme = site.tls.iter().filter_map(|tls| tls.acme.as_ref());
            places.read.extend(acme.clone().flat_map(Acme::files).map(|path| folder(path)));
            let hooks = acme.filter_map(Acme::program).filter(|program| program.contains('/'));
            places.execute.extend(hooks.map(PathBuf::from));
            for script in site.scripts() {
                let programs = script.command.iter().flat_map(|command| command.first());
                for program in programs.chain(&script.interpreter) {
                    if program.contains('/') {
                        places.execute.push(program.value.clone().into());
                    }
                }
                for files in script.files.iter().flat_map(|files| &files.value) {
                    let write = files.write.unwrap_or(false);
                    let list = if write { &mut places.write } else { &mut places.read };
                    list.push(files.path.value.clone());
                }
                // A file is replaced by renaming.
                let component = script.file.as_ref().filter(|_| script.kind.is_component());
                places.read.extend(component.map(|file| folder(file)));
                // A root may contain both scripts and files; the scripts are executed.
                places.execute.extend(script.root.iter().map(|root| root.value.clone()));
            }
            let written = site.roots_with_records();
            places.write.extend(written);
            places.write.extend(site.roots_with_dav());
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

    /// Returns the directory of obtained certificates and compiled components; `None` if there are none.
    pub fn state_directory(&self) -> Option<&Path> {
        let mut sites = self.sites.iter().filter_map(|site| site.tls.as_ref());
        let is_used = sites.any(|tls| tls.acme.is_some()) || self.has_components();
        is_used.then_some(&*self.server.state)
    }

    /// Returns the directory of cached responses, objects and dictionaries; `None` if none are kept there.
    pub fn cache_directory(&self) -> Option<&Path> {
        let disk = self.server.cache.disk.as_ref();
        disk.filter(|_| self.keeps_responses() || self.keeps_dictionaries()).map(|disk| &*disk.path)
    }

    /// Returns the directory of records of HTTP/3 connections; `None` if there are none.
    pub fn qlog_directory(&self) -> Option<&Path> {
        self.server.http3.qlog.as_deref()
    }

    /// Returns `true` if a route has responses or objects that are cached.
    pub fn keeps_responses(&self) -> bool {
        let mut sites = self.sites.iter();
        sites.any(|site| site.caches_responses() || site.object_roots().next().is_some())
    }

    /// Returns `true` if dictionaries of a route are kept: versions of its files, or those for its pages.
    pub fn keeps_dictionaries(&self) -> bool {
        self.sites.iter().any(|site| site.keeps_dictionaries())
    }

    /// Describes the users of script processes, one line per script.
    pub fn script_users(&self) -> Vec<String> {
        let scripts = self.sites.iter().flat_map(|site| site.scripts_started_here());
        scripts.map(|(name, script)| format!("scripts {name}: {}", owner(script))).collect()
    }
}

/// Returns the directory of a file. Files are replaced by renaming, so rules apply to the directory.
fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        // A bare name is relative to the working directory of the start.
        Some(folder) if folder.as_os_str().is_empty() => PathBuf::from("."),
        folder => folder.unwrap_or(path).to_owned(),
    }
}

/// Describes the user and group of a script's processes as the file names them.
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
