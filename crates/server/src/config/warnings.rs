//! What in a configuration will fail or surprise although the server starts with it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::error::Source;
use super::file::{AcmeChallenge, At, ScriptKind, ScriptTable};
use super::sites::SiteRoute;
use super::{Acme, Address, Config, Language, Problem, Site};
use crate::server::{Purpose, ReopenedFile};

/// Takes warnings.
pub(crate) type Warn<'a> = &'a mut dyn FnMut(Problem);

impl Config {
    /// Reports what can be known without starting anything: files are looked for, nothing is opened.
    pub(crate) fn warnings(&self, warn: Warn<'_>) {
        self.warnings.iter().cloned().for_each(&mut *warn);
        self.overlaps().into_iter().for_each(&mut *warn);
        let source = &Source { path: &self.path, text: &self.text };
        for site in self.sites.iter() {
            self.acme_ports(site, warn);
            certificates(site, warn);
            self.unserved(site, warn);
            for route in &site.routes {
                self.open_status(source, site, route, warn);
                error_pages(source, site, route, warn);
                if let Some(script) = &route.route.script {
                    Programs { config: self, source, script, warn }.check();
                }
            }
        }
    }

    /// A warning when scripts would have the rights of root, where the server stays root.
    pub(crate) fn scripts_as_root(&self) -> Option<Problem> {
        let source = Source { path: &self.path, text: &self.text };
        let mut scripts = self.sites.iter().flat_map(|site| site.routes.iter());
        let script = scripts.find_map(|route| {
            let script = route.route.script.as_ref()?;
            (script.connect.is_none() && script.user.is_none()).then_some(script)
        })?;
        let what = "scripts run as root: write user = \"www-data\" or another user into [server], or `user` into the \
                    script's table";
        Some(source.problem(script.span.as_ref(), what.into()))
    }

    /// The files that are opened again after the server has become another user.
    pub(crate) fn opened_again(&self) -> Vec<ReopenedFile> {
        let whole = || Problem::of_file(&self.path, "");
        let mut files: Vec<ReopenedFile> = self
            .users
            .iter()
            .map(|file| ReopenedFile {
                path: file.path.clone(),
                purpose: Purpose::Users,
                problem: file.problem.clone(),
            })
            .collect();
        for directory in &self.directories {
            let purpose = match directory.key {
                "root" | "sendfile_root" => Purpose::Root,
                "directory" => Purpose::Scripts,
                "access_log" | "error_log" => Purpose::Log,
                _ => continue,
            };
            let problem = directory.problem.clone();
            files.push(ReopenedFile { path: directory.path.clone(), purpose, problem });
        }
        for tls in self.sites.iter().filter_map(|site| site.tls.as_ref()) {
            let external = tls.acme.iter().flat_map(Acme::files);
            for path in tls.files().chain(external) {
                let (path, problem) = (path.clone(), tls.problem.clone());
                files.push(ReopenedFile { path, purpose: Purpose::Certificate, problem });
            }
        }
        if let Some(state) = self.state_directory() {
            let path = state.to_owned();
            files.push(ReopenedFile { path, purpose: Purpose::State, problem: whole() });
        }
        // What is no regular file is not rotated.
        let devices = [Path::new("/dev"), Path::new("/proc/self/fd")];
        files.retain(|file| file.purpose != Purpose::Log || !devices.contains(&&*file.path));
        files
    }

    /// ACME's authorities connect to these ports of the host and to no others.
    fn acme_ports(&self, site: &Site, warn: Warn<'_>) {
        let Some(tls) = site.tls.as_ref() else { return };
        let Some(acme) = &tls.acme else { return };
        let has = |port: u16, with_tls: bool| {
            self.listen.iter().any(|listen| {
                let tcp = matches!(&listen.address, Address::Tcp(tcp) if tcp.port() == port);
                tcp && listen.tls == with_tls
            })
        };
        let reachable = acme.challenges.iter().any(|challenge| match challenge {
            AcmeChallenge::TlsAlpn01 => has(443, true),
            AcmeChallenge::Http01 => has(80, false),
        });
        if !reachable {
            let wanted = match acme.challenges[..] {
                [AcmeChallenge::TlsAlpn01] => "port 443 with TLS",
                [AcmeChallenge::Http01] => "port 80 without TLS",
                _ => "port 443 with TLS or port 80 without",
            };
            let what = format!(
                "acme: the authority connects to {wanted}, where no [[listen]] is; unless that port is forwarded \
                 here, no certificate will be obtained"
            );
            warn(tls.problem.saying(what));
        }
    }

