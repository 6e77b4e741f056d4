//! Keys of routes whose values name maps: `proxy = "{map.backend}"`, `root = "/srv/{map.folder}"`.
//!
//! Each such route becomes one route for each value of the maps, with the condition that the maps have these values. So every key can
//! name maps, what is cached for one value is not sent for another, and each upstream has its own connections.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::error::{Problem, Source};
use super::map;

/// Keys whose values are made for each request, or are conditions.
const MADE_LATER: [&str; 5] = ["redirect", "rewrite", "respond", "set_fields", "when"];
/// The table of a proxy whose values are made for each request.
const REQUEST_FIELDS: &str = "set_request_fields";
/// Keys that name the requests of a route.
const MATCHING: [&str; 3] = ["path", "regex", "when"];
/// Keys of a site that routes do not have.
const OF_SITE: [&str; 4] = ["host", "listen", "tls", "route"];
/// The key of a condition on the values of maps, in the table `when`.
const CHOICE: &str = "value of maps";
/// Maximum number of routes that one is replaced by.
const MAX: usize = 64;

/// The values of each map; an error if they are not known before a request.
type Values = BTreeMap<String, Result<Vec<String>, &'static str>>;
/// A value for each of several maps.
type Choice = BTreeMap<String, String>;

/// Returns `true` if the value of this key of a site or of a route may be that of a map.
pub(super) fn can_be_of_map(key: &str) -> bool {
    !OF_SITE.contains(&key) && !MATCHING.contains(&key)
}

/// Replaces the routes whose keys name maps.
pub(super) fn expand(whole: &mut DeTable<'_>, source: &Source<'_>, problems: &mut Vec<Problem>) {
    let values = values(whole);
    let Some(DeValue::Array(sites)) = whole.get_mut("site").map(Spanned::get_mut) else { return };
    let mut expansion = Expansion { values, source, problems };
    for site in sites.iter_mut() {
        if let DeValue::Table(site) = site.get_mut() {
            expansion.site(site);
        }
    }
}

/// Returns the values of all maps.
fn values(whole: &DeTable<'_>) -> Values {
    let Some(DeValue::Table(maps)) = whole.get("map").map(Spanned::get_ref) else {
        return Values::new();
    };
    let all = maps.iter().map(|(name, table)| {
        let mut values = vec![String::new()];
        for entries in ["values", "split"].into_iter().filter_map(|key| match table.get_ref() {
            DeValue::Table(table) => table.get(key),
            _ => None,
        }) {
            let DeValue::Table(entries) = entries.get_ref() else { continue };
            // Without a value for all others, there is an empty one.
            values.retain(|_| !entries.contains_key("*"));
            let texts = entries.iter().filter_map(|(_, value)| value.get_ref().as_str());
            values.extend(texts.map(str::to_owned));
        }
        values.sort_unstable();
        values.dedup();
        let is_known = !values.iter().any(|value| value.contains('{'));
        let values = is_known.then_some(values).ok_or("its values have placeholders");
        (name.get_ref().to_string(), values)
    });
    all.collect()
}

struct Expansion<'a, 's> {
    values: Values,
    source: &'a Source<'s>,
    problems: &'a mut Vec<Problem>,
}

impl Expansion<'_, '_> {
    fn site(&mut self, site: &mut DeTable<'_>) {
        let mut routes = Vec::new();
        let own = take(site, |key, value| !OF_SITE.contains(&key) && names_map(key, value));
        let everything = Spanned::new(0..0, DeValue::String("/*".into()));
        self.replace(&[("path".into(), everything)], own, &mut routes);
        if !site.contains_key("route") && !routes.is_empty() {
            let none = DeValue::Array(DeArray::new());
            site.insert(Spanned::new(0..0, "route".into()), Spanned::new(0..0, none));
        }
        let Some(DeValue::Array(list)) = site.get_mut("route").map(Spanned::get_mut) else {
            return;
        };
        for mut route in std::mem::replace(list, DeArray::new()) {
            let DeValue::Table(table) = route.get_mut() else {
                routes.push(route);
                continue;
            };
            let own = take(table, names_map);
            if own.is_empty() {
                routes.push(route);
                continue;
            }
            let matching: Vec<_> = MATCHING
                .into_iter()
                .filter_map(|key| Some((key.to_owned(), table.get(key)?.clone())))
                .collect();
            if table.len() > matching.len() {
                routes.push(route);
            }
            self.replace(&matching, own, &mut routes);
        }
        *list = routes.into_iter().collect();
    }

