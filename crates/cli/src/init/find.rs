//! What a directory holds, by the names of files and by lines of their text.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What a directory holds.
pub(super) struct Found {
    pub(super) application: Application,
    /// The directory of public files, relative to the directory: `.` or a name.
    pub(super) root: String,
    /// There is a file `index.html` in the root.
    pub(super) has_index: bool,
    /// A directory of public files beside an application, below the root: `static`.
    pub(super) assets: Option<String>,
    /// There is a directory `cgi-bin`.
    pub(super) has_cgi: bool,
}

/// An application.
pub(super) enum Application {
    /// None: files alone.
    Files,
    Php(Php),
    Python(Python),
    /// A file of PSGI.
    Perl(String),
    /// An HTTP server of Node.js.
    Node {
        port: u16,
    },
}

/// How PHP is run.
pub(super) struct Php {
    /// The name of the software, if it is known.
    pub(super) name: &'static str,
    /// `index.php` gets the requests for which there is no file.
    pub(super) has_front: bool,
    /// The socket of PHP-FPM, if that runs and there is no `php-cgi`.
    pub(super) socket: Option<String>,
    pub(super) is_installed: bool,
}

/// An application of WSGI or ASGI.
pub(super) struct Python {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    /// `app:app`.
    pub(super) object: String,
    /// The file that shows it.
    file: String,
    /// The interpreter of a virtual environment.
    pub(super) interpreter: Option<String>,
}

impl fmt::Display for Application {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files => f.write_str("files"),
            Self::Php(php) => write!(f, "{}", php.name),
            Self::Python(python) => write!(f, "the {} application in {}", python.name, python.file),
            Self::Perl(file) => write!(f, "the PSGI application in {file}"),
            Self::Node { port } => write!(f, "the Node.js application on port {port}"),
        }
    }
}

impl Found {
    /// Looks at the directory.
    pub(super) fn in_directory(directory: &Path) -> Self {
        let application = application(directory);
        let public: &[&str] = match &application {
            Application::Files => {
                &["public", "dist", "build", "out", "_site", "site", "www", "html", "htdocs"]
            }
            Application::Php(_) => &["public", "web", "htdocs", "html"],
            Application::Node { .. } => &["public", "static"],
            _ => &["public"],
        };
        let index =
            if matches!(application, Application::Php(_)) { "index.php" } else { "index.html" };
        let holds = |name: &str| directory.join(name).join(index).is_file();
        let root = match &application {
            Application::Node { .. } => public.iter().find(|name| directory.join(name).is_dir()),
            _ if holds(".") => None,
            _ => public.iter().find(|name| holds(name)),
        };
        let root = root.map_or_else(|| ".".to_owned(), |name| (*name).to_owned());
        let has_index = directory.join(&root).join("index.html").is_file();
        let is_app = matches!(application, Application::Python(_) | Application::Perl(_));
        let assets = ["static", "staticfiles", "assets"];
        let assets = assets.iter().find(|name| is_app && directory.join(&root).join(name).is_dir());
        Self {
            application,
            root,
            has_index,
            assets: assets.map(|name| (*name).to_owned()),
            has_cgi: directory.join("cgi-bin").is_dir(),
        }
    }

    /// Describes what is served.
    pub(super) fn describe(&self) -> String {
        let mut text = self.application.to_string();
        match (&self.application, &*self.root) {
            (Application::Files, ".") => text += " of this directory",
            (Application::Files, root) => text += &format!(" in {root}"),
            _ => {}
        }
        if self.has_cgi {
            text += ", and the programs in cgi-bin";
        }
        text
    }

    /// Returns what is left to do.
    pub(super) fn notes(&self) -> Vec<String> {
        match &self.application {
            Application::Php(php) if php.socket.is_none() && !php.is_installed => {
                vec!["PHP is not installed; on Debian, `apt install php-cgi` installs it".into()]
            }
            Application::Node { port } => {
                vec![format!(
                    "start the application yourself, on port {port}; `npm start` is usual"
                )]
            }
            _ => Vec::new(),
        }
    }
}

fn application(directory: &Path) -> Application {
    django(directory)
        .or_else(|| python(directory))
        .map(Application::Python)
        .or_else(|| php(directory).map(Application::Php))
        .or_else(|| perl(directory).map(Application::Perl))
        .or_else(|| node(directory))
        .unwrap_or(Application::Files)
}

