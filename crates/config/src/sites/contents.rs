//! What the routes of a site have: directories, scripts, logs and limits.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Site;
use crate::access_log::AccessLog;
use crate::file::{ScriptKind, ScriptTable};
use crate::handler::HandlerKey;
use crate::object_root::ObjectRoot;
use crate::script::Mapping;
use crate::settings::{RouteLog, Settings};
use crate::site_route::SiteRoute;
use crate::spanned::Span;
use crate::units::SizeLimit;

impl Site {
    /// Returns the directories of warm scripts, and the `PATH` of their environment if the file sets it.
    pub fn warm_scripts(&self) -> impl Iterator<Item = (&Path, Option<&str>)> {
        let scripts = self.routes.iter().filter_map(|route| route.route.script.as_deref());
        scripts.filter(|script| script.kind.value == ScriptKind::Warm).filter_map(|script| {
            let mut variables = script.env.iter().flat_map(|env| &env.value);
            let path = variables.find(|(name, _)| name.value == "PATH");
            let directory = script.file.as_ref().or(script.directory.as_ref())?;
            Some((directory.as_path(), path.map(|(_, value)| value.value.as_str())))
        })
    }

    /// Returns `true` if a route has the server's status.
    pub(crate) fn shows_status(&self) -> bool {
        self.routes.iter().any(|route| route.route.handler_key() == Some(HandlerKey::Status))
    }

    /// Returns the tables of its scripts.
    pub(crate) fn scripts(&self) -> impl Iterator<Item = &ScriptTable> {
        self.routes.iter().filter_map(|route| Some(&route.route.script.as_ref()?.value))
    }

    /// Returns the directories of its files and scripts.
    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        self.all_settings().flat_map(|settings| {
            let others = settings.sendfile_roots.iter().map(|other| &*other.root);
            let scripts = settings.handler.script().into_iter();
            let scripts = scripts.filter(|script| script.mapping != Mapping::Program);
            let scripts = scripts.map(|script| &*script.directory);
            let root = Some(&*settings.root).filter(|_| settings.objects.is_none());
            root.into_iter().chain(others).chain(scripts)
        })
    }

    /// Returns the roots of its files that are in object storage.
    pub fn object_roots(&self) -> impl Iterator<Item = &Arc<ObjectRoot>> {
        let all = self.table.values().chain(self.special_routes());
        all.filter_map(|settings| settings.objects.as_ref())
    }

    fn all_settings(&self) -> impl Iterator<Item = &Arc<Settings>> {
        let of_routes = self.routes.iter().map(|route| self.settings_of(route));
        of_routes.chain([self.table.find_by_pattern(b"/")])
    }

    /// Returns the directories in which converted files are written beside their sources.
    pub(crate) fn roots_with_records(&self) -> Vec<PathBuf> {
        let all = self.routes.iter().map(|route| self.settings_of(route));
        let written = |settings: &&Arc<Settings>| settings.records.is_some_and(|rules| rules.write);
        all.filter(written).map(|settings| settings.root.clone()).collect()
    }

    /// Returns the directories whose files clients can change.
    pub(crate) fn roots_with_dav(&self) -> Vec<PathBuf> {
        let changed = self.all_settings().filter(|settings| settings.dav.is_some());
        changed.map(|settings| settings.root.clone()).collect()
    }

    /// Returns `true` if responses of a route are cached.
    pub fn caches_responses(&self) -> bool {
        let mut all = self.table.values().chain(self.special_routes());
        all.any(|settings| settings.cache.responses.is_some())
    }

    /// Returns `true` if dictionaries of a route are kept.
    pub fn keeps_dictionaries(&self) -> bool {
        let mut all = self.table.values().chain(self.special_routes());
        all.any(|settings| settings.dictionary.is_some() || settings.page_dictionary.is_some())
    }

    /// Returns the access logs of its routes; some occur more than once.
    pub fn access_logs(&self) -> impl Iterator<Item = &Arc<AccessLog>> {
        let all = self.table.values().chain(self.special_routes());
        all.filter_map(|settings| match &settings.access_log {
            RouteLog::Own(log) => Some(log),
            RouteLog::Off | RouteLog::Server => None,
        })
    }

    /// Returns the routes that redirect: a path that each matches, and its position in the file.
    pub fn redirects(&self) -> impl Iterator<Item = (Vec<u8>, &Span)> {
        self.routes.iter().filter(|route| route.is_plain()).filter_map(|route| {
            let place = &route.route.redirect.as_ref()?.span;
            Some((route.pattern.example(), place))
        })
    }

    /// Returns the largest limited `body_size` of its routes.
    pub fn largest_body(&self) -> Option<u64> {
        let sizes = self.routes.iter().filter_map(|route| Some(*route.route.body_size.as_deref()?));
        sizes.filter(|size| *size != SizeLimit::UNLIMITED).map(|size| size.0).max()
    }

    /// Returns the tables of its scripts with their names: site, route and kind.
    pub(crate) fn named_scripts(&self) -> impl Iterator<Item = (&ScriptTable, String)> {
        self.routes.iter().filter_map(|SiteRoute { route, name, .. }| {
            let script = &route.script.as_ref()?.value;
            let kind = script.kind.value.as_str();
            Some((script, format!("{} {} ({kind})", self.name, name.value)))
        })
    }

    /// Returns names and tables of the scripts whose processes the server starts.
    pub(crate) fn scripts_started_here(&self) -> impl Iterator<Item = (String, &ScriptTable)> {
        self.routes.iter().filter_map(|SiteRoute { route, name, .. }| {
            let script = &route.script.as_ref()?.value;
            let name = || format!("{} {} ({})", self.name, name.value, script.kind.value.as_str());
            let starts = script.connect.is_none() && !script.kind.is_component();
            starts.then(|| (name(), script))
        })
    }
}