    /// Adds a route with the keys `own` for each value of the maps that they name.
    fn replace<'t>(
        &mut self,
        matching: &[(String, Spanned<DeValue<'t>>)],
        own: Vec<(Spanned<Cow<'t, str>>, Spanned<DeValue<'t>>)>,
        routes: &mut Vec<Spanned<DeValue<'t>>>,
    ) {
        // Keys that name the same maps share routes.
        let mut groups: BTreeMap<Vec<String>, Vec<_>> = BTreeMap::new();
        for (key, value) in own {
            let mut names = Vec::new();
            each_text(value.get_ref(), &mut |text| {
                names.extend(map::names(text).map(str::to_owned));
            });
            names.sort_unstable();
            names.dedup();
            groups.entry(names).or_default().push((key, value));
        }
        for (names, keys) in groups {
            let place = keys.first().map_or(0..0, |(_, value)| value.span());
            for choice in self.choices(&names, &place) {
                routes.push(route(matching, &keys, &choice, &place));
            }
        }
    }

    /// Returns all combinations of the values of these maps.
    fn choices(&mut self, names: &[String], place: &Range<usize>) -> Vec<Choice> {
        let mut all = vec![Choice::new()];
        for name in names {
            let values = match self.values.get(name) {
                Some(Ok(values)) => values,
                Some(Err(why)) => {
                    let what = format!("map.{name} cannot stand here: {why}");
                    self.problems.push(self.source.problem(Some(place), what));
                    return Vec::new();
                }
                None => {
                    let what = format!("there is no [map.{name}]");
                    self.problems.push(self.source.problem(Some(place), what));
                    return Vec::new();
                }
            };
            let with = |choice: &Choice, value: &String| {
                let mut choice = choice.clone();
                choice.insert(name.clone(), value.clone());
                choice
            };
            all = all
                .iter()
                .flat_map(|choice| values.iter().map(move |value| with(choice, value)))
                .collect();
            if all.len() > MAX {
                let what =
                    format!("map.{name} cannot stand here: there are more than {MAX} values");
                self.problems.push(self.source.problem(Some(place), what));
                return Vec::new();
            }
        }
        all
    }
}

/// Returns a route for requests whose maps have the values of `choice`.
fn route<'t>(
    matching: &[(String, Spanned<DeValue<'t>>)],
    keys: &[(Spanned<Cow<'t, str>>, Spanned<DeValue<'t>>)],
    choice: &Choice,
    place: &Range<usize>,
) -> Spanned<DeValue<'t>> {
    let text = |text: &str| Spanned::new(place.clone(), Cow::Owned(text.to_owned()));
    let mut table = DeTable::new();
    for (key, value) in matching {
        table.insert(text(key), value.clone());
    }
    for (key, value) in keys {
        let mut value = value.clone();
        substitute(value.get_mut(), choice);
        table.insert(key.clone(), value);
    }
    let entries = choice.iter().map(|(name, value)| {
        let value = DeValue::String(Cow::Owned(value.clone()));
        (text(name), Spanned::new(place.clone(), value))
    });
    let chosen = DeValue::Table(entries.collect());
    let mut when = match table.remove("when").map(Spanned::into_inner) {
        Some(DeValue::Table(when)) => when,
        // It is reported where the route is read.
        Some(_) | None => DeTable::new(),
    };
    when.insert(text(CHOICE), Spanned::new(place.clone(), chosen));
    table.insert(text("when"), Spanned::new(place.clone(), DeValue::Table(when)));
    Spanned::new(place.clone(), DeValue::Table(table))
}

/// Takes the entries for which `is_taken` returns `true`.
fn take<'t>(
    table: &mut DeTable<'t>,
    is_taken: impl Fn(&str, &DeValue<'t>) -> bool,
) -> Vec<(Spanned<Cow<'t, str>>, Spanned<DeValue<'t>>)> {
    let all = std::mem::take(table);
    let (taken, left): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(key, value)| is_taken(key.get_ref(), value.get_ref()));
    *table = left.into_iter().collect();
    taken
}

/// Returns `true` if a map decides on the value of a key.
fn names_map(key: &str, value: &DeValue<'_>) -> bool {
    let mut found = false;
    each_text(value, &mut |text| found |= map::names(text).next().is_some());
    found && !MADE_LATER.contains(&key)
}

fn each_text(value: &DeValue<'_>, use_text: &mut dyn FnMut(&str)) {
    match value {
        DeValue::String(text) => use_text(text),
        DeValue::Array(list) => list.iter().for_each(|value| each_text(value.get_ref(), use_text)),
        DeValue::Table(table) => {
            let entries = table.iter().filter(|(key, _)| key.get_ref() != REQUEST_FIELDS);
            entries.for_each(|(_, value)| each_text(value.get_ref(), use_text));
        }
        _ => {}
    }
}

/// Puts the values of maps in the place of their names.
fn substitute(value: &mut DeValue<'_>, choice: &Choice) {
    match value {
        DeValue::String(text) => {
            // A switch is no text.
            let whole = choice.iter().find(|(name, _)| **text == format!("{{map.{name}}}"));
            if let Some(switch) = whole.and_then(|(_, value)| value.parse().ok()) {
                *value = DeValue::Boolean(switch);
                return;
            }
            for (name, value) in choice {
                let placeholder = format!("{{map.{name}}}");
                if text.contains(&placeholder) {
                    *text = Cow::Owned(text.replace(&placeholder, value));
                }
            }
        }
        DeValue::Array(list) => {
            list.iter_mut().for_each(|value| substitute(value.get_mut(), choice));
        }
        DeValue::Table(table) => {
            let entries = table.iter_mut().filter(|(key, _)| key.get_ref() != REQUEST_FIELDS);
            entries.for_each(|(_, value)| substitute(value.get_mut(), choice));
        }
        _ => {}
    }
}