/// Finds a project of Django: `manage.py` beside a package with `wsgi.py`.
fn django(directory: &Path) -> Option<Python> {
    if !text(&directory.join("manage.py")).contains("django") {
        return None;
    }
    let package =
        names(directory).into_iter().find(|name| directory.join(name).join("wsgi.py").is_file())?;
    Some(Python {
        name: "Django",
        kind: "wsgi",
        object: format!("{package}.wsgi:application"),
        file: format!("{package}/wsgi.py"),
        interpreter: interpreter(directory),
    })
}

/// Frameworks by the name of their class, and the interface that they have.
const FRAMEWORKS: [(&str, &str, &str); 6] = [
    ("FastAPI", "FastAPI", "asgi"),
    ("Starlette", "Starlette", "asgi"),
    ("Quart", "Quart", "asgi"),
    ("Litestar", "Litestar", "asgi"),
    ("Flask", "Flask", "wsgi"),
    ("Bottle", "Bottle", "wsgi"),
];

/// Finds an application in the modules that usually have it.
fn python(directory: &Path) -> Option<Python> {
    let modules = ["app", "main", "wsgi", "asgi", "application", "server", "api", "run"];
    let mut files: Vec<(String, String)> =
        modules.iter().map(|name| (format!("{name}.py"), (*name).to_owned())).collect();
    for package in ["app", "src", "api"] {
        files.push((format!("{package}/__init__.py"), package.to_owned()));
        files.push((format!("{package}/main.py"), format!("{package}.main")));
        files.push((format!("{package}/app.py"), format!("{package}.app")));
    }
    files.into_iter().find_map(|(file, module)| {
        let text = text(&directory.join(&file));
        let (name, kind, object) = object(&text, &module)?;
        Some(Python {
            name,
            kind,
            object: format!("{module}:{object}"),
            file,
            interpreter: interpreter(directory),
        })
    })
}

/// Returns framework, interface and name of the application that a module makes.
fn object(text: &str, module: &str) -> Option<(&'static str, &'static str, String)> {
    for (name, class, kind) in FRAMEWORKS {
        for line in text.lines().filter(|line| line.contains(class)) {
            let Some((object, value)) = line.split_once('=') else { continue };
            let object = object.split(':').next().unwrap_or_default();
            let is_name = |name: &str| {
                !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_')
            };
            let value = value.trim();
            let value = value
                .rsplit_once('.')
                .filter(|(module, _)| is_name(module))
                .map_or(value, |(_, rest)| rest);
            // An application at the margin is an object of the module.
            if is_name(object.trim_end()) && value.starts_with(&format!("{class}(")) {
                return Some((name, kind, object.trim_end().to_owned()));
            }
        }
        if text.contains(&format!("{class}("))
            && text.lines().any(|line| line.starts_with("def create_app("))
        {
            return Some((name, kind, "create_app()".into()));
        }
    }
    let starts = |start: &str| text.lines().any(|line| line.starts_with(start));
    match module {
        "wsgi" if starts("application =") || starts("def application(") => {
            Some(("WSGI", "wsgi", "application".into()))
        }
        "asgi" if starts("application =") || starts("async def application(") => {
            Some(("ASGI", "asgi", "application".into()))
        }
        _ => None,
    }
}

/// Returns the interpreter of the virtual environment in the directory.
fn interpreter(directory: &Path) -> Option<String> {
    let names = [".venv", "venv", "env"].map(|name| format!("{name}/bin/python"));
    names.into_iter().find(|name| directory.join(name).exists())
}

fn php(directory: &Path) -> Option<Php> {
    let front = ["", "public", "web", "htdocs", "html"]
        .map(|name| directory.join(name).join("index.php"))
        .into_iter()
        .find(|file| file.is_file());
    let has_file = names(directory).iter().any(|name| name.ends_with(".php"));
    if front.is_none() && !has_file {
        return None;
    }
    let has = |name: &str| directory.join(name).exists();
    let name = match () {
        () if has("wp-load.php") => "WordPress",
        () if has("artisan") => "Laravel",
        () if has("symfony.lock") => "Symfony",
        () => "PHP",
    };
    let is_installed = is_in_path("php-cgi");
    let socket = (!is_installed).then(fpm_socket).flatten();
    Some(Php { name, has_front: front.is_some(), socket, is_installed })
}

