//! Properties of templates and of included files.

use std::path::Path;

use dunlin_http::http1::Http1Connection;
use dunlin_http::{Head, Limits, Request};
use proptest::prelude::*;

use crate::{Config, Facts, Handler, Overrides, Problem};

/// A configuration with a route for each template, and maps of every kind.
fn config(to: &str) -> Result<Config, Vec<Problem>> {
    let text = format!(
        "[map.text]\nfrom = '{{query.a}}'\nvalues = {{ '~(?s-u)^(?<all>.*)$' = '/m/{{all}}?x={{all}}' }}\n\
         [map.other]\nfrom = '{{header.X}}'\nvalues = {{ '*' = '/o/{{header.X}}/{{cookie.c}}' }}\n\
         [[site]]\nroot = '/srv'\n[[site.route]]\nregex = '^/(?<first>[^/]*)/?(.*)$'\n{to}\n"
    );
    Config::parse(&text, Path::new("/etc/dunlin.toml"), &Overrides::default())
}

/// Calls `check` with the facts of a request that has these values.
fn with_facts(values: &[String; 4], check: impl FnOnce(&Facts<'_>)) {
    let [path, query, header, cookie] = values;
    let line = |text: &str| text.replace(['\r', '\n', '\0'], "");
    let message = format!(
        "GET / HTTP/1.1\r\nHost: a.test\r\nX: {}\r\nCookie: c={}\r\n\r\n",
        line(header),
        line(cookie)
    );
    let mut head = Head::default();
    // What is not a request has no fields.
    let _ = Http1Connection::default().head(message.as_bytes(), &Limits::default(), &mut head);
    let request = Request::new(message.as_bytes(), &head);
    let path = format!("/{path}");
    check(&Facts {
        request,
        path: path.as_bytes(),
        query: Some(query.as_bytes()),
        client: None,
        encrypted: true,
        hidden: &[],
    });
}

/// Returns `true` if a URL, or a part of it, has only bytes that a URL has (RFC 3986), so that nothing ends it.
fn is_encoded(text: &[u8]) -> bool {
    text.iter().all(|&byte| byte.is_ascii_graphic() && !b"<>\"\\^`{|}".contains(&byte))
}

const TEMPLATES: [&str; 8] = [
    "/x/{first}/{2}?a={first}&b={rest}",
    "{path}?q={header.X}",
    "/{rest}/{cookie.c}#{path}",
    "{map.text}",
    "/a{map.other}?b={map.text}",
    "https://b.test/{query.a}/{method}/{client}?t={target}",
    "{scheme}://{host}{path}?{query}&x={query.a}",
    "/x?{query}",
];

fn values() -> impl Strategy<Value = [String; 4]> {
    // A query comes as a client has encoded it.
    ["[ -~]{0,12}|\\PC{0,6}", "a=[a-zA-Z0-9%&=+.~-]{0,12}", "[ -~]{0,12}", "[!-~]{0,8}"]
}

proptest! {
    #[test]
    fn locations_have_encoded_values_only(at in 0..TEMPLATES.len(), values in values()) {
        let config = config(&format!("redirect = '{}'", TEMPLATES[at])).unwrap();
        let site = config.sites.only().unwrap();
        let Handler::Redirect(rule) = &site.route(b"/").handler else { panic!("a redirect") };
        with_facts(&values, |facts| {
            let location = rule.location((facts.path, facts.query), b"a.test", Some(facts));
            let shown = String::from_utf8_lossy(&location).into_owned();
            assert!(is_encoded(&location), "{shown:?}");
            let is_own = shown.starts_with('/') && !shown.starts_with("//");
            assert!(is_own || shown.starts_with("https://b.test/") || shown.starts_with("https://a.test"), "{shown:?}");
        });
    }

    #[test]
    fn rewritten_paths_stay_in_the_site(at in 0..4_usize, values in values()) {
        let to = ["/x/{first}?a={first}&{query}", "{path}?h={header.X}", "{map.text}", "{map.other}?c={cookie.c}"][at];
        let config = config(&format!("rewrite = '{to}'")).unwrap();
        let site = config.sites.only().unwrap();
        let Handler::Rewrite(rule) = &site.route(b"/").handler else { panic!("a rewrite") };
        with_facts(&values, |facts| {
            let Some(found) = rule.expand(facts.path, facts.query, Some(facts)) else { return };
            let shown = String::from_utf8_lossy(&found.path).into_owned();
            assert!(found.path.starts_with(b"/") && !shown.contains("//"), "{shown:?}");
            assert!(!shown.split('/').any(|segment| segment == "." || segment == ".."), "{shown:?}");
            let query = found.query.unwrap_or_default();
            assert!(is_encoded(&query), "{:?}", String::from_utf8_lossy(&query));
        });
    }

    #[test]
    fn included_files_of_any_shape_end_with_a_result_or_an_error_with_its_place(
        links in prop::collection::vec(prop::collection::vec((0..6_usize, any::<bool>()), 0..4), 1..6),
        tables in prop::collection::vec(0..4_usize, 6),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let bodies = ["[[site]]\nhost = 'HOST'\nroot = '/srv'\n", "[server]\nthreads = 'KEY'\n", "[map.HOST]\nfrom = '{path}'\nvalues = {}\n", "x = [\n"];
        for (number, (links, table)) in links.iter().zip(&tables).enumerate() {
            let names: Vec<String> = links.iter().map(|(to, is_pattern)| match is_pattern {
                true => format!("'{to}*.toml'"),
                false => format!("'{to}.toml'"),
            }).collect();
            let body = bodies[*table].replace("HOST", &format!("h{number}")).replace("KEY", "1");
            std::fs::write(folder.path().join(format!("{number}.toml")), format!("include = [{}]\n{body}", names.join(", "))).unwrap();
        }
        if let Err(problems) = Config::load(&folder.path().join("0.toml"), &Overrides::default()) {
            assert!(!problems.is_empty());
            for problem in problems {
                let text = problem.to_string();
                assert!(text.contains(".toml:"), "{text}");
            }
        }
    }
}
