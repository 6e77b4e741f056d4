//! From settings by region to routes.
//!
//! A region is a set of paths with conditions. Its complete settings are known; a route has those that differ from what it
//! inherits from more general ones, in the order in which Dunlin merges them.

use crate::expression::{Expression, of_prefix};
use crate::keys::{Keys, over, over_all};
use crate::model::{Matching, Route, both, pattern_text};
use crate::value::Value;

/// Paths.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Paths {
    All,
    Exact(String),
    /// Those that begin with the first text and end with the second.
    Pattern(String, String),
    Regex(Expression),
}

impl Paths {
    /// Returns the paths beneath a directory, which ends with a slash.
    pub(crate) fn beneath(directory: &str) -> Self {
        match directory {
            "/" | "" => Self::All,
            directory => Self::Pattern(directory.to_owned(), String::new()),
        }
    }

    /// Returns the paths of a text with at most one `*`; `None` if it has more.
    pub(crate) fn glob(text: &str) -> Option<Self> {
        match text.split_once('*') {
            None => Some(Self::Exact(text.to_owned())),
            Some((_, behind)) if behind.contains('*') => None,
            Some(("" | "/", "")) => Some(Self::All),
            Some((before, behind)) => Some(Self::Pattern(before.to_owned(), behind.to_owned())),
        }
    }

    /// Returns `true` if all paths of `inner` are among these.
    pub(crate) fn contains(&self, inner: &Self) -> bool {
        match (self, inner) {
            (Self::All, _) => true,
            (Self::Exact(path), Self::Exact(other)) => path == other,
            (Self::Pattern(before, behind), Self::Exact(path)) => {
                path.len() >= before.len() + behind.len()
                    && path.starts_with(before)
                    && path.ends_with(behind)
            }
            (Self::Pattern(before, behind), Self::Pattern(inner_before, inner_behind)) => {
                inner_before.starts_with(before) && inner_behind.ends_with(behind)
            }
            (Self::Regex(regex), Self::Exact(path)) => regex.matches(path),
            (Self::Regex(regex), Self::Regex(other)) => regex == other,
            (Self::Regex(regex), Self::Pattern(before, _)) => {
                regex.except.is_none()
                    && before.starts_with(&regex.whole_prefix())
                    && regex.is_prefix()
            }
            (Self::Pattern(before, behind), Self::Regex(regex)) => {
                behind.is_empty() && regex.begins_with(before)
            }
            (Self::Exact(_) | Self::Pattern(..) | Self::Regex(_), _) => false,
        }
    }

