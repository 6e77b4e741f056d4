//! `mod_expires`.

use super::builder::{Builder, comment};
use super::scope::Scope;
use crate::directive::Directive;
use crate::keys::Keys;
use crate::model::{Matching, Route};
use crate::regions::{Paths, Region};
use crate::units::shown_time;
use crate::value::Value;

/// Extensions of files by media type.
const EXTENSIONS: [(&str, &[&str]); 41] = [
    ("text/html", &["*.html", "*.htm", "*/"]),
    ("text/css", &["*.css"]),
    ("text/javascript", &["*.js", "*.mjs"]),
    ("application/javascript", &["*.js", "*.mjs"]),
    ("application/x-javascript", &["*.js", "*.mjs"]),
    ("text/x-javascript", &["*.js", "*.mjs"]),
    ("text/plain", &["*.txt"]),
    ("text/xml", &["*.xml"]),
    ("application/xml", &["*.xml"]),
    ("application/json", &["*.json"]),
    ("application/ld+json", &["*.jsonld"]),
    ("application/manifest+json", &["*.webmanifest"]),
    ("application/rss+xml", &["*.rss"]),
    ("application/atom+xml", &["*.atom"]),
    ("application/pdf", &["*.pdf"]),
    ("application/zip", &["*.zip"]),
    ("application/wasm", &["*.wasm"]),
    ("application/x-shockwave-flash", &["*.swf"]),
    ("application/vnd.ms-fontobject", &["*.eot"]),
    ("application/font-woff", &["*.woff"]),
    ("application/font-woff2", &["*.woff2"]),
    ("application/x-font-woff", &["*.woff"]),
    ("application/x-font-ttf", &["*.ttf"]),
    ("font/woff", &["*.woff"]),
    ("font/woff2", &["*.woff2"]),
    ("font/ttf", &["*.ttf"]),
    ("font/otf", &["*.otf"]),
    ("font/opentype", &["*.otf"]),
    ("font/eot", &["*.eot"]),
    ("image/jpeg", &["*.jpg", "*.jpeg"]),
    ("image/jpg", &["*.jpg", "*.jpeg"]),
    ("image/png", &["*.png"]),
    ("image/gif", &["*.gif"]),
    ("image/webp", &["*.webp"]),
    ("image/avif", &["*.avif"]),
    ("image/svg+xml", &["*.svg", "*.svgz"]),
    ("image/x-icon", &["*.ico", "*.cur"]),
    ("image/vnd.microsoft.icon", &["*.ico", "*.cur"]),
    ("video/mp4", &["*.mp4", "*.m4v"]),
    ("video/webm", &["*.webm"]),
    ("audio/mpeg", &["*.mp3"]),
];

