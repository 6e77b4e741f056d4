//! The directives of a site, which run for each region of paths.

use super::context::Context;
use super::entry::Entry;
use crate::keys::Keys;
use crate::model::Route;
use crate::regions::{Region, Settings, implies};
use crate::value::Value;

/// Runs the directives of one site.
pub(super) struct Builder<'c, 't> {
    pub(super) context: &'c mut Context,
    pub(super) entries: Vec<Entry<'t>>,
    /// Routes that only error pages lead to.
    pub(super) pages: Vec<Route>,
    /// Pages by status.
    pub(super) error_pages: Value,
}

/// What the directives have done that have run.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) keys: Keys,
    pub(super) root: Option<String>,
    /// What was removed from the path.
    pub(super) strip: Option<String>,
    pub(super) tries: Option<Vec<String>>,
    pub(super) request_fields: Vec<(String, String)>,
    /// The position of the directive that responds.
    pub(super) end: Option<usize>,
}

impl<'t> Builder<'_, 't> {
    /// Returns the complete settings of a region.
    pub(super) fn settings(&mut self, region: &Region) -> Settings {
        let mut state = State::default();
        let entries = std::mem::take(&mut self.entries);
        self.run(&entries, region, &mut state);
        self.entries = entries;
        let mut keys = state.keys;
        if keys.handler().is_none() && keys.get("root").is_none() && keys.get("alias").is_none() {
            // Nothing has responded: Caddy sends an empty page.
            keys.set("respond", Value::table([("status", Value::Number(200))]));
        }
        if !self.error_pages.entries().is_empty() {
            keys.set("error_pages", self.error_pages.clone());
        }
        Settings { keys, end: state.end.unwrap_or(usize::MAX) }
    }

    /// Runs directives until one responds.
    fn run(&mut self, entries: &[Entry<'t>], region: &Region, state: &mut State) {
        let mut is_handled = false;
        for entry in entries.iter().filter(|entry| applies(entry, region)) {
            match entry.directive.name.as_str() {
                "handle" | "handle_path" if is_handled => continue,
                "handle" | "handle_path" => {
                    is_handled = true;
                    self.context.report.carried(entry.directive);
                    let outer = state.strip.clone();
                    if entry.strip.is_some() {
                        state.strip = entry.strip.clone();
                    }
                    self.run(&entry.inner, region, state);
                    if state.end.is_none() {
                        state.strip = outer;
                    }
                    at_outer(entry, state);
                }
                "route" => {
                    self.context.report.carried(entry.directive);
                    self.run(&entry.inner, region, state);
                    at_outer(entry, state);
                }
                _ => self.handler(entry, region, state),
            }
            if state.end.is_some() {
                return;
            }
        }
    }
}

/// What responds within a directive that is for some requests has the position of that directive.
fn at_outer(entry: &Entry<'_>, state: &mut State) {
    if state.end.is_some() && !entry.matcher.is_everything() {
        state.end = Some(entry.at);
    }
}

fn applies(entry: &Entry<'_>, region: &Region) -> bool {
    entry.matcher.paths.iter().any(|paths| paths.contains(&region.paths))
        && implies(region.when.as_ref(), entry.matcher.when.as_ref())
}
