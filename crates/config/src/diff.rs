//! The differences between two configurations.

use std::path::Path;

use toml::{Table, Value};

use super::config::Config;
use super::file::ScriptTable;
use super::listen::Listen;
use super::startup::StartupSettings;

/// Lists what a reload from `before` to `after` would change, one line per change. `startup` has the settings that
/// are fixed when the server starts.
pub fn diff(before: &Config, after: &Config, startup: &StartupSettings) -> Vec<String> {
    let mut diff = Diff { before, after, startup, lines: Vec::new() };
    if let Some(reason) = after.reload_conflict(startup.confinement.calls) {
        diff.report("rejected", reason);
    }
    diff.folder();
    diff.listeners();
    diff.server();
    diff.table("map");
    diff.table("store");
    diff.table("shared");
    diff.sites();
    diff.scripts();
    diff.lines
}

struct Diff<'a> {
    before: &'a Config,
    after: &'a Config,
    startup: &'a StartupSettings,
    lines: Vec<String>,
}

impl Diff<'_> {
    fn report(&mut self, subject: &str, change: impl AsRef<str>) {
        self.lines.push(format!("{subject:<9} {}", change.as_ref()));
    }

    fn folder(&mut self) {
        let folder = |config: &Config| config.whole_path()?.parent().map(Path::to_owned);
        if let (Some(then), Some(now)) = (folder(self.before), folder(self.after))
            && then != now
        {
            let (then, now) = (then.display(), now.display());
            self.report("paths", format!("relative paths start at {now} instead of {then}"));
        }
    }

    fn listeners(&mut self) {
        let (before, after) = (self.before, self.after);
        let mut left: Vec<&Listen> = before.listen.iter().collect();
        for listen in &after.listen {
            match left.iter().position(|open| open.is_same_socket(listen)) {
                None => self.report("listener", format!("{} is opened", listen.address)),
                Some(at) => {
                    let open = left.remove(at);
                    let changes = open.changes(listen).join(", ");
                    if !changes.is_empty() {
                        let address = &listen.address;
                        self.report("listener", format!("{address} is kept: {changes}"));
                    }
                }
            }
        }
        for listen in left {
            let address = &listen.address;
            self.report("listener", format!("{address} is closed; its connections stay open"));
        }
    }

    fn server(&mut self) {
        let (before, after) = (tables(self.before), tables(self.after));
        let restart = self.after.needs_restart(self.startup);
        let changed = self.after.needs_restart(&StartupSettings::of(self.before));
        let mut reported = Vec::new();
        for change in changes(part(&before, "server"), part(&after, "server")) {
            let key = format!("server.{}", change.key);
            let note = match restart.iter().find(|late| key.starts_with(**late)) {
                _ if self.after.overrides.has(&change.key) => "; the command line overrides it",
                Some(_) => "; needs a restart",
                None => "",
            };
            self.report("setting", format!("{key}: {change}{note}"));
            reported.push(key);
        }
        for late in restart {
            if !reported.iter().any(|key| key.starts_with(late)) {
                let reason = match changed.contains(&late) {
                    true => "follows from other settings",
                    false => "differs from the value used since the start",
                };
                self.report("setting", format!("{late}: {reason}; needs a restart"));
            }
        }
    }

    /// Compares the tables with this name at the top of the file.
    fn table(&mut self, name: &str) {
        let (before, after) = (tables(self.before), tables(self.after));
        for change in changes(part(&before, name), part(&after, name)) {
            self.report("setting", format!("{name}.{}: {change}", change.key));
        }
    }

    fn sites(&mut self) {
        let (then, now) = (tables(self.before), tables(self.after));
        let table = |tables: &Table, index: usize| -> Table {
            let site = tables.get("site").and_then(|sites| sites.get(index));
            site.and_then(Value::as_table).cloned().unwrap_or_default()
        };
        let (before, after) = (self.before, self.after);
        let unchanged = after.unchanged_sites(before);
        for site in before.sites.iter() {
            if !after.sites.iter().any(|other| other.name == site.name) {
                self.report("site", format!("{} is removed", site.name));
            }
        }
        for site in after.sites.iter() {
            let name = &site.name;
            let Some(old) = before.sites.iter().find(|old| old.name == *name) else {
                let routes = site.route_count();
                let plural = if routes == 1 { "" } else { "s" };
                self.report("site", format!("{name} is added, with {routes} route{plural}"));
                continue;
            };
            if unchanged.contains(&site.index) {
                continue;
            }
            self.report("site", format!("{name} is reloaded: its cached files are evicted"));
            self.site(name, &table(&then, old.index), &table(&now, site.index));
        }
    }

    /// Compares settings and routes of a site that exists in both.
    fn site(&mut self, name: &str, then: &Table, now: &Table) {
        let own = |table: &Table| {
            let mut table = table.clone();
            table.remove("route");
            table
        };
        for change in changes(Some(&own(then)), Some(&own(now))) {
            self.report("setting", format!("{name}: {change:#}"));
        }
        let (then, now) = (routes(then), routes(now));
        for (path, _) in &then {
            if !now.iter().any(|(other, _)| other == path) {
                self.report("route", format!("{name} {path} is removed"));
            }
        }
        for (path, route) in &now {
            match then.iter().find(|(other, _)| other == path) {
                None => self.report("route", format!("{name} {path} is added")),
                Some((_, old)) => {
                    for change in changes(Some(old), Some(route)) {
                        self.report("setting", format!("{name} {path}: {change:#}"));
                    }
                }
            }
        }
    }

    fn scripts(&mut self) {
        fn scripts(config: &Config) -> Vec<(&ScriptTable, String)> {
            let sites = config.sites.iter();
            sites.flat_map(|site| site.named_scripts().collect::<Vec<_>>()).collect()
        }
        let (then, now) = (scripts(self.before), scripts(self.after));
        for (table, name) in &now {
            if then.iter().any(|(other, before)| before == name && other == table) {
                continue;
            }
            let change = match then.iter().any(|(_, other)| other == name) {
                true => "restart; running requests are completed",
                false => "are added",
            };
            self.report("scripts", format!("{name} {change}"));
        }
        for (_, name) in then.iter().filter(|(_, name)| !now.iter().any(|(_, other)| other == name))
        {
            self.report("scripts", format!("{name} are removed; running requests are completed"));
        }
    }
}