    /// Returns `false` if no path is among both.
    pub(crate) fn may_meet(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => true,
            (Self::Exact(path), Self::Exact(other)) => path == other,
            (Self::Exact(_), other) => other.contains(self),
            (_, Self::Exact(_)) => self.contains(other),
            (Self::Regex(regex), Self::Pattern(before, behind))
            | (Self::Pattern(before, behind), Self::Regex(regex)) => {
                regex.may_match_beneath(before) && regex.may_end_with(behind)
            }
            (Self::Pattern(before, behind), Self::Pattern(other_before, other_behind)) => {
                (before.starts_with(other_before) || other_before.starts_with(before))
                    && (behind.ends_with(other_behind) || other_behind.ends_with(behind))
            }
            (Self::Regex(regex), Self::Regex(other)) => regex.may_meet(other),
        }
    }

    /// Returns the paths that are among both, if a pattern has them.
    pub(crate) fn and(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (outer, inner) if outer.contains(inner) => Some(inner.clone()),
            (inner, outer) if outer.contains(inner) => Some(inner.clone()),
            (Self::Pattern(before, behind), Self::Pattern(other_before, other_behind))
                if self.may_meet(other) =>
            {
                let longer = |one: &String, other: &String| match one.len() >= other.len() {
                    true => one.clone(),
                    false => other.clone(),
                };
                Some(Self::Pattern(longer(before, other_before), longer(behind, other_behind)))
            }
            (Self::Regex(regex), Self::Pattern(before, behind))
            | (Self::Pattern(before, behind), Self::Regex(regex))
                if behind.is_empty() && self.may_meet(other) =>
            {
                let narrow = regex.beneath(before);
                narrow.begins_with(before).then_some(Self::Regex(narrow))
            }
            _ => None,
        }
    }

    /// Returns the paths without those that an expression matches. The first group is what the `*` of a pattern matched.
    pub(crate) fn without(self, except: &str) -> Self {
        let expression = match self {
            Self::All => Expression { text: "^/".into(), except: None },
            Self::Pattern(before, behind) => {
                let end = if behind.is_empty() { String::new() } else { regex::escape(&behind) };
                let text = format!("{}(.*){end}$", of_prefix(&before));
                Expression { text, except: None }
            }
            Self::Exact(path) => {
                Expression { text: format!("{}$", of_prefix(&path)), except: None }
            }
            Self::Regex(regex) => regex,
        };
        let except = match expression.except {
            None => except.to_owned(),
            Some(known) => format!("(?:{known})|(?:{except})"),
        };
        Self::Regex(Expression { except: Some(except), ..expression })
    }

    fn matching(&self) -> Matching {
        match self {
            Self::All => Matching::Paths(vec!["/*".into()]),
            Self::Exact(path) => Matching::Paths(vec![pattern_text(path)]),
            Self::Pattern(before, behind) => {
                Matching::Paths(vec![format!("{}*{}", pattern_text(before), pattern_text(behind))])
            }
            Self::Regex(expression) => Matching::Regex(expression.text.clone()),
        }
    }

    /// Returns the place in the order from general to specific.
    fn rank(&self) -> (u8, usize, usize) {
        match self {
            Self::All => (0, 0, 0),
            Self::Pattern(before, behind) => (1, before.len(), behind.len()),
            Self::Regex(_) => (2, 0, 0),
            Self::Exact(_) => (3, 0, 0),
        }
    }
}

/// Paths with conditions.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Region {
    /// The line that it comes from.
    pub(crate) comment: String,
    pub(crate) paths: Paths,
    pub(crate) when: Option<Value>,
}

impl Region {
    /// Returns `true` if every request of `inner` is one of this region.
    pub(crate) fn contains(&self, inner: &Self) -> bool {
        self.paths.contains(&inner.paths) && implies(inner.when.as_ref(), self.when.as_ref())
    }
}

/// Returns `true` if requests for which `strong` holds are such for which `weak` holds.
pub(crate) fn implies(strong: Option<&Value>, weak: Option<&Value>) -> bool {
    let Some(weak) = weak else { return true };
    let Some(strong) = strong else { return false };
    weak.entries().iter().all(|(key, test)| match strong.get(key) {
        Some(own) if own == test => true,
        Some(own @ Value::Table(_)) if key != "not" => implies(Some(own), Some(test)),
        _ => false,
    })
}

/// The settings of a region.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Settings {
    pub(crate) keys: Keys,
    /// The position of the rule after which no other applies; the largest number without such a rule.
    pub(crate) end: usize,
}

/// A region with its settings and what it inherits.
#[derive(Debug, Clone)]
struct Spot {
    region: Region,
    settings: Settings,
    /// Position in the source.
    at: usize,
    /// It is there so that later expressions do not match its paths.
    is_exception: bool,
    /// The expression of which it is a part.
    within: Option<Paths>,
    /// It is a condition for all paths, before all that come later.
    is_general: bool,
}

/// Most regions of a site that follow from several others.
const MAX_COMMON: usize = 2_000;

