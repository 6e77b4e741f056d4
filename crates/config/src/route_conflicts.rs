//! Warnings about routes whose settings contradict each other or their handler. The server starts nevertheless.

use std::path::{Path, PathBuf};

use super::config::Config;
use super::error::{Problem, Source};
use super::handler::Handler;
use super::script::Mapping;
use super::settings::Settings;
use super::site_route::SiteRoute;
use super::sites::Site;

/// A directory from which a route sends files.
struct Served {
    /// The route's pattern.
    route: String,
    directory: PathBuf,
}

impl Config {
    /// Warns about script directories inside of directories whose files are sent, or the reverse, and about methods
    /// that files do not support.
    pub(super) fn overlaps(&self) -> Vec<Problem> {
        let source = self.source();
        let mut problems = Vec::new();
        for site in self.sites.iter() {
            let served = served(site);
            for route in &site.routes {
                problems.extend(overlap(&source, route, &served));
                problems.extend(methods(&source, site, route));
            }
        }
        Problem::sorted(problems)
    }
}

/// Returns the directories from which the routes of a site send files.
fn served(site: &Site) -> Vec<Served> {
    // No pattern contains a NUL: only patterns for every path match this path.
    let everything = ("/*", &b"/\0"[..]);
    let own = site.routes.iter().filter(|route| !route.pattern.is_everything() && route.is_plain());
    let paths = own.map(|route| (&*route.name.value, route.pattern.prefix()));
    let mut served: Vec<Served> = Vec::new();
    for (pattern, path) in [everything].into_iter().chain(paths) {
        let settings = site.route(path);
        if settings.serve_source || !sends_files(&settings) {
            continue;
        }
        // Without a `try` list, only paths that begin with the pattern's directory are sent.
        let slash = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let folder = String::from_utf8_lossy(&path[..slash]).into_owned();
        let directory = match settings.try_files.is_empty() {
            true => settings.root.join(folder.trim_start_matches('/')),
            false => settings.root.clone(),
        };
        let route = pattern.to_owned();
        served.push(Served { route, directory: real(&directory) });
    }
    served
}

fn sends_files(settings: &Settings) -> bool {
    let sends_files = match &settings.handler {
        Handler::Files => true,
        // The route sends the files beside its scripts.
        Handler::Script(script) => script.mapping == Mapping::Path,
        Handler::Proxy(_) => settings.tries_files(),
        Handler::Redirect(_)
        | Handler::Respond(_)
        | Handler::Rewrite(_)
        | Handler::Status(_)
        | Handler::Readiness
        | Handler::Close
        | Handler::AddSlash => false,
    };
    sends_files && !settings.root.as_os_str().is_empty() && settings.objects.is_none()
}

fn overlap(source: &Source<'_>, route: &SiteRoute, served: &[Served]) -> Option<Problem> {
    let script = &route.route.script.as_ref()?.value;
    let named = script.directory.as_ref().filter(|named| named.span.is_some())?;
    let directory = real(named);
    // An application's static files, such as style sheets, may be in its directory.
    let is_application = script.mapping() == Mapping::Application;
    let what = served.iter().find_map(|served| {
        let Served { route, directory: root } = served;
        if directory.starts_with(root) {
            let within = match directory == *root {
                true => String::new(),
                false => format!("is in {}, and ", root.display()),
            };
            return Some(format!(
                "script: the directory {} {within}is served by route {route:?}; its programs are not sent, but keep them \
                 in a separate directory",
                directory.display(),
            ));
        }
        (root.starts_with(&directory) && !is_application).then(|| {
            format!(
                "script: {}, whose files route {route:?} sends, is inside the directory {}: executable files there are \
                 run, and not sent; separate the two",
                root.display(),
                directory.display()
            )
        })
    })?;
    Some(source.problem(named.span.as_ref(), what))
}

/// Warns if `methods` has a method that the route's handler does not support.
fn methods(source: &Source<'_>, site: &Site, route: &SiteRoute) -> Option<Problem> {
    let named = route.route.methods.as_ref()?;
    let settings = site.settings_of(route);
    let is_for_files = settings.handler.is_files() && sends_files(settings) && !settings.reroutes;
    let known = ["GET", "HEAD", "OPTIONS"];
    let name = named.iter().find(|name| !known.contains(&name.as_str()))?;
    let what = format!(
        "methods: this route sends files, which do not take {}; the response to it is 405",
        name.value
    );
    is_for_files.then(|| source.problem(name.span.as_ref(), what))
}

/// Resolves symlinks in the part of the path that exists.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
