//! From the routes that match a path to the one set of settings that holds for it.

use std::collections::BTreeMap;

use super::at::At;
use super::file::Route;
use super::pattern::Pattern;
use super::sites::SiteRoute;

/// What several routes say together.
pub(super) struct Gathered<'r> {
    /// Every setting that some route has.
    pub(super) route: Route,
    /// The pattern of the route that has the redirect: its `*` is what `{rest}` stands for.
    pub(super) redirects: Option<&'r Pattern>,
    /// The pattern of the route that has the script: what its `*` stands for names the script.
    pub(super) scripts: Option<&'r Pattern>,
    /// The pattern of the route that shows the status.
    pub(super) statuses: Option<&'r Pattern>,
    /// The pattern of the route that has the `try` list: its `*` is what `{rest}` stands for.
    pub(super) tries: Option<&'r Pattern>,
}

/// Lays `routes`, which go from general to specific, one over the other, and tells of each setting
/// that a route adds to or replaces.
pub(super) fn gather<'r>(
    routes: impl IntoIterator<Item = &'r SiteRoute>,
    mut tell: impl FnMut(&'r SiteRoute, &'static str),
) -> Gathered<'r> {
    let mut gathered = Gathered {
        route: Route::default(),
        redirects: None,
        scripts: None,
        statuses: None,
        tries: None,
    };
    for route in routes {
        gathered.lay_over(&route.route, |key| tell(route, key));
        if route.route.redirect.is_some() {
            gathered.redirects = Some(&route.pattern);
        }
        if route.route.script.is_some() {
            gathered.scripts = Some(&route.pattern);
        }
        if route.route.status.is_some() {
            gathered.statuses = Some(&route.pattern);
        }
        if route.route.r#try.is_some() {
            gathered.tries = Some(&route.pattern);
        }
    }
    gathered
}

impl Gathered<'_> {
    fn lay_over(&mut self, specific: &Route, mut tell: impl FnMut(&'static str)) {
        let general = &mut self.route;
        // One answer holds: what a route answers by itself, or from elsewhere, ends what a more
        // general one said of it.
        let answers = specific.redirect.is_some() || specific.respond.is_some();
        let shows = specific.status.is_some();
        if answers || shows || specific.script.is_some() || specific.root.is_some() {
            (general.redirect, general.respond, general.script) = (None, None, None);
            general.status = None;
        }
        // These two speak of one thing, and a mixture of two routes would say what neither meant.
        if specific.cache_control.is_some() || specific.expires.is_some() {
            (general.cache_control, general.expires) = (None, None);
        }
        let (mut set, mut removed) = (general.set_fields.take(), general.remove_fields.take());
        let (types, pages) = (general.types.take(), general.error_pages.take());
        for name in specific.set_fields.iter().flat_map(|fields| fields.keys()) {
            drop_name(&mut set, name);
            if let Some(removed) = &mut removed {
                removed.value.retain(|other| !other.eq_ignore_ascii_case(name));
            }
        }
        for name in specific.remove_fields.iter().flat_map(|names| &names.value) {
            drop_name(&mut set, name);
        }
        general.overlay(specific, |key| tell(key.trim_start_matches("r#")));
        add_general(&mut general.set_fields, set);
        add_general(&mut general.types, types);
        add_general(&mut general.error_pages, pages);
        match (&mut general.remove_fields, removed) {
            (Some(names), Some(more)) => names.value.extend(more.value),
            (names @ None, more) => *names = more,
            (Some(_), None) => {}
        }
    }
}

type Table = At<BTreeMap<At<String>, At<String>>>;

/// Field names are the same in any case of letters (RFC 9110 §5.1).
fn drop_name(fields: &mut Option<Table>, name: &str) {
    if let Some(fields) = fields {
        fields.value.retain(|other, _| !other.eq_ignore_ascii_case(name));
    }
}

/// The entries of a more general table stay where the specific one has none of that key.
fn add_general(specific: &mut Option<Table>, general: Option<Table>) {
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
