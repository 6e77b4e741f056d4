//! Explains which response a URL gets, by the code that serves requests.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use dunlin_config::{
    Candidate, Config, Facts, Handler, Mapping, Proxy, Script, Settings, Site, explain_settings,
    masked,
};
use dunlin_http::http1::Http1Connection;
use dunlin_http::semantics::{Method, host, path, target};
use dunlin_http::{Head, Limits, Request};

use crate::exchange::coding::describe;
use crate::handler::redirect;
use crate::route::decode::{decode, rejection};
use crate::route::reroute::MAX_REDIRECTS;
use dunlin_files::explain::{Explained as ExplainedFile, codings, explain as explain_files};
use dunlin_files::search::{Found, Wanted};
use dunlin_fs::failure::Failure;
use dunlin_script::explain::{Explained, explain as explain_script};
use dunlin_script::route::Route;

/// Explains which site and which routes hold for `url`, where each setting comes from, and what the response is. A path
/// alone is a request without a host. `all`: settings at their defaults are listed, too.
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
    let Some(site) = config.sites.find(host) else {
        let host = String::from_utf8_lossy(host);
        return Ok(format!("no site is for the host {host:?}, and none for every other: 421\n"));
    };
    let mut text = String::new();
    let chosen = config.sites.how_found(host);
    let _ = writeln!(text, "site      {} ({chosen})", site.name);
    if let Some(tls) = &site.tls {
        let _ = writeln!(text, "tls       {}", tls.describe());
    }
    let mut decoded = Vec::new();
    if let Err(error) = decode(raw_path, site, &mut decoded) {
        let (status, reason) = rejection(error);
        let _ = writeln!(text, "path      rejected with {status}: {reason}");
        return Ok(text);
    }
    let (bytes, head) = request_for(url, authority);
    let request = Request::new(&bytes, &head);
    let facts = Facts {
        request,
        path: &decoded,
        query,
        client: None,
        encrypted: false,
        hidden: &site.user_fields,
    };
    let base = site;
    let chosen = site.for_maps(&facts).map(Arc::new);
    let site = chosen.as_ref().unwrap_or(site);
    let settings = site.route(&decoded);
    if decoded.contains(&0) && settings.handler.is_files() && settings.try_files.is_empty() {
        let reason = "the path contains an encoded slash, which no file name can";
        let _ = writeln!(text, "path      rejected with 404: {reason}");
        return Ok(text);
    }
    let _ = writeln!(text, "path      {}", shown(&decoded));
    explain_settings(config, file, (base, site), &facts, all, &mut text);
    let why = std::mem::take(&mut text);
    let tried = String::new();
    let mut explanation = Explanation { config, site, host, facts, redirects: 0, text, tried };
    if settings.internal {
        explanation.add("404 to clients; to scripts that name the path:");
    }
    explanation.response(&settings, &decoded, query);
    // The response comes first, then the files without a result, then the settings that determine it.
    let Explanation { text, tried, .. } = explanation;
    Ok(masked(&format!("{text}{tried}{why}")))
}

/// Returns a request for the URL without further fields. Without a host, it has that of the machine.
fn request_for(url: &str, authority: &[u8]) -> (Vec<u8>, Head) {
    let authority = if authority.is_empty() { b"localhost" } else { authority };
    let bytes = [b"GET ", url.as_bytes(), b" HTTP/1.1\r\nHost: ", authority, b"\r\n\r\n"].concat();
    let mut head = Head::default();
    // The target was parsed before. What is not a request has no fields.
    let _ = Http1Connection::default().head(&bytes, &Limits::default(), &mut head);
    (bytes, head)
}

struct Explanation<'a> {
    config: &'a Config,
    site: &'a Arc<Site>,
    host: &'a [u8],
    facts: Facts<'a>,
    /// Internal redirects so far.
    redirects: u8,
    text: String,
    /// The lines of the files that were looked for in vain.
    tried: String,
}

