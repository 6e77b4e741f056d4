//! Explains where the settings of a path come from.

use std::fmt::Write;
use std::path::Path;

use super::alias::Alias;
use super::config::Config;
use super::dictionary::PageDictionary;
use super::error::Source;
use super::explain_maps::explain_maps;
use super::facts::Facts;
use super::fields::ComputedField;
use super::handler::Handler;
use super::merge::merge;
use super::script::Script;
use super::secrets;
use super::settings::{CacheRules, RecordFormat, Records, Settings};
use super::site_route::SiteRoute;
use super::sites::Site;
use super::transforms::Transforms;

/// Appends the routes of the site and the settings of the path to `text`, with their positions in the file. If `all`, includes
/// settings with default values. `site` is the one of the configuration, `chosen` the same for the values of maps.
pub fn explain_settings(
    config: &Config,
    file: &Path,
    (site, chosen): (&Site, &Site),
    facts: &Facts<'_>,
    all: bool,
    text: &mut String,
) {
    let source = &Source { path: file, ..config.source() };
    let path = facts.path;
    let explanation = Explanation { source, site, settings: &chosen.route(path), path, facts };
    let mut own = String::new();
    explanation.routes(&mut own);
    explanation.settings(all, &mut own);
    text.push_str(&secrets::masked(&own));
}

struct Explanation<'a> {
    source: &'a Source<'a>,
    site: &'a Site,
    settings: &'a Settings,
    path: &'a [u8],
    facts: &'a Facts<'a>,
}

impl Explanation<'_> {
    /// Appends the routes that apply, from general to specific, and those that other requests for the path may have.
    fn routes(&self, text: &mut String) {
        for route in self.applying() {
            let why = match (route.pattern.regex(), route.pattern.is_literal()) {
                (Some(_), _) => "is the first regular expression that matches",
                (None, true) => "is the path",
                (None, false) => "matches",
            };
            let _ = writeln!(text, "route     {} {why}", self.origin(route, None));
        }
        let may_apply = |route: &&SiteRoute| {
            let when = route.when.as_deref();
            when.is_some_and(|when| !when.is_choice() && when.choice_holds(self.facts))
        };
        for route in self.site.conditional_at(self.path).filter(may_apply) {
            let why = "applies if its conditions hold";
            let _ = writeln!(text, "route     {} {why}", self.origin(route, None));
        }
        let conditions =
            self.site.conditional_at(self.path).filter_map(|route| route.when.as_deref());
        explain_maps(self.settings, conditions, self.facts, text);
    }

    /// Returns the routes that apply to every request for the path.
    fn applying(&self) -> impl Iterator<Item = &SiteRoute> {
        let is_chosen = |route: &SiteRoute| match &route.when {
            Some(when) => when.is_choice() && when.choice_holds(self.facts),
            None => true,
        };
        let is_of_path =
            move |route: &&SiteRoute| is_chosen(route) && route.pattern.matches(self.path);
        let matching = move || self.site.routes.iter().filter(is_of_path);
        let orders = matching().filter_map(|route| Some(route.pattern.regex()?.order()));
        let first = orders.min();
        matching()
            .filter(move |route| route.pattern.regex().is_none_or(|of| Some(of.order()) == first))
    }

    /// Appends the settings, those of routes first.
    fn settings(&self, all: bool, text: &mut String) {
        let mut origins: Vec<(&str, String)> = Vec::new();
        let merged = merge(self.applying(), self.site.maps(), |route, key| {
            let origin = self.origin(route, Some(key));
            match origins.iter_mut().find(|(other, _)| *other == key) {
                // Entries of all routes apply.
                Some((_, origins)) if ADDED_UP.contains(&key) => {
                    *origins = format!("{origins} and {origin}");
                }
                Some((_, origins)) => *origins = origin,
                None => origins.push((key, origin)),
            }
        });
        // A setting that a more specific route has removed does not apply.
        origins.retain(|(key, _)| merged.route.place(key).is_some());
        let (set, defaults): (Vec<_>, Vec<_>) = describe(self.settings)
            .into_iter()
            .map(|(key, value)| {
                let origin = origins.iter().find(|(other, _)| *other == key);
                (key, value, origin.map(|(_, origin)| origin))
            })
            .partition(|(_, _, origin)| origin.is_some());
        for (key, value, origin) in set {
            let origin = origin.map_or("", String::as_str);
            let _ = writeln!(text, "setting   {key} from {origin}: {value}");
        }
        // Of the defaults, only the root is relevant.
        for (key, value, _) in defaults.iter().filter(|(key, value, _)| {
            let is_root = *key == "root";
            !value.is_empty() && (all || is_root) && (!is_root || self.settings.handler.is_files())
        }) {
            let from = if *key == "root" { "from the site" } else { "by default" };
            let _ = writeln!(text, "setting   {key} {from}: {value}");
        }
    }

    /// Returns the pattern of a route and the position of one of its keys.
    fn origin(&self, route: &SiteRoute, key: Option<&str>) -> String {
        let name = &route.name;
        let place = key.and_then(|key| route.route.place(key)).or(name.span.as_ref());
        match self.source.line(place) {
            Some((path, line)) => format!("{} ({}:{line})", name.value, path.display()),
            None => name.value.clone(),
        }
    }
}

