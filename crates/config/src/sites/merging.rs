//! The settings of every path, merged from the routes that match it.

use std::sync::Arc;

use super::Defaults;
use crate::file::{Route, RouteDictionary};
use crate::handler::{Handler, HandlerKey};
use crate::merge::merge;
use crate::pattern::Pattern;
use crate::report::Report;
use crate::route_table::RouteTable;
use crate::script::Mapping;
use crate::settings::Settings;
use crate::site_route::SiteRoute;
use crate::sources::{SourceRule, Sources};

/// Returns `true` if a route has no conditions or is among those at `applying`, by its position in the file.
pub(super) fn applies(route: &SiteRoute, applying: &[usize]) -> bool {
    !route.is_conditional() || applying.contains(&route.order)
}

/// Makes the settings of every path, of the routes that apply.
///
/// # Errors
/// There are too many patterns.
pub(super) fn table(
    routes: &[SiteRoute],
    defaults: &Defaults,
    sources: &Option<Arc<Sources>>,
    applies: impl Fn(&SiteRoute) -> bool,
) -> Result<RouteTable<Settings>, String> {
    let routes: Vec<&SiteRoute> = routes.iter().filter(|route| applies(route)).collect();
    let mounts = mounts(&routes);
    let mut patterns: Vec<&Pattern> = routes.iter().map(|route| &route.pattern).collect();
    patterns.extend(&mounts);
    RouteTable::new(&patterns, |matching| {
        let own = matching.iter().filter_map(|&at| routes.get(at).copied());
        let mut made = merged(own, defaults, sources);
        if matching.iter().any(|&at| at >= routes.len()) {
            made.handler = Handler::AddSlash;
        }
        made
    })
}

/// Merges the settings of routes that match a path, from general to specific.
pub(super) fn merged<'r>(
    mut own: impl DoubleEndedIterator<Item = &'r SiteRoute> + Clone,
    defaults: &'r Defaults,
    sources: &Option<Arc<Sources>>,
) -> Settings {
    // Each route was checked alone: no check depends on keys of two routes.
    let mut made = settings(own.clone(), defaults, &mut |_, _| {});
    let most_specific = own.next_back().map(|route| &route.name.value);
    made.pattern = most_specific.cloned().unwrap_or_default();
    made.guard(sources);
    made
}

/// Returns the fields in which authentication names users and what else it knows of them. Applications trust them, so that no
/// client may set them.
pub(super) fn user_fields(routes: &[SiteRoute]) -> Vec<String> {
    let tables = routes.iter().flat_map(|route| route.route.auth_tables());
    let names = tables.flat_map(|table| {
        let copied = table.copy_to_request.iter().flat_map(|names| &names.value);
        let copied = copied.map(|name| name.value.as_str());
        let claims = table.jwt.iter().flat_map(|jwt| &jwt.value.claims);
        let claims = claims.flat_map(|claims| claims.value.keys().map(|name| name.value.as_str()));
        [table.user_field()].into_iter().chain(copied).chain(claims)
    });
    let mut names: Vec<String> =
        names.map(|name| name.to_ascii_lowercase().replace(['_', '.'], "-")).collect();
    names.sort();
    names.dedup();
    names
}

/// Returns the paths that lack only the last slash of a route with an application, a directory of scripts, a proxy or the status:
/// `/app` for `/app/*`, unless another route, which is not for every path, matches.
pub(super) fn mounts(routes: &[&SiteRoute]) -> Vec<Pattern> {
    let is_mount = |route: &Route| match route.handler_key() {
        _ if route.alias.is_some() => true,
        Some(HandlerKey::Status | HandlerKey::Proxy) => true,
        Some(HandlerKey::Script) => {
            route.script.as_deref().is_some_and(|script| match script.mapping() {
                Mapping::Application | Mapping::Program => true,
                // The directory itself, whose index is a script.
                Mapping::Rest => script.is_by_extension(),
                Mapping::Path => false,
            })
        }
        _ => false,
    };
    let mut mounts: Vec<Pattern> = Vec::new();
    for SiteRoute { pattern, route, .. } in routes {
        let Some(path) = pattern.mount().filter(|_| is_mount(route)) else { continue };
        let is_taken = routes.iter().any(|other| {
            let takes = !other.pattern.is_everything() && other.pattern.matches(path.prefix());
            takes && (other.route.has_handler() || other.route.r#try.is_some())
        });
        if !is_taken && !mounts.contains(&path) {
            mounts.push(path);
        }
    }
    mounts
}

/// Returns the scripts of the routes, as far as they are files.
pub(super) fn sources(
    site: &str,
    routes: &[SiteRoute],
    defaults: &Defaults,
) -> Option<Arc<Sources>> {
    let rules = routes.iter().filter_map(|route| {
        let settings = settings([route], defaults, &mut |_, _| {});
        SourceRule::new(&route.name, settings.handler.script()?)
    });
    let rules: Vec<_> = rules.collect();
    (!rules.is_empty()).then(|| Arc::new(Sources { site: site.to_owned(), rules }))
}

/// Merges the settings of these routes.
pub(super) fn settings<'r>(
    routes: impl IntoIterator<Item = &'r SiteRoute>,
    defaults: &'r Defaults,
    report: Report<'_>,
) -> Settings {
    let merged = merge(routes, &defaults.maps, |_, _| {});
    let root = merged.route.root.as_deref().unwrap_or(&defaults.root).clone();
    let objects = defaults.stores.root(&root);
    let mut made = Settings::new(&merged.route, root, defaults.cache_file, merged.patterns, report);
    if defaults.is_without_charset && merged.route.charset.is_none() {
        made.charset.clear();
    }
    let has_files = merged.route.dictionary.as_deref().is_none_or(RouteDictionary::has_files);
    let dictionary = defaults.dictionaries.clone().filter(|_| has_files && made.are_files_public());
    let page_dictionary = made.page_dictionary.clone().filter(|_| defaults.has_dictionaries);
    Settings { objects, dictionary, page_dictionary, ..made }
}