/// A key with two values.
struct Changed {
    /// Joined by dots if it is in nested tables.
    key: String,
    then: Option<Value>,
    now: Option<Value>,
}

impl std::fmt::Display for Changed {
    /// Formats both values. The alternate form begins with the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |value: &Option<Value>| value.as_ref().map_or("unset".into(), shown);
        if f.alternate() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{} -> {}", text(&self.then), text(&self.now))
    }
}

/// Formats a value, and truncates it after 80 characters.
fn shown(value: &Value) -> String {
    const MAX: usize = 80;
    let text = value.to_string().replace('\n', " ");
    match text.char_indices().nth(MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// Returns the keys whose values differ. Tables that exist in both are compared recursively.
fn changes(then: Option<&Table>, now: Option<&Table>) -> Vec<Changed> {
    let none = Table::new();
    let (then, now) = (then.unwrap_or(&none), now.unwrap_or(&none));
    let mut keys: Vec<&String> = then.keys().chain(now.keys()).collect();
    keys.sort();
    keys.dedup();
    let mut found = Vec::new();
    for key in keys {
        match (then.get(key), now.get(key)) {
            (then, now) if then == now => {}
            (Some(Value::Table(then)), Some(Value::Table(now))) => {
                let inner = changes(Some(then), Some(now)).into_iter();
                found.extend(
                    inner.map(|change| Changed { key: format!("{key}.{}", change.key), ..change }),
                );
            }
            (then, now) => {
                let (then, now) = (then.cloned(), now.cloned());
                found.push(Changed { key: key.clone(), then, now });
            }
        }
    }
    found
}

/// Parses the file; an empty table if there is none.
fn tables(config: &Config) -> Table {
    config.text_without_secrets().parse().unwrap_or_default()
}

fn part<'t>(table: &'t Table, key: &str) -> Option<&'t Table> {
    table.get(key)?.as_table()
}

/// Returns the routes of a site's table with their patterns.
fn routes(site: &Table) -> Vec<(String, Table)> {
    let all = site.get("route").and_then(Value::as_array).into_iter().flatten();
    all.filter_map(Value::as_table)
        .map(|route| {
            let mut route = route.clone();
            let requests = ["path", "regex", "when"].map(|key| route.remove(key));
            (route_name(requests), route)
        })
        .collect()
}

/// Returns the name of a route by its patterns, its regular expression and its conditions.
fn route_name([path, regex, when]: [Option<Value>; 3]) -> String {
    let text = |value: Value| match value {
        Value::String(text) => text,
        Value::Array(list) => {
            let texts = list.iter().filter_map(Value::as_str);
            texts.collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    };
    let name = path.or(regex).map_or_else(|| "/*".to_owned(), text);
    match when {
        Some(when) => format!("{name} when {}", shown(&when)),
        None => name,
    }
}
