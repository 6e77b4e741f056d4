//! Why a URL is served as it is.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use dunlin_http::semantics::{Method, host, path, target};

use super::cascade::gather;
use super::error::Source;
use super::sites::{Site, SiteRoute};
use super::{Config, Mapping, Records, Script, Settings, TryStep, push_query};
use crate::handler::records::RecordFormat;

/// Tells which site and which routes hold for `url`, what each setting comes from, and what is
/// the response is. A path alone is a request for no host in particular. `all`: settings at their defaults are listed,
/// too.
///
/// # Errors
/// When `url` is neither a path nor an http URL.
pub fn explain(config: &Config, file: &Path, url: &str, all: bool) -> Result<String, String> {
    let malformed = || format!("{url:?} is neither a path nor an http URL");
    let (authority, raw_path, query) = match target::parse(Method::Get, url.as_bytes()) {
        Ok(target::Target::Origin { path, query }) => (&b""[..], path, query),
        Ok(target::Target::Absolute { authority, path, query, .. }) => (authority, path, query),
        _ => return Err(malformed()),
    };
    let host = host::parse(authority).ok_or_else(malformed)?.name;
    let mut text = String::new();
    let Some(site) = config.sites.find(host) else {
        let host = String::from_utf8_lossy(host);
        return Ok(format!("no site is for the host {host:?}, and none for every other: 421\n"));
    };
    let by = match config.sites.named(host) {
        Some((_, true)) => "by a wildcard",
        Some((_, false)) => "by its host",
        None => "it is for every other host",
    };
    let _ = writeln!(text, "site      {} ({by})", site.name);
    if let Some(tls) = &site.tls {
        let _ = writeln!(text, "tls       {}", tls.describe());
    }
    let mut decoded = Vec::new();
    if let Err(error) = path::decode(raw_path, &mut decoded) {
        let status = if error == path::PathError::EncodedSlash { 404 } else { 400 };
        let _ = writeln!(text, "path      rejected with {status}: {}", reason(error));
        return Ok(text);
    }
    let _ = writeln!(text, "path      {}", String::from_utf8_lossy(&decoded));
    let explanation = Explanation {
        source: &Source { path: file, text: &config.text },
        site,
        settings: site.route(&decoded),
        path: &decoded,
        query,
        host,
    };
    explanation.routes(&mut text);
    explanation.settings(all, &mut text);
    explanation.answer(&mut text);
    Ok(text)
}

struct Explanation<'a> {
    source: &'a Source<'a>,
    site: &'a Site,
    settings: &'a Settings,
    path: &'a [u8],
    query: Option<&'a [u8]>,
    host: &'a [u8],
}