/// Returns the keys of the site and its routes. `evaluate` returns the complete settings of a region.
pub(crate) fn routes(
    regions: &[Region],
    mut evaluate: impl FnMut(&Region) -> Settings,
) -> (Keys, Vec<Route>) {
    let whole = Region { comment: String::new(), paths: Paths::All, when: None };
    let base = evaluate(&whole).keys;
    let mut spots: Vec<Spot> = Vec::new();
    for (at, region) in regions.iter().enumerate() {
        // Those of one line are one route.
        let first = regions.iter().position(|other| other.comment == region.comment);
        add((region.clone(), first.unwrap_or(at), None), &mut spots, &mut evaluate);
    }
    everywhere(&mut spots, &mut evaluate);
    before_expressions(&mut spots);
    for region in common(&spots) {
        add(region, &mut spots, &mut evaluate);
    }
    let mut writer = Writer { base, spots, routes: Vec::new() };
    writer.write();
    (writer.base, writer.routes.into_iter().map(|(_, route)| route).collect())
}

fn add(
    (region, at, within): (Region, usize, Option<Paths>),
    spots: &mut Vec<Spot>,
    evaluate: &mut impl FnMut(&Region) -> Settings,
) {
    let is_known = |spot: &Spot| {
        spot.region.paths == region.paths && spot.region.when == region.when && !spot.is_exception
    };
    if region.paths == Paths::All && region.when.is_none() || spots.iter().any(is_known) {
        return;
    }
    let settings = evaluate(&region);
    if let Paths::Regex(Expression { except: Some(except), .. }) = &region.paths {
        let expression = Expression { text: except.clone(), except: None };
        let comment = format!("{}: not these", region.comment);
        let region = Region { comment, paths: Paths::Regex(expression), when: region.when.clone() };
        let without = evaluate(&region);
        let end = settings.end;
        let settings = Settings { keys: without.keys, end };
        spots.push(Spot {
            region,
            settings,
            at,
            is_exception: true,
            within: None,
            is_general: false,
        });
    }
    spots.push(Spot { region, settings, at, is_exception: false, within, is_general: false });
}

/// A pattern whose rule comes before that of an expression is an expression, too: these are more specific.
fn before_expressions(spots: &mut [Spot]) {
    let regexes: Vec<(Paths, usize)> = spots
        .iter()
        .filter(|spot| matches!(spot.region.paths, Paths::Regex(_)))
        .map(|spot| (spot.region.paths.clone(), spot.settings.end))
        .collect();
    for spot in spots {
        let is_first = regexes.iter().any(|(paths, end)| {
            spot.settings.end < *end
                && spot.region.paths.may_meet(paths)
                && !spot.region.paths.contains(paths)
        });
        if let (Paths::Pattern(before, behind), true) = (&spot.region.paths, is_first) {
            let text = match behind.as_str() {
                "" => of_prefix(before),
                behind => format!("{}.*{}$", of_prefix(before), regex::escape(behind)),
            };
            let uses_rest = spot.settings.keys.iter().any(|(_, value)| uses_rest(value));
            let text = if uses_rest { format!("{text}(.*)$") } else { text };
            spot.region.paths = Paths::Regex(Expression { text, except: None });
        }
    }
}

fn uses_rest(value: &Value) -> bool {
    value.to_string().contains("{rest}")
}

/// Returns the regions that are in several others.
fn common(spots: &[Spot]) -> Vec<(Region, usize, Option<Paths>)> {
    let mut found = Vec::new();
    for (index, one) in spots.iter().enumerate() {
        for other in &spots[index + 1..] {
            let has_condition = one.region.when.is_some() || other.region.when.is_some();
            let is_nested = one.region.paths.contains(&other.region.paths)
                || other.region.paths.contains(&one.region.paths);
            let has_general = one.is_general || other.is_general;
            if is_nested && !has_condition || has_general || found.len() >= MAX_COMMON {
                continue;
            }
            let Some(paths) = one.region.paths.and(&other.region.paths) else { continue };
            let when = match (&one.region.when, &other.region.when) {
                (Some(one), Some(other)) => both(one, other).ok(),
                (one, other) => one.clone().or_else(|| other.clone()),
            };
            if has_condition && when.is_none() {
                continue;
            }
            let narrow = if paths == one.region.paths { one } else { other };
            let (at, comment) = (one.at.max(other.at), narrow.region.comment.clone());
            let comment = match (&one.region.when, &other.region.when) {
                (Some(_), None) if narrow.at == other.at => {
                    format!("{comment}, {}", one.region.comment)
                }
                (None, Some(_)) if narrow.at == one.at => {
                    format!("{comment}, {}", other.region.comment)
                }
                _ => comment,
            };
            let is_new = |part: &&Spot| {
                matches!(part.region.paths, Paths::Regex(_)) && part.region.paths != paths
            };
            let within = [one, other].into_iter().find(is_new);
            let within = within.map(|part| part.region.paths.clone());
            found.push((Region { comment, paths, when }, at, within));
        }
    }
    found
}

