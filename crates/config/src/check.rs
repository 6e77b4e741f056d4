//! Checks the file and makes the configuration that the server uses.

mod listen;
mod paths;
mod script;
mod server;
mod shared;
mod site;
mod store;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use self::paths::{Paths, absolute};
use super::chroot::Chroot;
use super::config::{Config, Merged, NamedPath, WEAK_HASHES};
use super::error::{Problem, Source};
use super::file::{File, ListenTable, SiteTable};
use super::map::Maps;
use super::object_root::{self, Stores};
use super::overrides::Overrides;
use super::server::{Calls, Server};
use super::spanned::{Span, Spanned};
use super::units::DurationValue;

/// Checks `file`, which was read from `source`, without access to the disk. If `inside`, paths are translated into the
/// chroot that the file names, if any.
pub(super) fn check(
    mut file: File,
    source: &Source<'_>,
    inside: bool,
) -> Result<Config, Vec<Problem>> {
    let are_listeners_implied = file.listen.is_empty();
    if are_listeners_implied {
        file.listen = implied_listeners(&file.site);
    }
    let configured = file.server.chroot.as_deref().map(|path| absolute(source, path));
    let chroot = Chroot::entered().cloned().or_else(|| configured.as_deref().map(Chroot::new));
    let paths = &Paths::new(source, chroot, inside);
    let mut checker = Checker {
        source,
        paths,
        problems: Vec::new(),
        warnings: Vec::new(),
        directories: Vec::new(),
        users: Vec::new(),
        keys: Vec::new(),
        authorities: Vec::new(),
        leaves_root_for: None,
    };
    let server = checker.server(&file.server);
    checker.leaves_root_for = server.user.clone().filter(|user| user != ROOT);
    let (listen, tables) = checker.listen(&file);
    let speaks_tls = file.listen.iter().find(|listen| listen.tls.as_deref() == Some(&true));
    let speaks_tls = speaks_tls.and_then(|listen| Some(listen.tls.as_ref()?.span.clone()));
    let stores = checker.stores(&file.store, server.cache.revalidate);
    let acme_storage = checker.acme_storage(file.server.acme_storage.as_ref(), &stores);
    let maps = Maps::read(&file.map, &mut |place, what| checker.problem(place, what));
    let around = Around {
        maps: Arc::new(maps),
        cache_file: server.cache.file,
        is_without_charset: server.nginx_statuses,
        has_dictionaries: server.cache.dictionaries > 0,
        stores,
        state: &server.state,
        resolver: &server.resolver,
        tls: listen.iter().any(|listen| listen.tls),
        plain: listen.iter().any(|listen| !listen.tls),
        are_listeners_implied,
    };
    if let Some(place) = speaks_tls
        && file.site.iter().all(|site| site.tls.is_none())
    {
        let what = "a listener uses TLS, but no site has a certificate; write tls = { certificate = \"FILE\", key = \
                    \"FILE\" } into [[site]]";
        checker.problem(&place, what);
    }
    if file.shared.is_none() {
        checker.reject_shared_limits(&file.site);
    }
    let mut sites = checker.sites(file.site, &around, &file.listen);
    sites.open_on(&listen, &tables);
    let crate::file::ServerTable { cache, http3, .. } = &file.server;
    checker.keep_from_clients("cache: directory", cache.directory.as_ref(), &sites);
    checker.keep_from_clients("http3: qlog", http3.qlog.as_ref(), &sites);
    let certificates = (file.server.acme_storage.as_ref(), acme_storage.as_ref());
    checker.keep_certificates_from_clients(certificates, &sites);
    let shared = file.shared.as_ref().map(|table| checker.shared(table));
    let calls = match file.server.seccomp.as_deref() {
        Some(true) if sites.start_programs() => Calls::Harmless,
        Some(true) => Calls::Needed,
        _ => Calls::Any,
    };
    checker.report_paths_outside();
    let Checker { problems, warnings, directories, users, keys, authorities, .. } = checker;
    if problems.is_empty() {
        Ok(Config {
            server: Server { calls, acme_storage, ..server },
            listen,
            listener_count: file.listen.len(),
            sites,
            shared,
            directories,
            users,
            keys,
            authorities,
            warnings,
            path: source.path.to_owned(),
            unused: None,
            text: source.text.into(),
            parts: source.parts.to_vec(),
            merged: Merged::of(source),
            overrides: Overrides::default(),
        })
    } else {
        Err(problems)
    }
}

/// Settings outside of a site that its checks depend on.
struct Around<'a> {
    maps: Arc<Maps>,
    cache_file: u64,
    /// Text has no charset where a route states none, as with nginx.
    is_without_charset: bool,
    /// Versions of files are kept as dictionaries.
    has_dictionaries: bool,
    /// Object stores.
    stores: Stores,
    state: &'a Path,
    /// Name servers; empty for those of the system.
    resolver: &'a [SocketAddr],
    /// A listener uses TLS.
    tls: bool,
    /// A listener does not use TLS.
    plain: bool,
    /// The file has no `[[listen]]`.
    are_listeners_implied: bool,
}

/// Returns the listeners of a file that has none: port 80, and port 443 if a site has certificates.
fn implied_listeners(sites: &[Spanned<SiteTable>]) -> Vec<ListenTable> {
    let listener = |address: &str| ListenTable {
        address: Spanned::detached(address.to_owned()),
        ..ListenTable::default()
    };
    let mut all = vec![listener(":80")];
    if sites.iter().any(|site| site.tls.is_some()) {
        all.push(ListenTable { tls: Some(Spanned::detached(true)), ..listener(":443") });
    }
    all
}