impl Explanation<'_> {
    fn routes(&self, text: &mut String) {
        for route in &self.site.routes {
            let verdict =
                if route.pattern.matches(self.path) { "matches" } else { "does not match" };
            let _ = writeln!(text, "route     {} {verdict}", self.origin(route, None));
        }
    }

    /// Every setting that holds, those of routes first.
    fn settings(&self, all: bool, text: &mut String) {
        let mut origins: Vec<(&str, String)> = Vec::new();
        let matching = self.site.routes.iter().filter(|route| route.pattern.matches(self.path));
        let gathered = gather(matching, |route, key| {
            let origin = self.origin(route, Some(key));
            match origins.iter_mut().find(|(other, _)| *other == key) {
                // Of these every route's entries count.
                Some((_, origins)) if ADDED_UP.contains(&key) => {
                    *origins = format!("{origins} and {origin}");
                }
                Some((_, origins)) => *origins = origin,
                None => origins.push((key, origin)),
            }
        });
        // What a more specific route has ended is not in force.
        origins.retain(|(key, _)| gathered.route.place(key).is_some());
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
        // Beside what the file says, the root is what matters.
        for (key, value, _) in defaults.iter().filter(|(key, value, _)| {
            let is_root = *key == "root";
            !value.is_empty() && (all || is_root) && (!is_root || answers_with_files(self.settings))
        }) {
            let from = if *key == "root" { "from the site" } else { "by default" };
            let _ = writeln!(text, "setting   {key} {from}: {value}");
        }
    }

    /// The pattern of a route and the place of one of its keys.
    fn origin(&self, route: &SiteRoute, key: Option<&str>) -> String {
        let path = &route.route.path;
        let place = key.and_then(|key| route.route.place(key)).or(path.span.as_ref());
        match self.source.line(place) {
            Some(line) => format!("{} ({}:{line})", path.value, self.source.path.display()),
            None => path.value.clone(),
        }
    }

    fn answer(&self, text: &mut String) {
        if self.settings.internal {
            let _ = writeln!(text, "answer    404 to clients; to scripts that name the path:");
        }
        if self.settings.to_slash {
            let path = path::encode(self.path);
            let _ = writeln!(text, "answer    301 to {path}/");
        } else if let Some(redirect) = &self.settings.redirect {
            let location = redirect.to.render(|name, text| match name {
                "path" => text.extend_from_slice(path::encode(self.path).as_bytes()),
                "rest" => {
                    text.extend_from_slice(path::encode(redirect.rest(self.path)).as_bytes());
                }
                "host" => text.extend_from_slice(self.host),
                "query" => push_query(self.query, text),
                _ => {}
            });
            let location = String::from_utf8_lossy(&location);
            let _ = writeln!(text, "answer    {} to {location}", redirect.status);
        } else if let Some(respond) = &self.settings.respond {
            let bytes = respond.body.len();
            let _ = writeln!(text, "answer    {} with {bytes} bytes of text", respond.status);
        } else if self.settings.status.is_some() {
            let _ = writeln!(text, "answer    the server's status");
        } else if let Some(script) = &self.settings.script {
            let label = &script.label;
            let is_one = matches!(script.mapping, Mapping::Application | Mapping::Program);
            let _ = if is_one {
                writeln!(text, "answer    by {label}")
            } else {
                let name = String::from_utf8_lossy(script.rest(self.path));
                writeln!(text, "answer    the script that {name:?} names in {label}")
            };
        } else if !self.settings.hidden && path::has_hidden_segment(self.path) {
            let _ = writeln!(text, "answer    404: a name begins with a dot, and `hidden` is off");
        } else if self.settings.try_files.is_empty() {
            self.candidate(self.path, text);
        } else {
            for (at, step) in self.settings.try_files.iter().enumerate() {
                let is_last = at + 1 == self.settings.try_files.len();
                let found = match step {
                    TryStep::Path(step) => match step.expand(self.path, self.query) {
                        Some(found) if is_last && self.is_of_other_route(&found.path) => {
                            let path = String::from_utf8_lossy(&found.path);
                            let _ =
                                writeln!(text, "answer    what the route of {path} makes of it");
                            true
                        }
                        Some(found) => self.candidate(&found.path, text),
                        None => false,
                    },
                    TryStep::Status(status) => {
                        let _ = writeln!(text, "answer    {status}");
                        true
                    }
                };
                if found {
                    return;
                }
            }
        }
    }

    /// Whether other settings hold for that path, so that it is routed again.
    fn is_of_other_route(&self, path: &[u8]) -> bool {
        !std::ptr::eq(&**self.site.route(path), self.settings)
    }

    /// Tells what stands at a path beneath the root, and whether anything does. Links are not
    /// judged here: that is done when the file is opened.
    fn candidate(&self, path: &[u8], text: &mut String) -> bool {
        let relative = path.strip_prefix(b"/").unwrap_or(path);
        let place = self.settings.root.join(OsStr::from_bytes(relative));
        let mut tell = |place: &PathBuf, what: &str| {
            let _ = writeln!(text, "answer    the {what} {}", place.display());
        };
        match place.metadata() {
            Ok(found) if found.is_dir() => {
                let index = self.settings.index.iter().map(|name| place.join(name));
                match index.into_iter().find(|file| file.is_file()) {
                    Some(file) => tell(&file, "file"),
                    None if self.settings.listing => tell(&place, "listing of the directory"),
                    None => tell(&place, "directory, which has no index file, is not shown:"),
                }
                true
            }
            Ok(_) => {
                tell(&place, "file");
                true
            }
            Err(error) => {
                let error = error.to_string();
                let error = error.split(" (os error").next().unwrap_or_default();
                let _ = writeln!(text, "answer    404 for {}: {error}", place.display());
                false
            }
        }
    }
}

/// Settings to which each matching route adds its entries.
const ADDED_UP: [&str; 4] = ["error_pages", "remove_fields", "set_fields", "types"];

