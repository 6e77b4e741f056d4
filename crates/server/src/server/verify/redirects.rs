//! Verification of redirects: one that leads back to itself never ends.

use std::sync::Arc;

use dunlin_config::{Config, Handler, Listen, Problem, Settings, Site};
use dunlin_http::semantics::{Method, host, target};

use crate::route::decode::decode;

/// The number of redirects in a row after which browsers give up.
const MAX_REDIRECTS: usize = 20;

/// The host of requests for a site that names none.
const UNNAMED: &[u8] = b"localhost";

/// Adds a warning for each route whose redirect leads back to a redirect of this server without end.
pub(super) fn check_redirects(config: &Config, warnings: &mut Vec<Problem>) {
    for site in config.sites.iter() {
        for (path, place) in site.redirects() {
            if let Some(location) = endless(config, site, &path) {
                let location = String::from_utf8_lossy(&location).into_owned();
                let what = format!(
                    "redirect: an endless loop, as {location} is redirected again; add a route for the target, or give the \
                     redirect a pattern that does not match it"
                );
                warnings.push(config.problem_at(place, what));
            }
        }
    }
}

/// Returns the first Location of a redirect without end that begins with `path`; `None` if it ends.
fn endless(config: &Config, site: &Arc<Site>, path: &[u8]) -> Option<Vec<u8>> {
    let bare = |host: &String| host.trim_start_matches("*.").replace(".*", ".test").into_bytes();
    let name = site.hosts().first().map_or_else(|| UNNAMED.to_vec(), bare);
    let mut request =
        Request { site: Arc::clone(site), host: name, path: path.to_vec(), query: None };
    let mut first = None;
    for _ in 0..MAX_REDIRECTS {
        let settings: &Settings = &request.site.route(&request.path);
        let Handler::Redirect(rule) = &settings.handler else { return None };
        let location =
            rule.location((&request.path, request.query.as_deref()), &request.host, None);
        request = within(config, &request, &location)?;
        first.get_or_insert(location);
    }
    first
}

/// A request that is redirected.
struct Request {
    site: Arc<Site>,
    host: Vec<u8>,
    /// The decoded path.
    path: Vec<u8>,
    query: Option<Vec<u8>>,
}

/// Returns the request for a Location, if it leads to this server. A host that no site names may be another server, though
/// the site for all other hosts would respond to it.
fn within(config: &Config, request: &Request, location: &[u8]) -> Option<Request> {
    let (mut site, mut name) = (&request.site, &request.host[..]);
    let end = memchr::memchr(b'#', location).unwrap_or(location.len());
    let (path, query) = match target::parse(Method::Get, &location[..end]).ok()? {
        target::Target::Origin { path, .. } if path.starts_with(b"//") => return None,
        target::Target::Origin { path, query } => (path, query),
        target::Target::Absolute { authority, path, query, .. } => {
            let host = host::parse(authority).filter(|host| host.port.is_none())?;
            if !host.name.eq_ignore_ascii_case(name) {
                (site, name) = (config.sites.find_named(host.name)?, host.name);
            }
            // A proxy before this server may do TLS.
            let is_secure = location.starts_with(b"https:");
            let serves = |listen: &Listen| !listen.admin && listen.tls == is_secure;
            if !config.listen.iter().any(serves) || is_secure && site.tls.is_none() {
                return None;
            }
            (path, query)
        }
        _ => return None,
    };
    let mut decoded = Vec::new();
    decode(path, site, &mut decoded).ok()?;
    Some(Request {
        site: Arc::clone(site),
        host: name.to_vec(),
        path: decoded,
        query: query.map(<[u8]>::to_vec),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use dunlin_config::Overrides;

    use super::*;

    fn warnings(routes: &str) -> Vec<String> {
        let text = format!(
            "[[listen]]\naddress = '127.0.0.1:80'\n[[site]]\nhost = 'a.test'\nroot = '/srv'\n{routes}"
        );
        let config = Config::parse(&text, Path::new("d.toml"), &Overrides::default())
            .expect("a configuration");
        let mut warnings = Vec::new();
        check_redirects(&config, &mut warnings);
        warnings.iter().map(Problem::to_string).collect()
    }

    fn route(path: &str, target: &str) -> String {
        format!("[[site.route]]\npath = '{path}'\nredirect = '{target}'\n")
    }

    #[test]
    fn a_redirect_that_leads_back_to_itself_is_reported() {
        for (path, target) in [
            ("/*", "/x"),
            ("/*", "/x{path}"),
            ("/*", "http://a.test{path}{query}"),
            ("/*", "http://{host}/"),
            ("/old/*", "/old/new/{rest}"),
            ("/a", "/a?again"),
            ("*.html", "/new{path}"),
        ] {
            let found = warnings(&route(path, target));
            assert_eq!(found.len(), 1, "{path} -> {target}: {found:?}");
            assert!(found[0].starts_with("d.toml:8:12: redirect: an endless loop"), "{found:?}");
        }
        let two = route("/a", "/b") + &route("/b", "/a");
        assert_eq!(warnings(&two).len(), 2);
    }

    #[test]
    fn a_redirect_that_ends_is_not_reported() {
        for (path, target) in [
            ("/*", "https://a.test{path}"),
            ("/*", "https://b.test{path}"),
            ("/*", "http://a.test:8080{path}"),
            ("/*", "//b.test/"),
            ("/old/*", "/new/{rest}"),
            ("/a", "/b"),
            ("/", "/start"),
        ] {
            let found = warnings(&route(path, target));
            assert!(found.is_empty(), "{path} -> {target}: {found:?}");
        }
        assert!(warnings(&(route("/a", "/b") + &route("/b", "/c"))).is_empty());
        let default =
            format!("[[site]]\nroot = '/srv'\n{}", route("/*", "http://www.example.com{path}"));
        assert!(warnings(&default).is_empty(), "another server may have this name");
    }

    #[test]
    fn a_redirect_that_leads_back_by_another_site_or_the_host_of_the_request_is_reported() {
        let other = format!("[[site]]\nhost = '*.b.test'\n{}", route("/*", "http://a.test{path}"));
        assert_eq!(warnings(&(route("/*", "http://www.b.test/") + &other)).len(), 2);
        let default = format!("[[site]]\nroot = '/srv'\n{}", route("/*", "http://{host}/x"));
        assert_eq!(warnings(&default).len(), 1);
    }
}