/// A condition for all paths whose settings are the same everywhere is an expression in place of one route for each path.
fn everywhere(spots: &mut [Spot], evaluate: &mut impl FnMut(&Region) -> Settings) {
    let is_general = |spot: &&Spot| {
        let has_end = spot.settings.end < usize::MAX;
        spot.region.paths == Paths::All && spot.region.when.is_some() && has_end
    };
    let general: Vec<Spot> = spots.iter().filter(is_general).cloned().collect();
    for general in general {
        let mut is_same = |spot: &Spot| {
            let (Some(own), other) = (&general.region.when, &spot.region.when) else {
                return false;
            };
            let when = match other {
                Some(other) => both(own, other),
                None => Ok(own.clone()),
            };
            // Conditions that exclude each other have no common requests.
            let Ok(when) = when else { return true };
            let region = Region { when: Some(when), ..spot.region.clone() };
            let settings = evaluate(&region);
            settings.end != general.settings.end || settings == general.settings
        };
        let others = spots.iter().filter(|spot| spot.region != general.region);
        if others.clone().count() == 0 || !others.clone().all(&mut is_same) {
            continue;
        }
        let has_rest = general.settings.keys.iter().any(|(_, value)| uses_rest(value));
        let text = if has_rest { "^/(.*)$" } else { "^/" };
        for spot in spots.iter_mut() {
            if spot.region == general.region {
                spot.region.paths = Paths::Regex(Expression { text: text.into(), except: None });
                spot.is_general = true;
            } else if let Paths::Exact(path) = &spot.region.paths
                && spot.settings.end > general.settings.end
            {
                // A path without `*` would come before the expression.
                let text = format!("{}$", of_prefix(path));
                spot.region.paths = Paths::Regex(Expression { text, except: None });
            }
        }
    }
}

struct Writer {
    base: Keys,
    spots: Vec<Spot>,
    /// With the positions of the spots.
    routes: Vec<(usize, Route)>,
}

impl Writer {
    fn write(&mut self) {
        let rank = |spot: &Spot| {
            let order = usize::MAX - spot.settings.end;
            let (order, start) = match &spot.region.paths {
                Paths::Regex(regex) => (order, regex.whole_prefix().len()),
                _ => (0, 0),
            };
            let is_exception = usize::from(spot.is_exception);
            let conditions = conditions(spot.region.when.as_ref());
            (spot.region.paths.rank(), order, start, conditions, is_exception)
        };
        // Later ones are overridden by earlier ones.
        self.spots.sort_by_key(|spot| (rank(spot), std::cmp::Reverse(spot.at)));
        let spots = self.spots.clone();
        let mut written: Vec<(Spot, Keys)> = Vec::new();
        for spot in &spots {
            if let Some(keys) = self.keys_of(spot, &written) {
                self.push(spot, keys.clone());
                written.push((spot.clone(), keys));
            }
        }
        let is_regex = |route: &Route| matches!(route.matching, Matching::Regex(_));
        // The first expression that matches applies.
        let mut regexes: Vec<(usize, Route)> =
            self.routes.extract_if(.., |(_, route)| is_regex(route)).collect();
        regexes.reverse();
        self.routes.sort_by_key(|(at, _)| *at);
        self.routes.append(&mut regexes);
    }

