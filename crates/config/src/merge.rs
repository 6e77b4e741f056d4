//! Merges the routes that match a path: the settings of a more specific route replace those of a more general one.

use std::collections::BTreeMap;

use super::file::Route;
use super::map::Maps;
use super::pattern::Pattern;
use super::site_route::SiteRoute;
use super::spanned::Spanned;

/// The settings of several routes as one route.
pub(super) struct MergedRoute<'r> {
    /// All settings of the routes.
    pub(super) route: Route,
    /// The patterns whose `*` the settings use.
    pub(super) patterns: Patterns<'r>,
}

/// The patterns whose `*` the settings of a path use.
#[derive(Clone, Copy)]
pub(super) struct Patterns<'r> {
    /// Pattern of the route that names the handler: for `{rest}` of a redirect, the name of a script, the page of the
    /// status.
    pub(super) handler: &'r Pattern,
    /// Pattern of the route that has the `try` list: for `{rest}` of its steps.
    pub(super) tries: &'r Pattern,
    /// Pattern of the route that has the root: for the paths of an `alias`.
    pub(super) root: &'r Pattern,
    /// Pattern of the route that has `cache_control` or `expires`.
    pub(super) caching: &'r Pattern,
    /// The maps of the configuration.
    pub(super) maps: &'r Maps,
    origins: [&'r str; 6],
}

/// Patterns of the routes that the tables of settings come from. Settings whose table comes from the same route share
/// its runtime state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DefinedBy {
    /// Pattern of the route whose `script` applies; empty if there is none.
    pub script: String,
    /// Pattern of the route whose `auth` applies; empty if there is none.
    pub auth: String,
    /// Pattern of the route whose `limit` applies; empty if there is none.
    pub limit: String,
    /// Pattern of the route whose `throttle` applies; empty if there is none.
    pub throttle: String,
    /// Pattern of the route whose `proxy` applies; empty if there is none.
    pub proxy: String,
    /// Pattern of the route whose `any` applies; empty if there is none.
    pub any: String,
}

impl<'r> Patterns<'r> {
    /// Returns the patterns of settings that no route has.
    pub(super) fn everything(maps: &'r Maps) -> Self {
        let all = &Pattern::EVERYTHING;
        Self { handler: all, tries: all, root: all, caching: all, maps, origins: [""; 6] }
    }

    pub(super) fn origins(&self) -> DefinedBy {
        let [script, auth, limit, throttle, proxy, any] = self.origins.map(str::to_owned);
        DefinedBy { script, auth, limit, throttle, proxy, any }
    }
}

/// Merges `routes`, which are sorted from general to specific. `report_key` is called with each route and each of its
/// keys in turn.
pub(super) fn merge<'r>(
    routes: impl IntoIterator<Item = &'r SiteRoute>,
    maps: &'r Maps,
    mut report_key: impl FnMut(&'r SiteRoute, &'static str),
) -> MergedRoute<'r> {
    let mut merged = MergedRoute { route: Route::default(), patterns: Patterns::everything(maps) };
    for route in routes {
        merged.add(&route.route, |key| report_key(route, key));
        if route.route.handler_key().is_some() {
            merged.patterns.handler = &route.pattern;
        }
        if route.route.r#try.is_some() {
            merged.patterns.tries = &route.pattern;
        }
        if route.route.root.is_some() {
            merged.patterns.root = &route.pattern;
        }
        if route.route.cache_control.is_some() || route.route.expires.is_some() {
            merged.patterns.caching = &route.pattern;
        }
        let Route { script, auth, limit, throttle, proxy, any, .. } = &*route.route;
        let has = [
            script.is_some(),
            auth.is_some(),
            limit.is_some(),
            throttle.is_some(),
            proxy.is_some(),
            any.is_some(),
        ];
        for (origin, has) in merged.patterns.origins.iter_mut().zip(has) {
            if has {
                *origin = &route.name.value;
            }
        }
    }
    merged
}

impl MergedRoute<'_> {
    fn add(&mut self, specific: &Route, report_key: impl FnMut(&'static str)) {
        let general = &mut self.route;
        if specific.replaces_handler() {
            general.clear_handler();
        }
        if specific.root.is_some() {
            general.alias = None;
        }
        // Both keys control how long clients cache a response: a mixture of two routes would follow neither.
        if specific.cache_control.is_some() || specific.expires.is_some() {
            general.cache_control = None;
            general.expires = None;
        }
        let mut set_fields = general.set_fields.take();
        let mut remove_fields = general.remove_fields.take();
        let types = general.types.take();
        let error_pages = general.error_pages.take();
        for name in specific.set_fields.iter().flat_map(|fields| fields.keys()) {
            remove_name(&mut set_fields, name);
            if let Some(names) = &mut remove_fields {
                names.value.retain(|other| !other.eq_ignore_ascii_case(name));
            }
        }
        for name in specific.remove_fields.iter().flat_map(|names| &names.value) {
            remove_name(&mut set_fields, name);
        }
        general.overlay(specific, report_key);
        add_missing(&mut general.set_fields, set_fields);
        add_missing(&mut general.types, types);
        add_missing(&mut general.error_pages, error_pages);
        match (&mut general.remove_fields, remove_fields) {
            (Some(names), Some(more)) => names.value.extend(more.value),
            (names @ None, more) => *names = more,
            (Some(_), None) => {}
        }
    }
}

type Table<V> = Spanned<BTreeMap<Spanned<String>, Spanned<V>>>;

/// Removes a field by its name, case-insensitively (RFC 9110 §5.1).
fn remove_name<V>(fields: &mut Option<Table<V>>, name: &str) {
    if let Some(fields) = fields {
        fields.value.retain(|other, _| !other.eq_ignore_ascii_case(name));
    }
}

/// Adds the entries of the more general table whose keys the specific one does not have.
fn add_missing<V>(specific: &mut Option<Table<V>>, general: Option<Table<V>>) {
    match (specific.as_mut(), general) {
        (Some(specific), Some(general)) => {
            for (key, value) in general.value {
                specific.value.entry(key).or_insert(value);
            }
        }
        (None, general) => *specific = general,
        (Some(_), None) => {}
    }
}