impl Explanation<'_> {
    fn add(&mut self, response: impl std::fmt::Display) {
        let _ = writeln!(self.text, "response  {response}");
    }

    /// Adds the codings of a response that is made for one request.
    fn add_made(&mut self, settings: &Settings, response: impl std::fmt::Display) {
        self.add(response);
        self.coding(&describe(settings, None));
    }

    fn coding(&mut self, coding: &str) {
        let _ = writeln!(self.text, "coding    {coding}");
    }

    fn response(&mut self, settings: &Arc<Settings>, path: &[u8], query: Option<&[u8]>) {
        match &settings.handler {
            Handler::Files => self.files(&Wanted { site: self.site, route: settings, path, query }),
            Handler::Script(script) => {
                self.script(script, &Wanted { site: self.site, route: settings, path, query });
            }
            Handler::Proxy(_) if settings.tries_files() => {
                self.files(&Wanted { site: self.site, route: settings, path, query });
            }
            Handler::Proxy(proxy) => self.proxy(settings, proxy),
            Handler::Redirect(rule) => {
                let location = rule.location((path, query), self.host, Some(&self.facts));
                let location = String::from_utf8_lossy(&location);
                self.add(format_args!("{} to {location}", rule.status));
            }
            Handler::Respond(fixed) => {
                let bytes = fixed.length().unwrap_or_else(|| fixed.body(&self.facts).len());
                self.add(format_args!("{} with {bytes} bytes of text", fixed.status));
                let content = (fixed.content_type.as_bytes(), bytes as u64);
                self.coding(&describe(settings, Some(content)));
            }
            Handler::Rewrite(to) => match to.expand(path, query, Some(&self.facts)) {
                Some(candidate) => self.reroute(&candidate),
                None => {
                    self.add("404: the values of the request make the path of `rewrite` invalid");
                }
            },
            Handler::Status(_) => self.add_made(settings, "the server's status"),
            Handler::Readiness => self.add("the readiness of the server"),
            Handler::Close => self.add("none: the connection is closed, 444 in the log"),
            Handler::AddSlash => self.add_slash(path, query),
        }
    }

    fn script(&mut self, script: &Script, wanted: &Wanted<'_>) {
        let label = &script.label;
        let one = match script.mapping {
            Mapping::Application => Some("application"),
            Mapping::Program => Some("program"),
            _ => None,
        };
        if let Some(kind) = one {
            return self.add_made(wanted.route, format_args!("the {kind} {label}"));
        }
        let Wanted { site, route, path, query } = *wanted;
        if script.component().is_some() {
            let name = shown(script.rest(path));
            let component = format_args!("the component that {name:?} names in {label}");
            return self.add_made(route, component);
        }
        let place = Place { site: Arc::clone(site), route: Arc::clone(route) };
        match explain_script(&place, script, path, query) {
            Explained::Script(program) => {
                self.add_made(route, format_args!("the script {}", program.display()));
            }
            Explained::File => self.files(wanted),
            Explained::Directory => self.add_slash(path, query),
            Explained::Elsewhere(candidate) => self.reroute(&candidate),
            Explained::Status(status, Some(reason)) => self.add(format_args!("{status}: {reason}")),
            Explained::Status(404, None) => {
                let name = shown(script.rest(path));
                let tried = match (script.extensions.is_empty(), route.try_files.len()) {
                    (false, steps @ 1..) => format!(", nor do the {steps} steps of `try` name one"),
                    _ => String::new(),
                };
                self.add(format_args!("404: there is no script {name:?} in {label}{tried}"));
            }
            Explained::Status(status, None) => self.add(status),
        }
    }

    fn proxy(&mut self, settings: &Settings, proxy: &Proxy) {
        let names = proxy.upstreams.iter().map(|upstream| upstream.address.to_string());
        let names = names.collect::<Vec<_>>().join(" or ");
        self.add_made(settings, format_args!("from the upstream {names}"));
    }

    fn files(&mut self, wanted: &Wanted<'_>) {
        let ExplainedFile { result, tried } = explain_files(self.config, wanted);
        for tried in tried {
            let _ = writeln!(self.tried, "tried     {tried}");
        }
        match result {
            Ok(Found::File(file)) => {
                self.add(format_args!("the file {}", file.display()));
                self.coding(&codings(wanted.route, &file));
            }
            Ok(Found::Listing(directory)) => {
                self.add(format_args!("the listing of the directory {}", directory.display()));
            }
            Ok(Found::Directory) => self.add_slash(wanted.path, wanted.query),
            Ok(Found::Status(status)) => self.add(status),
            Ok(Found::Proxy) => {
                if let Some(proxy) = wanted.route.handler.proxy() {
                    self.proxy(wanted.route, proxy);
                }
            }
            Ok(Found::Elsewhere(candidate)) => self.reroute(&candidate),
            Err(failure) => self.failure(wanted, failure),
        }
    }

    fn failure(&mut self, wanted: &Wanted<'_>, failure: Failure) {
        let status = failure.status();
        if failure == Failure::Missing
            && !wanted.route.hidden
            && path::has_hidden_segment(wanted.path)
        {
            return self
                .add(format_args!("{status}: a name begins with a dot, and `hidden` is off"));
        }
        self.add(format_args!("{status}: {failure}"));
    }

    fn add_slash(&mut self, path: &[u8], query: Option<&[u8]>) {
        let location = redirect::slash_location(path, query);
        self.add(format_args!("301 to {}", String::from_utf8_lossy(&location)));
    }

    /// The response of the route of another path.
    fn reroute(&mut self, candidate: &Candidate) {
        let settings = self.site.route(&candidate.path);
        let path = shown(&candidate.path);
        if settings.internal && !candidate.is_fixed {
            return self.add(format_args!("404: the route of {path} is internal"));
        }
        self.redirects += 1;
        if self.redirects > MAX_REDIRECTS {
            return self.add(format_args!("500: more than {MAX_REDIRECTS} internal redirects"));
        }
        self.add(format_args!("from the route of {path}:"));
        self.response(&settings, &candidate.path, candidate.query.as_deref());
    }
}