/// Returns the socket of a PHP-FPM of Debian or Fedora that runs.
fn fpm_socket() -> Option<String> {
    let is_socket = |name: &str| name.starts_with("php") && name.ends_with("fpm.sock");
    let of_debian = names(Path::new("/run/php")).into_iter().filter(|name| is_socket(name)).min();
    of_debian.map(|name| format!("/run/php/{name}")).or_else(|| {
        let name = "/run/php-fpm/www.sock";
        Path::new(name).exists().then(|| name.to_owned())
    })
}

fn perl(directory: &Path) -> Option<String> {
    names(directory).into_iter().find(|name| name.ends_with(".psgi"))
}

/// Finds an application of Node.js. A project that is only built, such as one of Vite, has files.
fn node(directory: &Path) -> Option<Application> {
    let package = text(&directory.join("package.json"));
    let package: serde_json::Value = serde_json::from_str(&package).ok()?;
    let servers = [
        "express",
        "fastify",
        "koa",
        "@hapi/hapi",
        "next",
        "nuxt",
        "@nestjs/core",
        "hono",
        "ws",
        "socket.io",
    ];
    let uses = servers.iter().any(|name| package["dependencies"][name].is_string());
    let main = package["main"].as_str().unwrap_or("index.js");
    let files =
        [main, "server.js", "index.js", "app.js", "src/server.js", "src/index.js", "server.mjs"];
    let mut texts = files.iter().map(|name| text(&directory.join(name)));
    let listening = texts.find(|text| text.contains(".listen("));
    if !uses && listening.is_none() {
        return None;
    }
    Some(Application::Node { port: listening.and_then(|text| port(&text)).unwrap_or(3000) })
}

/// Returns the port on which a program of Node.js listens: `.listen(3000`, `PORT || 3000`, `port = 3000`.
fn port(text: &str) -> Option<u16> {
    let after = |mark: &str| {
        let rest = &text[text.find(mark)? + mark.len()..];
        let rest = rest.trim_start_matches([' ', '|', '?', '=', '(', '"', '\'']);
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok().filter(|port| *port > 0)
    };
    after(".listen(").or_else(|| after("PORT")).or_else(|| after("port"))
}

/// Names in a directory, in order.
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().take(MAX_NAMES);
    let mut names: Vec<_> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

const MAX_NAMES: usize = 10_000;
/// Bytes that are read of a file.
const MAX_TEXT: u64 = 64 * 1024;

/// Returns the start of a file; empty if it cannot be read.
fn text(path: &Path) -> String {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path)
        && file.metadata().is_ok_and(|metadata| metadata.is_file())
        && file.take(MAX_TEXT).read_to_end(&mut bytes).is_ok()
    {
        return String::from_utf8_lossy(&bytes).into_owned();
    }
    String::new()
}

fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).map(|folder: PathBuf| folder.join(program));
    folders.any(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_of_python_is_found_by_its_line() {
        let of = |text: &str| object(text, "app");
        let found = |name, kind, object: &str| Some((name, kind, object.to_owned()));
        assert_eq!(of("app = Flask(__name__)\n"), found("Flask", "wsgi", "app"));
        assert_eq!(
            of("import flask\nweb = flask.Flask(__name__)\n"),
            found("Flask", "wsgi", "web")
        );
        assert_eq!(of("api: FastAPI = FastAPI(title='x')\n"), found("FastAPI", "asgi", "api"));
        let factory = "def create_app(test=None):\n    app = Flask(__name__)\n    return app\n";
        assert_eq!(of(factory), found("Flask", "wsgi", "create_app()"));
        assert_eq!(of("from flask import Flask\n"), None);
        assert_eq!(
            object("def application(e, s):\n", "wsgi"),
            found("WSGI", "wsgi", "application")
        );
    }

    #[test]
    fn the_port_of_node_is_found() {
        for (text, expected) in [
            ("app.listen(8000)", Some(8000)),
            ("const port = process.env.PORT || 4000;\napp.listen(port)", Some(4000)),
            ("const port = process.env.PORT ?? '5000'\nserver.listen(port)", Some(5000)),
            ("server.listen(port)", None),
        ] {
            assert_eq!(port(text), expected, "{text}");
        }
    }
}
