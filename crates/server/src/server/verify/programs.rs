//! Verification of the programs, applications and sockets of scripts. No program is started.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use dunlin_config::file::{ScriptKind, ScriptTable};
use dunlin_config::{Config, Language, Problem, Span, Spanned};
use dunlin_script::search_path;

/// Adds a warning for each program, application and socket that a script or a proxy needs and that does not exist.
pub(super) fn check_programs(config: &Config, warnings: &mut Vec<Problem>) {
    // In a chroot, sockets have other names.
    let proxies = config.proxy_tables().filter(|_| config.server.chroot.is_none());
    for upstream in proxies.flat_map(|proxy| &proxy.to.value.0) {
        if let Some(what) = missing_socket(&upstream.url) {
            warnings.push(config.problem_at(&upstream.url.span, format!("proxy: {what}")));
        }
    }
    for script in config.script_tables() {
        Programs { config, script, warnings }.check();
    }
}

/// The programs, files and sockets of a script.
struct Programs<'a> {
    config: &'a Config,
    script: &'a Spanned<ScriptTable>,
    warnings: &'a mut Vec<Problem>,
}

impl Programs<'_> {
    fn check(&mut self) {
        let script = self.script;
        if let Some(connect) = &script.connect {
            connect.0.iter().for_each(|address| self.socket(address));
            return;
        }
        let kind = script.kind.value;
        let has_interpreter = kind.has_host() || kind == ScriptKind::Rte;
        if let Some(program) = script.command.as_ref().and_then(|command| command.first()) {
            self.program("command", &program.value, &program.span);
        } else if has_interpreter {
            let usual = if kind == ScriptKind::Psgi { "perl" } else { "python3" };
            let named = script.interpreter.as_ref();
            let name = named.map_or(usual, |name| &name.value);
            let place = named.and_then(|name| name.span.as_ref()).or(script.kind.span.as_ref());
            self.program("interpreter", name, &place.cloned());
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

    fn report(&mut self, span: &Span, what: String) {
        self.warnings.push(self.config.problem_at(span, format!("script: {what}")));
    }

    fn socket(&mut self, address: &Spanned<String>) {
        if let Some(what) = missing_socket(address) {
            self.report(&address.span, format!("connect: {what}"));
        }
    }

    /// A program that is started by its path or, without a slash, looked for where programs are.
    fn program(&mut self, key: &str, name: &str, span: &Span) {
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
            let package = match name {
                "php-cgi" => "; on Debian the package php-cgi has it",
                "plackup" => "; on Debian the package libplack-perl has it",
                "python3" => "; on Debian the package python3 has it",
                _ => "",
            };
            format!("{key}: there is no program {name} in PATH{package}")
        };
        self.report(span, what);
    }

    fn found(&self, name: &str) -> Option<PathBuf> {
        std::env::split_paths(&self.path()).map(|folder| folder.join(name)).find(|program| {
            program.metadata().is_ok_and(|found| found.is_file() && is_executable(&found))
        })
    }

    /// Returns where bare names of programs are looked for.
    fn path(&self) -> OsString {
        let own = self
            .script
            .env
            .iter()
            .flat_map(|env| &env.value)
            .find(|(name, _)| name.value == "PATH");
        own.map_or_else(search_path, |(_, path)| path.value.clone().into())
    }

    fn file(&mut self, application: &Spanned<String>, directory: &Path) {
        let file = directory.join(&application.value);
        if !file.exists() {
            let what = format!("application: there is no file {}", file.display());
            self.report(&application.span, what);
        }
    }

    /// A Python module, in the application's directory or installed where the interpreter looks for modules.
    fn module(&mut self, application: &Spanned<String>, directory: &Path) {
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
                self.report(&application.span, what);
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
        self.report(&application.span, what);
    }

    /// Returns the directories of installed Python modules, as far as they are known without starting the interpreter.
    fn installed(&self) -> Vec<PathBuf> {
        let variables = self.script.env.iter().flat_map(|env| &env.value);
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

/// Returns what is missing of the Unix socket at `address`, if it is the address of one.
fn missing_socket(address: &str) -> Option<String> {
    let path = Path::new(address.strip_prefix("unix:")?);
    match path.parent() {
        Some(folder) if !folder.exists() => {
            Some(format!("there is no directory {}", folder.display()))
        }
        _ if !path.exists() => Some(format!(
            "there is no socket {}; requests get 502 until the application listens there",
            path.display()
        )),
        _ => None,
    }
}

/// Returns `true` if a module or package of that name is in the directory, in any of its forms.
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
