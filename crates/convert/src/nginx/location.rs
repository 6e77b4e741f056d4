//! The complete settings of a location.

use super::assemble::{Draft, Paths};
use super::flow::Rest;
use super::parse::Directive;
use super::scope::Scope;
use super::server::{Builder, Location};
use super::units::{shown_size, size};
use crate::keys::Keys;
use crate::value::Value;

/// The directives that pass requests on, with the prefix of those that belong to each.
const PASSES: [(&str, &str); 6] = [
    ("proxy_pass", "proxy"),
    ("grpc_pass", "grpc"),
    ("fastcgi_pass", "fastcgi"),
    ("uwsgi_pass", "uwsgi"),
    ("scgi_pass", "scgi"),
    ("memcached_pass", "memcached"),
];

/// A GIF of one transparent pixel.
const PIXEL: &str = "R0lGODlhAQABAIABAAAAAP///yH5BAEAAAEALAAAAAABAAEAAAICTAEAOw==";

/// Returns the pass of a level, and the prefix of the directives that belong to it.
pub(super) fn passes<'t>(scope: &Scope<'t>) -> Option<(&'t Directive, &'static str)> {
    PASSES.iter().find_map(|(name, kind)| Some((scope.own_directive(name)?, *kind)))
}

impl<'t> Builder<'_, 't> {
    /// Returns the settings of a location after its rewriting. `rest` is what that leaves to do.
    pub(super) fn settings_after(
        &mut self,
        scope: &Scope<'t>,
        paths: &Paths,
        rest: &Rest<'t>,
    ) -> Keys {
        let mut keys = Keys::default();
        self.common(scope, &mut keys);
        self.access(scope, &mut keys);
        self.limits(scope, &mut keys);
        self.body_size(scope, &mut keys);
        self.links(scope, &mut keys);
        if let Some(internal) = scope.own_directive("internal") {
            self.context.report.carried(internal);
            keys.set("internal", Value::Switch(true));
        }
        match (rest.pass.or_else(|| passes(scope)), scope.own_directive("stub_status")) {
            (Some((pass, kind)), _) => self.pass(pass, kind, scope, paths, rest, &mut keys),
            (None, Some(status)) => self.status(status, &mut keys),
            (None, None) if scope.own_directive("empty_gif").is_some() => {
                self.empty_gif(scope, &mut keys);
            }
            (None, None) => {
                self.files(scope, paths, rest, &mut keys);
                self.webdav(scope, &mut keys);
            }
        }
        keys
    }

    /// Passes requests on to an upstream or an application.
    pub(super) fn pass(
        &mut self,
        pass: &'t Directive,
        kind: &str,
        scope: &Scope<'t>,
        paths: &Paths,
        rest: &Rest<'t>,
        keys: &mut Keys,
    ) {
        match kind {
            "proxy" | "grpc" => self.proxy(pass, kind, scope, paths, rest, keys),
            "memcached" => {
                self.context
                    .report
                    .lost(pass, "memcached is not a source of responses: the response is 404");
                keys.set("respond", Value::table([("status", Value::Number(404))]));
            }
            _ => self.script(pass, kind, scope, (paths, rest), keys),
        }
        self.response_cache(kind, scope, keys);
    }

    /// What holds for responses of every kind.
    pub(super) fn common(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        self.fields(scope, keys);
        self.error_pages(scope, keys);
        self.access_log(scope, keys);
        self.bodies(scope, keys);
        self.unsupported(scope);
    }

    fn body_size(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        let Some(directive) = scope.get("client_max_body_size") else { return };
        match size(directive.word(0)) {
            Some(bytes) => {
                self.context.report.carried(directive);
                let value = if bytes == 0 { "unlimited".to_owned() } else { shown_size(bytes) };
                if bytes != 1 << 20 {
                    keys.set("body_size", Value::text(value));
                }
            }
            None => self
                .context
                .report
                .lost(directive, "the size depends on the request; a body may have 1 MiB"),
        }
    }

    fn status(&mut self, directive: &'t Directive, keys: &mut Keys) {
        self.context.report.carried(directive);
        keys.set("status", Value::table([("format", Value::text("nginx"))]));
    }

    /// `empty_gif`: an image of one transparent pixel.
    fn empty_gif(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        scope
            .own_directive("empty_gif")
            .into_iter()
            .for_each(|gif| self.context.report.carried(gif));
        let mut respond = Value::table([
            ("base64", Value::text(PIXEL)),
            ("content_type", Value::text("image/gif")),
        ]);
        respond.set("methods", Value::list(["GET", "HEAD"]));
        keys.set("respond", respond);
        self.caching_of_fixed(scope, keys);
    }

    /// Directives that belong to others.
    fn unsupported(&mut self, scope: &Scope<'t>) {
        let of_others = [
            "sub_filter_last_modified",
            "ssi_last_modified",
            "ssi_min_file_chunk",
            "ssi_silent_errors",
            "ssi_value_length",
        ];
        for name in of_others {
            for directive in scope.all(&[name]) {
                self.context
                    .report
                    .not_needed(directive, "it belongs to a directive that is judged by itself");
            }
        }
    }

    /// `limit_except`: other methods than these have rules of access of their own.
    pub(super) fn limited_methods(&mut self, location: &Location<'t>) -> Vec<Draft> {
        let Some(limit) = location.scope.own_directive("limit_except") else { return Vec::new() };
        self.context.report.carried(limit);
        let inner = location.scope.within(limit.children());
        let mut access = Keys::default();
        self.access(&inner, &mut access);
        let flow_rest = Rest::default();
        let mut keys = self.settings_after(&location.scope, &location.paths, &flow_rest);
        for key in ["allow", "deny", "auth", "any", "signed"] {
            match access.get(key) {
                Some(value) => keys.set(key, value.clone()),
                None => drop(keys.remove(key)),
            }
        }
        let methods =
            Value::one_or_many(limit.words.iter().map(|word| word.to_ascii_uppercase()).collect());
        let when = Value::table([("not", Value::table([("method", methods)]))]);
        let comment = format!("{}: limit_except", limit.place.short());
        vec![Draft::new(comment, location.paths.clone(), Some(when), keys)]
    }
}