struct Checker<'a> {
    source: &'a Source<'a>,
    paths: &'a Paths<'a>,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
    directories: Vec<NamedPath>,
    users: Vec<NamedPath>,
    keys: Vec<NamedPath>,
    authorities: Vec<NamedPath>,
    /// The user that the server switches to, if it gives up root by that.
    leaves_root_for: Option<String>,
}

impl Checker<'_> {
    fn problem(&mut self, place: &Span, what: impl Into<String>) {
        self.problems.push(self.source.problem(place.as_ref(), what.into()));
    }

    /// Returns the place of the first of two, as the end of a message.
    fn first(&self, place: &Span) -> String {
        match self.source.line(place.as_ref()) {
            None => String::new(),
            Some((path, line)) if path == self.source.path => format!(", first in line {line}"),
            Some((path, line)) => format!(", first in line {line} of {}", path.display()),
        }
    }

    fn warn(&mut self, place: &Span, what: impl Into<String>) {
        self.warnings.push(self.source.problem(place.as_ref(), what.into()));
    }

    /// Reports files that a server in the chroot cannot reach.
    fn report_paths_outside(&mut self) {
        let outside = self.paths.take_outside();
        let Some(chroot) = self.paths.chroot() else { return };
        let directory = chroot.directory().display();
        for path in outside {
            let start = self.source.text.find(&format!("{:?}", path.display().to_string()));
            let what = format!(
                "{} is outside of chroot {directory}; what the configuration names has to be inside",
                path.display()
            );
            self.problem(&start.map(|start| start..start), what);
        }
    }

    fn range(&mut self, key: &str, number: &Option<Spanned<usize>>, least: usize, max: usize) {
        let Some(number) = number else { return };
        if number.value < least {
            self.problem(&number.span, format!("{key} is less than {least}"));
        } else if number.value > max {
            self.problem(&number.span, format!("{key} is more than {max}"));
        }
    }

    /// Checks a timeout. 0 would let every operation fail.
    fn timeout(
        &mut self,
        key: &str,
        span: &Option<Spanned<DurationValue>>,
        default: u64,
    ) -> Duration {
        let Some(span) = span else { return Duration::from_secs(default) };
        if span.0.is_zero() {
            self.problem(&span.span, format!("{key} is 0: write how long to wait"));
        }
        span.0
    }

    fn socket_path(&mut self, key: &'static str, path: &Spanned<PathBuf>) -> PathBuf {
        let absolute = self.absolute(path);
        let length = absolute.as_os_str().len();
        if path.as_os_str().is_empty() {
            self.problem(&path.span, format!("{key}: the path is empty"));
        } else if length > LONGEST_SOCKET_PATH {
            let what = format!(
                "{key}: the path has {length} bytes; that of a socket has {LONGEST_SOCKET_PATH} at most"
            );
            self.problem(&path.span, what);
        }
        if let Some(folder) = absolute.parent() {
            self.look_up_later(key, folder, &path.span);
        }
        absolute
    }

    fn users(&mut self, path: &Spanned<PathBuf>, is_weak: bool) -> PathBuf {
        let absolute = self.absolute(path);
        let problem = self.source.problem(path.span.as_ref(), String::new());
        let key = if is_weak { WEAK_HASHES } else { "auth" };
        self.users.push(NamedPath { key, path: absolute.clone(), problem });
        absolute
    }

    /// Returns the file with keys of tokens.
    fn keys(&mut self, path: &Spanned<PathBuf>) -> PathBuf {
        let absolute = self.absolute(path);
        let problem = self.source.problem(path.span.as_ref(), String::new());
        self.keys.push(NamedPath { key: "auth", path: absolute.clone(), problem });
        absolute
    }

    /// Returns the file of trusted authorities that `table.key` names.
    fn authority(
        &mut self,
        table: &'static str,
        key: &'static str,
        path: &Spanned<PathBuf>,
    ) -> PathBuf {
        let authority = self.absolute(path);
        if let Some(folder) = authority.parent() {
            self.look_up_later(key, folder, &path.span);
        }
        let problem = self.source.problem(path.span.as_ref(), String::new());
        self.authorities.push(NamedPath { key: table, path: authority.clone(), problem });
        authority
    }

    fn root(&mut self, root: &Spanned<PathBuf>) -> PathBuf {
        if root.as_os_str().is_empty() {
            self.problem(&root.span, "root is empty; write \".\" for the folder of this file");
        }
        if object_root::is_url(root) {
            self.object_root(root);
            return root.value.clone();
        }
        let path = self.absolute(root);
        self.look_up_later("root", &path, &root.span);
        path
    }

    fn look_up_later(&mut self, key: &'static str, path: &Path, place: &Span) {
        let problem = self.source.problem(place.as_ref(), String::new());
        self.directories.push(NamedPath { key, path: path.to_owned(), problem });
    }

    fn absolute(&self, path: &Path) -> PathBuf {
        self.paths.absolute(path)
    }

    /// Makes the path in an address such as `unix:/run/app.sock` absolute. Other addresses are unchanged.
    fn socket_in(&self, address: &mut String) {
        if let Some(rest) = address.strip_prefix("unix:")
            && self.paths.chroot().is_some()
        {
            let (path, more) = rest.split_once(':').map_or((rest, None), |(p, m)| (p, Some(m)));
            let path = self.absolute(Path::new(path));
            let more = more.map_or(String::new(), |more| format!(":{more}"));
            *address = format!("unix:{}{more}", path.display());
        }
    }
}

/// The superuser.
const ROOT: &str = "root";

/// Maximum length of the path of a Unix socket: the system's structure has 108 bytes, including a NUL.
const LONGEST_SOCKET_PATH: usize = 107;