    /// A site without `tls` is served without TLS only, and one that requires certificates of its clients with TLS only.
    fn unserved(&self, site: &Site, warn: Warn<'_>) {
        let has = |with_tls: bool| {
            self.listen.iter().any(|listen| !listen.admin && listen.tls == with_tls)
        };
        match &site.tls {
            None if has(true) && !has(false) => {
                let what = format!(
                    "site {}: it is not served, as every listener has TLS and the site has no `tls`; write \
                     tls = {{ certificate = \"FILE\", key = \"FILE\" }} into it",
                    site.name
                );
                warn(Problem::of_file(&self.path, &what));
            }
            Some(tls) if !has(true) && tls.clients.as_ref().is_some_and(|one| one.required) => {
                let what = "tls: the site is not served, as it requires certificates of its clients and no \
                            listener has TLS; write tls = true into a [[listen]]";
                warn(tls.problem.saying(what.into()));
            }
            _ => {}
        }
    }

    /// The status of the server is for its administrators.
    fn open_status(&self, source: &Source<'_>, site: &Site, route: &SiteRoute, warn: Warn<'_>) {
        let Some(status) = route.route.status.as_ref().filter(|status| status.value) else {
            return;
        };
        let settings = site.route(route.pattern.prefix());
        let guarded = settings.internal
            || settings.check_rules.access.is_some()
            || settings.check_rules.auth.is_some();
        let remote = self.listen.iter().find(|listen| {
            !listen.admin && matches!(&listen.address, Address::Tcp(tcp) if !tcp.ip().is_loopback())
        });
        if let Some(listen) = remote.filter(|_| !guarded) {
            let what = format!(
                "status: the server's status is open to every client of {}; write allow = [\"127.0.0.1\", \"::1\"] or \
                 `auth` into this route",
                listen.address
            );
            warn(source.problem(status.span.as_ref(), what));
        }
    }
}

/// Reports certificates that browsers will reject for a name of the site.
fn certificates(site: &Site, warn: Warn<'_>) {
    let Some(tls) = site.tls.as_ref().filter(|tls| tls.acme.is_none()) else { return };
    for (file, _) in &tls.certificates {
        // What cannot be read is an error, reported elsewhere.
        for what in crate::tls::shortcomings(file, &site.hosts) {
            warn(tls.problem.saying(format!("tls: certificate {}: {what}", file.display())));
        }
    }
}

/// Reports error pages whose files are missing.
fn error_pages(source: &Source<'_>, site: &Site, route: &SiteRoute, warn: Warn<'_>) {
    for (status, page) in route.route.error_pages.iter().flat_map(|pages| &pages.value) {
        let settings = site.route(page.as_bytes());
        let is_file = settings.handler.is_files() && settings.try_files.is_empty();
        if !is_file || !page.starts_with('/') {
            continue;
        }
        let path = page.split('?').next().unwrap_or_default();
        let file = settings.root.join(path.trim_start_matches('/'));
        if !file.exists() {
            let what = format!(
                "error_pages: there is no file {} for the page {} of status {}",
                file.display(),
                page.value,
                status.value
            );
            warn(source.problem(page.span.as_ref(), what));
        }
    }
}

/// The programs, files and sockets of a script.
struct Programs<'a, 'w> {
    config: &'a Config,
    source: &'a Source<'a>,
    script: &'a At<ScriptTable>,
    warn: Warn<'w>,
}

impl Programs<'_, '_> {
    fn check(&mut self) {
        let script = self.script;
        if let Some(connect) = &script.connect {
            connect.0.iter().for_each(|address| self.socket(address));
            return;
        }
        let kind = script.kind.value;
        let has_interpreter = kind.has_host() || kind == ScriptKind::Rte;
        if let Some(program) = script.command.as_ref().and_then(|command| command.first()) {
            self.program("command", &program.value, program.span.as_ref());
        } else if has_interpreter {
            let usual = if kind == ScriptKind::Psgi { "perl" } else { "python3" };
            let named = script.interpreter.as_ref();
            let name = named.map_or(usual, |name| &name.value);
            let place = named.and_then(|name| name.span.as_ref()).or(script.kind.span.as_ref());
            let place = place.cloned();
            self.program("interpreter", name, place.as_ref());
        }
        if let (Some(application), Some(directory)) = (&script.application, &script.directory)
            && directory.is_dir()
        {
            match kind {
                ScriptKind::Psgi => self.file(application, directory),
                ScriptKind::Wsgi | ScriptKind::Asgi => self.module(application, directory),
                _ => {}
            }
        }
    }

    fn report(&mut self, place: Option<&std::ops::Range<usize>>, what: String) {
        (self.warn)(self.source.problem(place, format!("script: {what}")));
    }

    fn socket(&mut self, address: &At<String>) {
        let Some(path) = address.strip_prefix("unix:") else { return };
        let path = Path::new(path);
        let what = match path.parent() {
            Some(folder) if !folder.exists() => {
                format!("connect: there is no directory {}", folder.display())
            }
            _ if !path.exists() => format!(
                "connect: there is no socket {}; requests get 502 until the application listens there",
                path.display()
            ),
            _ => return,
        };
        self.report(address.span.as_ref(), what);
    }

