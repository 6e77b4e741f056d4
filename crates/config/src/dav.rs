//! The key `dav`: WebDAV on the files of a route.

use std::sync::Arc;
use std::time::Duration;

use super::file::{DavTable, Route, RouteDav};
use super::handler::Handler;
use super::report::Report;
use super::spanned::Spanned;

/// WebDAV on the files of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dav {
    /// Methods that change files or their properties.
    methods: Vec<&'static str>,
    /// The value of `Allow`.
    allow: String,
    /// PROPFIND with `Depth: infinity` is allowed.
    pub infinity: bool,
    /// Maximum number of files that a response names.
    pub entries: usize,
    /// Maximum number of locks of the server.
    pub locks: usize,
    /// Maximum time of a lock, in seconds.
    pub lock_timeout: u64,
}

/// The methods that every route with WebDAV has.
const READING: [&str; 4] = ["GET", "HEAD", "OPTIONS", "PROPFIND"];
/// The methods that a route can leave out.
const CHANGING: [&str; 8] =
    ["PUT", "DELETE", "MKCOL", "COPY", "MOVE", "PROPPATCH", "LOCK", "UNLOCK"];

impl RouteDav {
    /// Returns `true` if clients can change files.
    pub(super) fn is_on(&self) -> bool {
        !matches!(self, Self::Switch(false))
    }
}

impl Dav {
    /// Reads the key of a merged route; `None` if the route has no WebDAV, or another handler than files.
    pub(super) fn read(route: &Route, handler: &Handler, report: Report<'_>) -> Option<Arc<Self>> {
        let Spanned { value, .. } = route.dav.as_ref()?;
        let default = DavTable::default();
        let table = match value {
            RouteDav::Switch(false) => return None,
            RouteDav::Switch(true) => &default,
            RouteDav::Table(table) => table,
        };
        let methods = methods(table, report);
        let locks = number("locks", table.locks.as_ref(), 10_000, report);
        let entries = number("entries", table.entries.as_ref(), 100_000, report);
        let timeout =
            table.lock_timeout.as_deref().map_or(Duration::from_secs(3600), |time| time.0);
        if let Some(Spanned { span, .. }) =
            table.lock_timeout.as_ref().filter(|_| timeout.as_secs() == 0)
        {
            report(span, "dav: lock_timeout is less than a second".into());
        }
        handler.is_files().then(|| {
            let allow = [&READING[..], &methods].concat().join(", ");
            let (infinity, lock_timeout) = (table.infinity, timeout.as_secs());
            Arc::new(Self { methods, allow, infinity, entries, locks, lock_timeout })
        })
    }

    /// Returns the value of `Allow`.
    pub fn allow(&self) -> &str {
        &self.allow
    }

    /// Returns `true` if clients may use a method besides GET and HEAD.
    pub fn allows(&self, method: &[u8]) -> bool {
        matches!(method, b"OPTIONS" | b"PROPFIND")
            || self.methods.iter().any(|name| name.as_bytes() == method)
    }

    /// Returns `true` if clients can lock resources.
    pub fn has_locks(&self) -> bool {
        self.allows(b"LOCK")
    }

    /// Describes it in one line.
    pub(super) fn describe(&self) -> String {
        let infinity = if self.infinity { ", infinity" } else { "" };
        format!("{}{infinity}", self.allow)
    }
}

fn methods(table: &DavTable, report: Report<'_>) -> Vec<&'static str> {
    let Some(names) = &table.methods else { return CHANGING.to_vec() };
    let mut methods = Vec::new();
    for Spanned { value, span } in names {
        match CHANGING.iter().find(|name| name == &value) {
            Some(name) => methods.push(*name),
            None => report(
                span,
                format!("dav: {value:?} is not one of the methods {}", CHANGING.join(", ")),
            ),
        }
    }
    for (needs, needed) in [("LOCK", "UNLOCK"), ("UNLOCK", "LOCK")] {
        if methods.contains(&needs)
            && !methods.contains(&needed)
            && let Some(first) = names.first()
        {
            report(&first.span, format!("dav: {needs} needs {needed}"));
            break;
        }
    }
    methods
}

fn number(key: &str, value: Option<&Spanned<usize>>, default: usize, report: Report<'_>) -> usize {
    if let Some(Spanned { value: 0, span }) = value {
        let hint = match key {
            "locks" => "; for none, write `methods` without LOCK and UNLOCK",
            _ => "",
        };
        report(span, format!("dav: {key} is 0{hint}"));
    }
    value.map_or(default, |value| value.value)
}
