//! From text to settings, with the messages of all errors.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::*;

pub(super) const GOOD: &str = r#"[server]
threads = 2                       # one loop per core when absent
access_log = { path = "/var/log/dunlin/access.log", format = "combined" }

[[listen]]
address = "127.0.0.1:8080"

[[site]]
host = ["example.com", "*.example.com"]
root = "/srv/www"

[[site.route]]
path = "/cgi-bin/*"
"#;

pub(super) fn parse(text: &str) -> Result<Config, Vec<Problem>> {
    Config::parse(text, Path::new("/etc/dunlin.toml"), &Overrides::default())
}

pub(super) fn problems(text: &str) -> Vec<String> {
    let problems = parse(text).expect_err(text);
    problems.iter().map(|problem| problem.to_string().replace("/etc/dunlin.toml:", "")).collect()
}

/// Returns the settings of `path` in a site with these routes.
fn settings(routes: &str, path: &str) -> Arc<Settings> {
    let text = format!("[[listen]]\naddress = ':1'\n[[site]]\nroot = '/srv'\n{routes}");
    let config = parse(&text).unwrap_or_else(|problems| panic!("{problems:?}"));
    config.sites.find(b"").unwrap().route(path.as_bytes()).into_owned()
}

#[test]
fn the_design_s_example_is_taken_as_far_as_its_features_exist() {
    let config = parse(GOOD).unwrap();
    assert_eq!(config.server.threads, 2);
    assert_eq!(config.listen.len(), 1);
    assert_eq!(config.server.http1.idle_timeout, Duration::from_secs(75));
    let site = config.sites.find(b"a.example.com").unwrap();
    assert_eq!(site.route(b"/cgi-bin/x").root, PathBuf::from("/srv/www"));
}

#[test]
fn the_more_specific_route_wins_setting_by_setting() {
    let routes = r#"
        [[site.route]]
        path = "/a/b"
        body_size = 1
        [[site.route]]
        path = "*.css"
        charset = "css"
        hidden = true
        [[site.route]]
        path = "/a/*"
        charset = "a"
        listing = true
        [[site.route]]
        path = "/*"
        charset = "all"
        ranges = 3
    "#;
    for (path, charset, hidden, listing, body_size) in [
        ("/", "all", false, false, 1 << 20),
        ("/x.css", "all", true, false, 1 << 20),
        ("/a/", "a", false, true, 1 << 20),
        ("/a/x.css", "a", true, true, 1 << 20),
        ("/a/b", "a", false, true, 1),
        ("/a", "all", false, false, 1 << 20),
    ] {
        let settings = settings(routes, path);
        let found = (&*settings.charset, settings.hidden, settings.listing, settings.body_size);
        assert_eq!(found, (charset, hidden, listing, body_size), "{path}");
        assert_eq!(settings.ranges, 3);
    }
}

#[test]
fn tables_add_up_and_fields_are_set_or_removed_by_the_most_specific() {
    let routes = r#"
        [[site.route]]
        path = "/*"
        types = { a = "x/a", b = "x/b" }
        error_pages = { 404 = "/404", 403 = "/403" }
        set_fields = { X-One = "1", X-Two = "2" }
        remove_fields = ["X-Gone"]
        [[site.route]]
        path = "/a/*"
        types = { b = "y/b" }
        error_pages = { 404 = "/a/404" }
        set_fields = { x-one = "one", X-Gone = "back" }
        remove_fields = ["x-two"]
    "#;
    let settings = settings(routes, "/a/x");
    assert_eq!(settings.types["a"], "x/a");
    assert_eq!(settings.types["b"], "y/b");
    let page = |status| settings.error_pages[&status].to_string();
    assert_eq!((page(403), page(404)), ("/403".into(), "/a/404".into()));
    let set: Vec<_> =
        settings.set_fields.iter().map(|field| (&*field.name, &*field.value)).collect();
    assert_eq!(set, [("X-Gone", "back"), ("x-one", "one")]);
    assert_eq!(settings.remove_fields, ["x-two"]);
}

#[test]
fn one_handler_and_one_rule_of_caching_apply() {
    let routes = r#"
        [[site.route]]
        path = "/*"
        redirect = { to = "https://{host}{path}" }
        cache_control = "no-store"
        [[site.route]]
        path = "/files/*"
        root = "/other"
        expires = "1h"
        [[site.route]]
        path = "/old*"
        redirect = { to = "/{rest}", status = 308 }
        [[site.route]]
        path = "/old/x/*"
        respond = { body = "x" }
        [[site.route]]
        path = "/old/y/*"
        listing = true
    "#;
    let files = settings(routes, "/files/x");
    assert!(files.handler.is_files() && files.root == Path::new("/other"));
    assert!(files.cache_control.is_none() && files.expires.is_some());
    assert!(matches!(settings(routes, "/old/x/").handler, Handler::Respond(_)));
    // `{rest}` is what the redirecting route's `*` matched, and never names a host.
    let old = settings(routes, "/old/y/z");
    let Handler::Redirect(redirect) = &old.handler else { panic!("{:?}", old.handler) };
    assert!(redirect.location((b"/old/y/z", None), b"h", None).ends_with(b"y/z"));
}