fn answers_with_files(settings: &Settings) -> bool {
    settings.redirect.is_none()
        && settings.respond.is_none()
        && settings.script.is_none()
        && settings.status.is_none()
}

/// What there is to tell of a script in a line.
fn script(settings: &Settings, script: &Script) -> String {
    let roots = settings.sendfile_roots.iter().map(|root| root.root.display().to_string());
    let roots = roots.collect::<Vec<_>>().join(", ");
    let mut text = script.kind.as_str().to_owned();
    if !roots.is_empty() {
        let _ = write!(text, ", X-Sendfile beneath {roots}");
    }
    if let Some(owner) = &script.owner {
        let user = owner.user.map_or("the server's".to_owned(), |user| user.to_string());
        let _ = write!(text, ", as user {user} and group {}", owner.group);
    }
    text
}

/// Why a path is rejected.
fn reason(error: path::PathError) -> &'static str {
    match error {
        path::PathError::Malformed => "a percent sign is not followed by two hexadecimal digits",
        path::PathError::Nul => "it holds a NUL",
        path::PathError::EncodedSlash => "it holds an encoded slash, which no file name can",
        path::PathError::AboveRoot => "its `..` segments lead above the root",
    }
}

fn records(rules: Records) -> String {
    let format = match rules.format {
        RecordFormat::Variable => "variable".to_owned(),
        RecordFormat::Vfc { control } => format!("vfc, control = {control}"),
    };
    if rules.write { format!("{format}, write = true") } else { format }
}

/// Bytes in the largest unit of which they are a whole number.
fn size(bytes: u64) -> String {
    let units =
        [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("MB", 1_000_000), ("KB", 1000)];
    let unit = units.iter().find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor));
    unit.map_or_else(
        || format!("{bytes} bytes"),
        |(unit, factor)| format!("{} {unit}", bytes / factor),
    )
}

/// Every setting by its key, in the order of the schema; empty when there is nothing to tell.
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
    let mut pages: Vec<_> =
        settings.error_pages.iter().map(|(key, value)| (key.to_string(), value.clone())).collect();
    pages.sort();
    let steps = settings.try_files.len();
    let mut all = vec![
        ("root", settings.root.display().to_string()),
        ("index", settings.index.join(", ")),
        ("try", if steps == 0 { String::new() } else { format!("{steps} steps") }),
        ("listing", settings.listing.to_string()),
        ("serve_source", settings.serve_source.to_string()),
        ("redirect", settings.redirect.as_ref().map_or(String::new(), |r| r.status.to_string())),
        ("respond", settings.respond.as_ref().map_or(String::new(), |r| r.status.to_string())),
        ("script", settings.script.as_ref().map_or(String::new(), |s| script(settings, s))),
        ("status", settings.status.is_some().to_string()),
        ("server_timing", settings.server_timing.to_string()),
        ("early_hints", settings.early_hints.join(", ")),
        ("internal", settings.internal.to_string()),
        ("set_fields", list(&settings.set_fields)),
        ("remove_fields", settings.remove_fields.join(", ")),
        ("cache_control", settings.cache_control.clone().unwrap_or_default()),
        (
            "expires",
            settings.expires.map_or(String::new(), |span| format!("{} s", span.as_secs_f64())),
        ),
        ("charset", settings.charset.clone()),
        ("types", list(&types)),
        ("nosniff", settings.nosniff.to_string()),
        ("compress", codings(&settings.compress)),
        ("compress_size", size(settings.compress_size)),
        ("precompressed", codings(&settings.precompressed)),
        (
            "cache",
            if settings.cache.enabled {
                format!("files up to {} are held whole", size(settings.cache.file))
            } else {
                "off".to_owned()
            },
        ),
        ("sendfile", settings.sendfile.to_string()),
        ("etag", format!("{:?}", settings.etag).to_lowercase()),
        ("records", settings.records.map_or(String::new(), records)),
        ("symlinks", format!("{:?}", settings.symlinks).to_lowercase()),
        ("hidden", settings.hidden.to_string()),
        ("error_pages", list(&pages)),
        ("access_log", settings.access_log.to_string()),
        ("body_size", size(settings.body_size)),
        ("body", format!("{:?}", settings.body).to_lowercase()),
        ("ranges", settings.ranges.to_string()),
    ];
    all.extend(settings.checks.iter().flat_map(|checks| checks.describe()));
    all
}