    /// A program that is started by its path or, without a slash, looked for where programs are.
    fn program(&mut self, key: &str, name: &str, place: Option<&std::ops::Range<usize>>) {
        let what = if name.contains('/') {
            match Path::new(name).metadata() {
                Ok(metadata) if metadata.is_file() && is_executable(&metadata) => return,
                Ok(metadata) if metadata.is_file() => {
                    format!("{key}: {name} is not executable; chmod +x {name}")
                }
                Ok(_) => format!("{key}: {name} is not a file"),
                Err(error) => format!("{key}: {name}: {}", without_number(&error)),
            }
        } else {
            // Inside of a chroot there are other programs.
            if self.config.server.chroot.is_some() || name.is_empty() || self.found(name).is_some()
            {
                return;
            }
            format!("{key}: there is no program {name} in PATH ({})", self.path().to_string_lossy())
        };
        self.report(place, what);
    }

    fn found(&self, name: &str) -> Option<PathBuf> {
        std::env::split_paths(&self.path()).map(|folder| folder.join(name)).find(|program| {
            program.metadata().is_ok_and(|found| found.is_file() && is_executable(&found))
        })
    }

    /// Where bare names of programs are looked for.
    fn path(&self) -> OsString {
        let own = self.script.env.iter().flatten().find(|(name, _)| name.value == "PATH");
        own.map_or_else(crate::handler::script::search_path, |(_, path)| path.value.clone().into())
    }

    fn file(&mut self, application: &At<String>, directory: &Path) {
        let file = directory.join(&application.value);
        if !file.exists() {
            let what = format!("application: there is no file {}", file.display());
            self.report(application.span.as_ref(), what);
        }
    }

    /// A Python module, in the application's directory or installed where the interpreter looks for modules.
    fn module(&mut self, application: &At<String>, directory: &Path) {
        let Some((module, _)) = application.split_once(':') else { return };
        let mut names = module.split('.');
        // Of a package the rest is found by its own rules.
        let Some(first) = names.next().filter(|name| !name.is_empty()) else { return };
        let own = exists_as_module(directory, first);
        if own {
            let rest: PathBuf = module.split('.').collect();
            let is_package = directory.join(first).is_dir();
            if is_package && names.next().is_some() && !exists_at(directory, &rest) {
                let what =
                    format!("application: there is no module {module} in {}", directory.display());
                self.report(application.span.as_ref(), what);
            }
            return;
        }
        if self.installed().iter().any(|folder| exists_as_module(folder, first)) {
            return;
        }
        let what = format!(
            "application: there is no module {first} in {}, nor is it installed for the interpreter",
            directory.display()
        );
        self.report(application.span.as_ref(), what);
    }

    /// The directories of installed Python modules, as far as they are known without starting the interpreter.
    fn installed(&self) -> Vec<PathBuf> {
        let variables = self.script.env.iter().flatten();
        let paths = variables.filter(|(name, _)| name.value == "PYTHONPATH");
        let mut folders: Vec<PathBuf> =
            paths.flat_map(|(_, value)| std::env::split_paths(&value.value)).collect();
        let interpreter = self.script.interpreter.as_ref().map_or("python3", |name| &name.value);
        if Language::of(Some(interpreter)) != Some(Language::Python) {
            return folders;
        }
        let program = match interpreter.contains('/') {
            true => Some(PathBuf::from(interpreter)),
            false => self.found(interpreter),
        };
        // Of a virtual environment, and of the interpreter that it was made of.
        let real = program.as_ref().and_then(|program| program.canonicalize().ok());
        let prefixes = program.iter().chain(&real).filter_map(|program| program.parent()?.parent());
        let prefixes = prefixes.chain([Path::new("/usr"), Path::new("/usr/local")]);
        for library in prefixes.map(|prefix| prefix.join("lib")) {
            for entry in std::fs::read_dir(library).into_iter().flatten().flatten() {
                if entry.file_name().to_string_lossy().starts_with("python3") {
                    let folder = entry.path();
                    let kinds = ["site-packages", "dist-packages", "lib-dynload"];
                    folders.extend(kinds.map(|kind| folder.join(kind)));
                    folders.push(folder);
                }
            }
        }
        folders
    }
}

/// Whether a module or package of that name is in the directory, in any of its forms.
fn exists_as_module(folder: &Path, name: &str) -> bool {
    exists_at(folder, Path::new(name))
}

fn exists_at(folder: &Path, module: &Path) -> bool {
    let whole = folder.join(module);
    if whole.is_dir() || whole.with_added_extension("py").is_file() {
        return true;
    }
    // A compiled module has the interpreter's version in its name.
    let (Some(parent), Some(name)) = (whole.parent(), whole.file_name()) else { return false };
    let start = format!("{}.", name.to_string_lossy());
    std::fs::read_dir(parent).into_iter().flatten().flatten().any(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with(&start) && (name.ends_with(".so") || name.ends_with(".pyc"))
    })
}

fn is_executable(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o111 != 0
}

fn without_number(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