#[test]
fn the_exact_host_then_the_longest_wildcard_then_the_default_is_found() {
    let site = |host: &str| format!("[[site]]\n{host}\nroot = '/'\n");
    let named = [
        "host = 'a.example.com'",
        "host = '*.example.com'",
        "host = '*.b.example.com'",
        "host = '[::1]'",
    ];
    let text: String = named.iter().map(|host| site(host)).collect();
    let text = format!("[[listen]]\naddress = ':1'\n{text}");
    let without = parse(&text).unwrap();
    let with = parse(&(text + &site(""))).unwrap();
    let long = format!("{}.example.com", "a".repeat(300));
    for (host, index) in [
        ("a.example.com", Some(0)),
        ("A.EXAMPLE.com.", Some(0)),
        ("x.example.com", Some(1)),
        ("x.a.example.com", Some(1)),
        ("x.b.example.com", Some(2)),
        ("b.example.com", Some(1)),
        ("[::1]", Some(3)),
        ("example.com", None),
        (".example.com", None),
        ("", None),
        (&long, None),
    ] {
        let found = |config: &Config| config.sites.find(host.as_bytes()).map(|site| site.index);
        assert_eq!(found(&without), index, "{host}");
        assert_eq!(found(&with), index.or(Some(4)), "{host}");
    }
}

#[test]
fn a_former_key_is_an_error_that_names_its_replacement() {
    for (table, former, name) in renamed::RENAMED {
        let (text, line, column) = match table {
            "server" => (format!("[server]\n{former} = 1\n"), 2, 1),
            table => {
                let route = format!("{table} = {{ {former} = 1 }}\n");
                (format!("[[site]]\n[[site.route]]\npath = '/*'\n{route}"), 4, table.len() + 6)
            }
        };
        let here = if table == "server" { "[server]".into() } else { format!("`{table}`") };
        let expected = format!(
            "{line}:{column}: there is no key `{former}` in {here}; it was renamed to `{name}`"
        );
        let found = problems(&text);
        assert!(found.contains(&expected), "{expected}\n{found:?}");
        let text = text.replacen(former, name, 1);
        let found = parse(&text).err().unwrap_or_default();
        let found: Vec<_> = found.iter().map(Problem::to_string).collect();
        assert!(!found.iter().any(|problem| problem.contains("no key")), "{text}\n{found:?}");
    }
}

#[test]
fn the_schema_has_every_key_that_the_reader_knows() {
    for (header, definition) in vocabulary::SECTIONS {
        let text = format!(
            "{}{header}\nzz_none = 1",
            if header.starts_with("[[site.") { "[[site]]\n" } else { "" }
        );
        let reported =
            problems(&text).into_iter().find(|reported| reported.contains("zz_none")).unwrap();
        let mut read: Vec<_> = reported.rsplit(": ").next().unwrap().split(", ").collect();
        read.sort_unstable();
        let mut known = vocabulary::keys_of(definition);
        known.sort_unstable();
        assert_eq!(read, known, "{header}");
    }
}

#[test]
fn a_site_with_hosts_can_be_that_of_every_other_host_at_its_listener() {
    let text = "[[listen]]\naddress = ':1'\n[[listen]]\naddress = ':2'\n\
        [[site]]\nlisten = ':1'\nrespond = { status = 201 }\n\
        [[site]]\nhost = 'a.test'\nlisten = ':1'\nrespond = { status = 202 }\n\
        [[site]]\nhost = ['b.test', '*']\nlisten = ':2'\nrespond = { status = 203 }\n";
    let named = |overrides: &Overrides, listener: usize, host: &str| {
        let config = Config::parse(text, Path::new("/d.toml"), overrides).unwrap();
        // An address of a port alone stands for two.
        let number = config.listen[listener * (config.listen.len() - 1)].number;
        config.sites.find_on(number, host.as_bytes())
    };
    let file = Overrides::default();
    let at = |listener, host| named(&file, listener, host);
    assert_eq!([at(0, "x"), at(0, "a.test"), at(0, "b.test")], [Some(0), Some(1), Some(0)]);
    assert_eq!([at(1, "x"), at(1, "a.test"), at(1, "b.test")], [Some(2); 3]);
    // At one listener in place of them, each site has its own hosts.
    let one = Overrides { listen: vec![":3".into()], ..Overrides::default() };
    let at = |host| named(&one, 0, host);
    assert_eq!([at("x"), at("a.test"), at("b.test")], [Some(0), Some(1), Some(2)]);
    let twice = "[[site]]\n[[site]]\nhost = ['b.test', '*']\n";
    let problems = Config::parse(twice, Path::new("/d.toml"), &file).unwrap_err();
    let both = "two sites serve every other host";
    assert!(problems.iter().any(|problem| problem.to_string().contains(both)), "{problems:?}");
}