/// Settings to which each matching route adds its entries.
const ADDED_UP: [&str; 4] = ["error_pages", "remove_fields", "set_fields", "types"];

/// Returns the directories of files that `X-Sendfile` can name, as the rest of a line.
fn sendfile_roots(settings: &Settings) -> String {
    let roots = settings.sendfile_roots.iter().map(|root| root.root.display().to_string());
    let roots = roots.collect::<Vec<_>>().join(", ");
    if roots.is_empty() { roots } else { format!(", X-Sendfile beneath {roots}") }
}

/// Describes a script in one line.
fn describe_script(settings: &Settings, script: &Script) -> String {
    let mut text = script.kind.as_str().to_owned() + &sendfile_roots(settings);
    if let Some(owner) = &script.owner {
        let user = owner.user.map_or("the server's".to_owned(), |user| user.to_string());
        let _ = write!(text, ", as user {user} and group {}", owner.group);
    }
    text
}

fn cache(rules: &CacheRules) -> String {
    if !rules.enabled {
        return "off".to_owned();
    }
    let mut text = format!("files up to {} are held whole", size(rules.file));
    if let Some(responses) = &rules.responses {
        let _ = write!(text, "; responses up to {}", size(responses.response_size));
        text.push_str(if responses.is_heuristic { "" } else { ", heuristic = false" });
        for (status, seconds) in &responses.lifetimes {
            let status = status.map_or("any".to_owned(), |status| status.to_string());
            let _ = write!(text, ", {status} for {seconds} s");
        }
        text.push_str(if responses.set_cookie { ", set_cookie = true" } else { "" });
    }
    text
}

fn records(rules: Records) -> String {
    let format = match rules.format {
        RecordFormat::Variable => "variable".to_owned(),
        RecordFormat::Vfc { control } => format!("vfc, control = {control}"),
    };
    if rules.write { format!("{format}, write = true") } else { format }
}

/// Formats bytes in the largest unit that gives an integer.
fn size(bytes: u64) -> String {
    if bytes == u64::MAX {
        return "unlimited".to_owned();
    }
    let units = [
        ("TiB", 1 << 40),
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
        ("MB", 1_000_000),
        ("KB", 1000),
    ];
    let unit = units.iter().find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor));
    unit.map_or_else(
        || format!("{bytes} bytes"),
        |(unit, factor)| format!("{} {unit}", bytes / factor),
    )
}

