//! The handler of a path, as its merged route names it, with the settings of that handler.

use std::sync::Arc;

use super::file::{Route, RouteStatus, RouteStatusTable};
use super::merge::Patterns;
use super::pattern::Pattern;
use super::proxy::{self, Proxy, service_name};
use super::redirect::{self, Redirect};
use super::report::Report;
use super::respond::{self, Respond};
use super::script::{self, Script};
use super::spanned::{Span, Spanned};
use super::tries::TryPath;

/// The handler of a path.
#[derive(Debug, Clone, PartialEq)]
pub enum Handler {
    /// The files beneath the root.
    Files,
    /// Scripts or an application.
    Script(Arc<Script>),
    /// Other HTTP servers.
    Proxy(Arc<Proxy>),
    /// A redirect to another URL.
    Redirect(Redirect),
    /// A fixed text.
    Respond(Respond),
    /// Another path, by whose routes the request is served.
    Rewrite(TryPath),
    /// The status of the server.
    Status(Status),
    /// The readiness of the server.
    Readiness,
    /// The end of the connection, without a response.
    Close,
    /// A redirect to the same path with a slash at its end: `/app` where the route is `/app/*`.
    AddSlash,
}

/// The methods that files with WebDAV support.
const WITH_DAV: [&str; 12] = [
    "GET",
    "HEAD",
    "OPTIONS",
    "PROPFIND",
    "PUT",
    "DELETE",
    "MKCOL",
    "COPY",
    "MOVE",
    "PROPPATCH",
    "LOCK",
    "UNLOCK",
];

impl Handler {
    /// Reads the handler that `route` names; files if it names none. `pattern` belongs to the route that names it.
    pub(super) fn read(route: &Route, patterns: Patterns<'_>, report: Report<'_>) -> Self {
        report_contradictions(route, report);
        let pattern = patterns.handler;
        let handler = route.handler_key().and_then(|key| match key {
            HandlerKey::Status => Some(Self::Status(Status::read(route, pattern, report)?)),
            HandlerKey::Readiness => Some(Self::Readiness),
            HandlerKey::Close => Some(Self::Close),
            HandlerKey::Script => {
                let table = route.script.as_ref()?;
                let script = script::read(table, (pattern, patterns.maps), report);
                Some(Self::Script(Arc::new(script)))
            }
            HandlerKey::Proxy => {
                let proxy = proxy::read(route.proxy.as_ref()?, pattern, patterns.maps, report);
                Some(Self::Proxy(Arc::new(proxy)))
            }
            HandlerKey::Redirect => {
                let table = route.redirect.as_ref()?;
                redirect::read(table, pattern, patterns.maps, report).map(Self::Redirect)
            }
            HandlerKey::Respond => {
                let table = route.respond.as_ref()?;
                Some(Self::Respond(respond::read(table, pattern, patterns.maps, report)))
            }
            HandlerKey::Rewrite => {
                let to = route.rewrite.as_ref()?;
                let parsed = TryPath::of_rewrite(to, pattern, patterns.maps);
                let parsed =
                    parsed.inspect_err(|what| report(&to.span, format!("rewrite: {what}")));
                parsed.ok().map(Self::Rewrite)
            }
        });
        handler.unwrap_or(Self::Files)
    }

    /// Returns the script settings, if the handler is a script.
    pub fn script(&self) -> Option<&Arc<Script>> {
        match self {
            Self::Script(script) => Some(script),
            _ => None,
        }
    }

    /// Returns the proxy settings, if the handler is a proxy.
    pub fn proxy(&self) -> Option<&Arc<Proxy>> {
        match self {
            Self::Proxy(proxy) => Some(proxy),
            _ => None,
        }
    }

    /// Returns `true` if the handler is files.
    pub fn is_files(&self) -> bool {
        matches!(self, Self::Files)
    }

    /// Returns the methods that the handler supports by itself; `None` for all.
    /// `has_dav`: the route has WebDAV.
    pub(super) fn methods(&self, has_dav: bool) -> Option<&'static [&'static str]> {
        match self {
            Self::Files if has_dav => Some(&WITH_DAV),
            Self::Files => Some(&["GET", "HEAD", "OPTIONS"]),
            Self::Status(_) | Self::Readiness => Some(&["GET", "HEAD"]),
            Self::Script(_)
            | Self::Proxy(_)
            | Self::Redirect(_)
            | Self::Respond(_)
            | Self::Rewrite(_)
            | Self::Close
            | Self::AddSlash => None,
        }
    }
}

/// The settings of the server's status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pattern: Pattern,
    /// The servers that the page `fleet/` adds up; `None` if there is no such page.
    pub fleet: Option<StatusFleet>,
    /// The text of nginx's `stub_status` is all that is published.
    pub is_stub: bool,
}

/// Servers whose status is added up.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StatusFleet {
    /// Name of the SRV records (RFC 2782) that have their addresses.
    pub name: String,
    /// Path of their status routes, with a slash at its end.
    pub path: String,
}

impl RouteStatus {
    /// Returns `true` if the status is published.
    pub(super) fn is_on(&self) -> bool {
        !matches!(self, Self::Switch(false))
    }
}

impl Status {
    fn read(route: &Route, pattern: &Pattern, report: Report<'_>) -> Option<Self> {
        let status = route.status.as_ref()?;
        let is_stub = match &status.value {
            RouteStatus::Switch(_) => false,
            RouteStatus::Table(table) => is_stub(table, status, report),
        };
        if pattern.is_literal() && !is_stub {
            let what = "status: the route's pattern has no `*`; write path = \"/status/*\"";
            report(&status.span, what.into());
        }
        let fleet = match &status.value {
            RouteStatus::Switch(_) => None,
            RouteStatus::Table(table) => StatusFleet::read(table, pattern, report),
        };
        Some(Self { pattern: pattern.clone(), fleet, is_stub })
    }