/// Returns a decoded path as text.
fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).replace('\0', "%2F")
}

/// The site and the route of the path.
#[derive(Clone)]
struct Place {
    site: Arc<Site>,
    route: Arc<Settings>,
}

impl Route for Place {
    fn settings(&self) -> &Settings {
        &self.route
    }

    fn user_fields(&self) -> &[String] {
        &self.site.user_fields
    }

    fn covers(&self, path: &[u8]) -> bool {
        self.site.has_settings(path, &self.route)
    }

    fn share(&self) -> Arc<dyn Route + Send + Sync> {
        Arc::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use dunlin_config::Overrides;

    use super::*;

    #[test]
    fn a_url_is_explained_with_the_place_of_each_setting() {
        let parent = tempfile::tempdir().unwrap();
        let root = parent.path().join("none").display().to_string();
        let text = format!(
            "[[listen]]\naddress = '127.0.0.1:8080'\n[[site]]\nhost = ['example.com', '*.example.com']\n\
             root = '{root}'\n[[site.route]]\npath = '/cgi-bin/*'\nlisting = true\n\
             [[site.route]]\npath = '*.txt'\ncharset = 'latin1'\n"
        );
        let config =
            Config::parse(&text, Path::new("/etc/dunlin.toml"), &Overrides::default()).unwrap();
        let text =
            explain(&config, Path::new("d.toml"), "http://a.example.com/cgi-bin/none.txt", true)
                .unwrap();
        for line in [
            "site      example.com (by a wildcard)",
            "route     *.txt (d.toml:10) matches",
            "route     /cgi-bin/* (d.toml:7) matches",
            "setting   charset from *.txt (d.toml:11): latin1",
            "setting   listing from /cgi-bin/* (d.toml:8): true",
            "setting   index by default: index.html",
            &format!("tried     root {root}: No such file or directory"),
            "response  500: it cannot be opened",
        ] {
            assert!(text.lines().any(|other| other.starts_with(line)), "{line}\n{text}");
        }
        assert!(text.starts_with("response  "), "the response comes first: {text}");
        assert!(explain(&config, Path::new("d.toml"), "ftp:x", false).is_err());
        assert!(
            explain(&config, Path::new("d.toml"), "http://other/", false).unwrap().contains("421")
        );
    }
}