    /// Returns the keys of the route of a region; `None` if it inherits all that it needs.
    fn keys_of(&self, spot: &Spot, written: &[(Spot, Keys)]) -> Option<Keys> {
        let mut inherited = self.base.clone();
        let mut others = Vec::new();
        let mut of_whole = None;
        let is_regex = matches!(spot.region.paths, Paths::Regex(_));
        for (other, keys) in written {
            let is_other_regex = is_regex
                && matches!(other.region.paths, Paths::Regex(_))
                && other.region.paths != spot.region.paths;
            if is_other_regex {
                let is_whole = spot.within.as_ref() == Some(&other.region.paths)
                    && implies(spot.region.when.as_ref(), other.region.when.as_ref());
                of_whole = if is_whole { Some(keys) } else { of_whole };
                continue;
            }
            if other.region.contains(&spot.region) {
                inherited.overlay(keys);
            } else if is_regex
                && spot.settings.end < usize::MAX
                && !other.region.paths.contains(&spot.region.paths)
                && other.region.paths.may_meet(&spot.region.paths)
            {
                let mut settings = inherited.clone();
                settings.overlay(keys);
                others.push(settings);
            }
        }
        let root = self.base.get("root").cloned();
        let mut keys = match spot.is_exception {
            true => over(&spot.settings.keys, &inherited, root.as_ref()),
            false => over_all(&spot.settings.keys, &inherited, &others, root.as_ref()),
        };
        if inherited.get("alias").is_some()
            && spot.settings.keys.get("alias").is_none()
            && let Some(root) = spot.settings.keys.get("root")
        {
            keys.set("root", root.clone());
        }
        if let Some(whole) = of_whole {
            let mut inherited = inherited.clone();
            inherited.overlay(whole);
            if over(&spot.settings.keys, &inherited, root.as_ref()).is_empty() {
                return None;
            }
        }
        let is_needed = spot.is_exception || !keys.is_empty();
        is_needed.then_some(keys)
    }

    /// Adds a route, or its paths to one that is the same otherwise.
    fn push(&mut self, spot: &Spot, keys: Keys) {
        let region = &spot.region;
        let is_same = |route: &Route| {
            route.when == region.when
                && route.keys == keys
                && !keys.iter().any(|(_, value)| uses_rest(value))
                && keys.get("alias").is_none()
                && keys.get("script").is_none()
                && keys
                    .get("proxy")
                    .is_none_or(|proxy| proxy.get("strip").is_some() || !has_path(proxy))
        };
        if let (Matching::Paths(paths), Some(same)) = (
            region.paths.matching(),
            self.routes.iter_mut().find(|(at, route)| *at == spot.at && is_same(route)),
        ) && let Matching::Paths(known) = &mut same.1.matching
        {
            known.extend(paths);
            known.sort_by_key(|path| path.contains('*'));
            return;
        }
        let (comment, when) = (region.comment.clone(), region.when.clone());
        let route = Route { comment, matching: region.paths.matching(), when, keys };
        self.routes.push((spot.at, route));
    }
}

/// Returns `true` if a URL of an upstream has a path.
fn has_path(proxy: &Value) -> bool {
    match proxy {
        Value::Text(url) => url.matches('/').count() > 2 && !url.starts_with("unix:"),
        Value::List(upstreams) => upstreams.iter().any(has_path),
        table => table.get("to").or(table.get("url")).is_some_and(has_path),
    }
}

/// Returns the number of conditions.
fn conditions(when: Option<&Value>) -> usize {
    let count = |value: &Value| match value {
        Value::Table(entries) => entries.len(),
        _ => 1,
    };
    when.map_or(0, |when| when.entries().iter().map(|(_, value)| count(value)).sum())
}