    /// Returns what is published, for people.
    pub(super) fn describe(&self) -> String {
        match &self.fleet {
            _ if self.is_stub => "as nginx's stub_status".into(),
            Some(fleet) => format!("and of {}", fleet.name),
            None => "true".into(),
        }
    }

    /// Returns the part of `path` that the route's `*` matches.
    pub fn rest<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        self.pattern.rest(path)
    }
}

/// Reads `format`, and reports a table that has neither that nor `fleet`.
fn is_stub(table: &RouteStatusTable, whole: &Spanned<RouteStatus>, report: Report<'_>) -> bool {
    match (&table.format, &table.fleet) {
        (Some(format), _) if **format != "nginx" => {
            report(&format.span, format!("status: format: {:?} is not \"nginx\"", format.value));
        }
        (Some(format), Some(_)) => {
            report(&format.span, "status: the format \"nginx\" has no sum of a `fleet`".into());
        }
        (None, None) => report(&whole.span, "status: the table has no `fleet`".into()),
        _ => {}
    }
    table.format.is_some()
}

impl StatusFleet {
    fn read(table: &RouteStatusTable, pattern: &Pattern, report: Report<'_>) -> Option<Self> {
        let fleet = table.fleet.as_ref()?;
        let Some(name) = service_name(fleet) else {
            let what =
                "status: fleet is not an SRV record name such as \"_http._tcp.web.example.com\"";
            report(&fleet.span, what.into());
            return None;
        };
        let own = String::from_utf8_lossy(pattern.prefix());
        let path = table.path.as_ref().map_or(&*own, |path| path.as_str());
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'*');
        if !path.starts_with('/') || !path.bytes().all(is_plain) {
            let place = table.path.as_ref().unwrap_or(fleet);
            let what =
                format!("status: {path:?} is not a path such as \"/status/\"; write it as `path`");
            report(&place.span, what);
            return None;
        }
        Some(Self { name: name.to_owned(), path: format!("{}/", path.trim_end_matches('/')) })
    }
}

/// A key of a route that names its handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandlerKey {
    Status,
    Readiness,
    Close,
    Script,
    Proxy,
    Redirect,
    Respond,
    Rewrite,
}

impl HandlerKey {
    /// Returns the key as the file has it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Readiness => "readiness",
            Self::Close => "close",
            Self::Script => "script",
            Self::Proxy => "proxy",
            Self::Redirect => "redirect",
            Self::Respond => "respond",
            Self::Rewrite => "rewrite",
        }
    }
}

impl Route {
    /// Returns the keys of the route that name a handler, with their positions. More than one is an error.
    fn handler_keys(&self) -> impl Iterator<Item = (HandlerKey, &Span)> {
        [
            (HandlerKey::Status, enabled(self.status.as_ref(), RouteStatus::is_on)),
            (HandlerKey::Readiness, enabled(self.readiness.as_ref(), |is_on| *is_on)),
            (HandlerKey::Close, enabled(self.close.as_ref(), |is_on| *is_on)),
            (HandlerKey::Script, self.script.as_ref().map(|at| &at.span)),
            (HandlerKey::Proxy, self.proxy.as_ref().map(|at| &at.span)),
            (HandlerKey::Redirect, self.redirect.as_ref().map(|at| &at.span)),
            (HandlerKey::Respond, self.respond.as_ref().map(|at| &at.span)),
            (HandlerKey::Rewrite, self.rewrite.as_ref().map(|at| &at.span)),
        ]
        .into_iter()
        .filter_map(|(key, place)| Some((key, place?)))
    }

    /// Returns the key that names the handler; `None` for files.
    pub(super) fn handler_key(&self) -> Option<HandlerKey> {
        self.handler_keys().next().map(|(key, _)| key)
    }

    /// Returns `true` if the route itself names a handler, or a root of its files.
    pub(super) fn has_handler(&self) -> bool {
        self.handler_key().is_some() || self.root.is_some()
    }

    /// Returns `true` if the route replaces the handler of a more general route. `status = false`, `readiness = false` and
    /// `close = false` do so, too.
    pub(super) fn replaces_handler(&self) -> bool {
        let has_switch = self.status.is_some() || self.readiness.is_some() || self.close.is_some();
        self.has_handler() || has_switch
    }

    /// Removes all keys that name a handler.
    pub(super) fn clear_handler(&mut self) {
        self.status = None;
        self.readiness = None;
        self.close = None;
        self.script = None;
        self.proxy = None;
        self.redirect = None;
        self.respond = None;
        self.rewrite = None;
    }
}

/// Returns the position of a key that is on.
fn enabled<T>(key: Option<&Spanned<T>>, is_on: impl Fn(&T) -> bool) -> Option<&Span> {
    key.filter(|key| is_on(&key.value)).map(|key| &key.span)
}

fn report_contradictions(route: &Route, report: Report<'_>) {
    let mut keys = route.handler_keys();
    let (Some((_, place)), Some(_)) = (keys.next(), keys.next()) else { return };
    let names: Vec<_> =
        route.handler_keys().map(|(key, _)| format!("`{}`", key.as_str())).collect();
    report(place, format!("a route has either {}", names.join(" or ")));
}