impl<'t> Builder<'_, 't> {
    /// Sets the lifetime of all files of a region.
    pub(super) fn lifetime(&mut self, scope: &Scope<'t>, keys: &mut Keys) {
        let control = keys.get("cache_control").cloned();
        if !self.is_active(scope) {
            return;
        }
        let Some(directive) = scope.get("ExpiresDefault") else { return };
        if let Some(lifetime) = self.time_of(directive, &directive.words) {
            match control {
                Some(Value::Text(control)) if !control.contains("max-age") => {
                    keys.set(
                        "cache_control",
                        Value::text(format!("{control}, max-age={}", lifetime / 1000)),
                    );
                }
                Some(_) => {}
                None => set(lifetime, keys),
            }
        }
    }

    fn is_active(&mut self, scope: &Scope<'t>) -> bool {
        if let Some(active) = scope.get("ExpiresActive") {
            self.context.report.carried(active);
        }
        scope.is_on("ExpiresActive")
    }

    /// Returns the time in milliseconds.
    fn time_of(&mut self, directive: &'t Directive, words: &[String]) -> Option<u64> {
        let text = words.join(" ").to_ascii_lowercase();
        let time = time(&text);
        match time {
            Some(_) => {
                let what = "files have the lifetime, and responses of applications their own";
                self.context.report.differs(directive, what);
            }
            None => {
                self.context.report.lost(directive, format!("{text}: responses have no lifetime"));
            }
        }
        time
    }

    /// Adds routes for the files whose types have a lifetime.
    pub(super) fn lifetimes(&mut self, site: &mut Keys, routes: &mut Vec<Route>) {
        let region = Region { comment: String::new(), paths: Paths::All, when: None };
        let scope = self.scope(&region, true);
        if !self.is_active(&scope) {
            return;
        }
        let mut found: Vec<(u64, Vec<String>, String)> = Vec::new();
        let mut seen: Vec<&str> = Vec::new();
        // The last one of a type applies.
        let mut all: Vec<_> = scope.all(&["ExpiresByType"]).collect();
        all.reverse();
        for directive in all {
            let kind = directive.word(0).to_ascii_lowercase();
            let known = EXTENSIONS.iter().find(|(name, _)| *name == kind);
            let Some(lifetime) = self.time_of(directive, &directive.words[1..]) else { continue };
            let Some((_, patterns)) = known else {
                self.context.report.differs(directive, "no files are of this type");
                continue;
            };
            let new: Vec<&str> =
                patterns.iter().copied().filter(|pattern| !seen.contains(pattern)).collect();
            seen.extend(&new);
            let new = new.into_iter().map(str::to_owned);
            match found.iter_mut().find(|(other, ..)| *other == lifetime) {
                Some((_, patterns, _)) => patterns.extend(new),
                None => found.push((lifetime, new.collect(), comment(directive))),
            }
        }
        let default = scope
            .get("ExpiresDefault")
            .and_then(|directive| time(&directive.words.join(" ").to_ascii_lowercase()));
        found.reverse();
        for (lifetime, mut patterns, comment) in found {
            if default == Some(lifetime) && site.get("expires").is_some() || patterns.is_empty() {
                continue;
            }
            patterns.reverse();
            for route in routes.iter_mut().filter(|route| route.when.is_none()) {
                let Matching::Paths(paths) = &route.matching else { continue };
                if paths.iter().all(|path| patterns.contains(path)) {
                    patterns.retain(|pattern| !paths.contains(pattern));
                    if route.keys.get("expires").is_none()
                        && route.keys.get("cache_control").is_none()
                    {
                        set(lifetime, &mut route.keys);
                    }
                }
            }
            let mut keys = Keys::default();
            set(lifetime, &mut keys);
            if let Some(Value::Text(control)) = site.get("cache_control") {
                // A route that sets the one key does not inherit the other.
                let max_age = format!("{control}, max-age={}", lifetime / 1000);
                keys.set(
                    "cache_control",
                    Value::text(if control.contains("max-age") {
                        control.clone()
                    } else {
                        max_age
                    }),
                );
            }
            if !patterns.is_empty() {
                routes.push(Route {
                    comment,
                    matching: Matching::Paths(patterns),
                    when: None,
                    keys,
                });
            }
        }
    }
}

fn set(lifetime: u64, keys: &mut Keys) {
    match lifetime {
        0 => keys.set("cache_control", Value::text("max-age=0")),
        lifetime => keys.set("expires", Value::text(shown_time(lifetime))),
    }
}

/// Returns a time after the access in milliseconds: `access plus 1 month`, `A2592000`.
fn time(text: &str) -> Option<u64> {
    let text = text.trim_matches('"').trim();
    if let Some(seconds) = text.strip_prefix('a').and_then(|seconds| seconds.parse::<u64>().ok()) {
        return seconds.checked_mul(1000).filter(|time| *time <= 1_000_000_000_000);
    }
    let mut words = text.split_whitespace().peekable();
    if !matches!(words.next()?, "access" | "now") {
        return None;
    }
    words.next_if_eq(&"plus");
    let mut total = 0_u64;
    while let Some(number) = words.next() {
        let number: u64 = number.parse().ok()?;
        let unit = match words.next()?.trim_end_matches('s') {
            "second" => 1,
            "minute" => 60,
            "hour" => 3_600,
            "day" => 86_400,
            "week" => 7 * 86_400,
            "month" => 30 * 86_400,
            "year" => 365 * 86_400,
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(unit * 1000)?)?;
    }
    (total <= 1_000_000_000_000).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_have_two_forms() {
        for (text, seconds) in [
            ("access plus 1 month", Some(2_592_000)),
            ("a3600", Some(3_600)),
            ("access 1 year", Some(31_536_000)),
            ("access plus 1 month 15 days 2 hours", Some(3_895_200)),
            ("access plus 0 seconds", Some(0)),
            ("modification plus 1 hour", None),
        ] {
            assert_eq!(time(text), seconds.map(|seconds| seconds * 1000), "{text}");
        }
    }
}