/// Returns all settings by key, in the order of the schema; empty if a setting has no value.
fn describe(settings: &Settings) -> Vec<(&'static str, String)> {
    let list = |items: &[(String, String)]| {
        items.iter().map(|(key, value)| format!("{key} = {value:?}")).collect::<Vec<_>>().join(", ")
    };
    let codings = |codings: &[dunlin_http::semantics::ContentCoding]| match codings {
        [] => "off".to_owned(),
        codings => codings.iter().map(|coding| coding.as_str()).collect::<Vec<_>>().join(", "),
    };
    let mut types: Vec<_> =
        settings.types.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    types.sort();
    let mut pages: Vec<_> = settings
        .error_pages
        .iter()
        .map(|(key, page)| (key.to_string(), page.to_string()))
        .collect();
    pages.sort();
    let mut shown_fields: Vec<_> = settings
        .set_fields
        .iter()
        .map(|field| field.describe(&secrets::field(&field.name, &field.value)))
        .collect();
    shown_fields.extend(settings.check_rules.fields.iter().map(ComputedField::describe));
    let transforms = settings.transforms.as_deref();
    let steps = settings.try_files.len();
    let (mut redirect, mut respond, mut script) = (String::new(), String::new(), String::new());
    let (mut proxy, mut rewrite) = (String::new(), String::new());
    let (mut status, mut readiness, mut close) = (String::from("false"), false, false);
    match &settings.handler {
        Handler::Redirect(rule) => redirect = rule.status.to_string(),
        Handler::Respond(fixed) => respond = fixed.status.to_string(),
        Handler::Rewrite(to) => rewrite = to.to_string(),
        Handler::Script(rules) => script = describe_script(settings, rules),
        Handler::Proxy(rules) => proxy = rules.describe() + &sendfile_roots(settings),
        Handler::Status(of) => status = of.describe(),
        Handler::Readiness => readiness = true,
        Handler::Close => close = true,
        Handler::Files | Handler::AddSlash => {}
    }
    let mut all = vec![
        ("root", settings.root.display().to_string()),
        ("alias", settings.alias.as_ref().map_or_else(String::new, Alias::describe)),
        ("index", settings.index.join(", ")),
        ("try", if steps == 0 { String::new() } else { format!("{steps} steps") }),
        ("listing", settings.listing.to_string()),
        ("listing_format", settings.listing_format.name().to_owned()),
        ("serve_source", settings.serve_source.to_string()),
        ("redirect", redirect),
        ("respond", respond),
        ("rewrite", rewrite),
        ("script", script),
        ("proxy", proxy),
        ("status", status),
        ("readiness", readiness.to_string()),
        ("close", close.to_string()),
        ("server_timing", settings.server_timing.to_string()),
        ("early_hints", settings.early_hints.join(", ")),
        ("internal", settings.internal.to_string()),
        ("set_fields", shown_fields.join(", ")),
        ("remove_fields", settings.remove_fields.join(", ")),
        ("substitute", transforms.map_or_else(String::new, Transforms::describe_substitutions)),
        ("ssi", transforms.map_or("false".to_owned(), Transforms::describe_ssi)),
        ("cache_control", settings.cache_control.clone().unwrap_or_default()),
        (
            "expires",
            settings.expires.map_or(String::new(), |span| format!("{} s", span.as_secs_f64())),
        ),
        ("charset", settings.charset.clone()),
        ("types", list(&types)),
        ("nosniff", settings.nosniff.to_string()),
        ("compress", codings(&settings.compress)),
        ("compress_events", settings.compress_events.to_string()),
        ("compress_unless", settings.coding.unless.join(", ")),
        ("compress_padding", size(settings.coding.padding as u64)),
        ("unaccepted_coding", format!("{:?}", settings.coding.unaccepted).to_lowercase()),
        ("decode_size", size(settings.coding.decode_size)),
        ("compress_size", size(settings.compress_size)),
        ("precompressed", codings(&settings.precompressed)),
        ("dictionary", PageDictionary::describe_all(settings)),
        ("cache", cache(&settings.cache)),
        ("sendfile", settings.sendfile.to_string()),
        ("etag", format!("{:?}", settings.etag).to_lowercase()),
        ("dav", settings.dav.as_ref().map_or("false".to_owned(), |dav| dav.describe())),
        ("records", settings.records.map_or(String::new(), records)),
        ("symlinks", format!("{:?}", settings.symlinks).to_lowercase()),
        ("hidden", settings.hidden.to_string()),
        ("error_pages", list(&pages)),
        ("access_log", settings.access_log.to_string()),
        ("body_size", size(settings.body_size)),
        ("body", format!("{:?}", settings.body).to_lowercase()),
        ("ranges", settings.ranges.to_string()),
    ];
    all.extend(settings.check_rules.describe());
    all
}
