//! Files in, TOML and report out.

use std::path::Path;

use dunlin_config::Overrides;

use crate::{Conversion, Verdict, nginx};

/// Lines that let the result have as many as it likes.
fn padding() -> String {
    "#\n".repeat(500)
}

/// Converts the content of `http`.
pub(super) fn converted(http: &str) -> Conversion {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nginx.conf");
    std::fs::write(&file, format!("events {{}}\nhttp {{\n{http}\n}}\n{}", padding())).unwrap();
    let converted = nginx(&file, Some(Path::new("/srv"))).unwrap();
    let problems = converted.config(Path::new("/d.toml"), &Overrides::default()).err();
    let problems: Vec<String> =
        problems.into_iter().flatten().map(|problem| problem.to_string()).collect();
    assert_eq!(problems, Vec::<String>::new(), "{}", converted.toml);
    converted
}

/// Returns the lines of the first site, without those of comments.
pub(super) fn site(directives: &str) -> String {
    let converted = converted(&format!("server {{\n{directives}\n}}"));
    let text = converted.toml.split_once("[[site]]\n").map_or("", |(_, text)| text).to_owned();
    let line = |line: &str| line.split("  # ").next().unwrap_or_default().to_owned();
    text.lines().map(line).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

pub(super) fn losses(http: &str) -> Vec<String> {
    converted(http)
        .report
        .losses()
        .map(|loss| format!("{} {}", loss.place.line, loss.name))
        .collect()
}

#[test]
fn a_proxied_site_is_two_lines() {
    let text = site(
        "listen 80; location / { proxy_pass http://127.0.0.1:3000; proxy_set_header Host $http_host; }",
    );
    assert_eq!(text, "proxy = \"http://127.0.0.1:3000\"");
}

#[test]
fn a_location_has_what_differs_from_the_more_general_one() {
    let text = site(
        "root /srv/www; index index.php;\n\
         location / { try_files $uri $uri/ /index.php?$args; }\n\
         location /static/ { expires 1d; }\n\
         location /app/ { proxy_pass http://127.0.0.1:1/; }",
    );
    for part in [
        "root = \"/srv/www\"",
        "try = [\"{path}\", \"=directory\", \"/index.php?{query}\"]",
        "path = \"/static/*\"\ntry = []\nexpires = \"1d\"",
        "path = \"/app/*\"\nproxy = { to = \"http://127.0.0.1:1\", strip = \"/app\", host = \"upstream\" }\ntry = []",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn a_level_with_add_header_inherits_none() {
    let text = site(
        "root /srv/www; add_header X-A 1 always;\n\
         location / { }\n\
         location /b/ { add_header X-B 2; }",
    );
    assert!(text.contains("set_fields = { X-A = \"1\" }"), "{text}");
    assert!(
        text.contains("path = \"/b/*\"\nset_fields = { X-B = { value = \"2\", status = [\"2xx\", \"3xx\"] } }\nremove_fields = [\"X-A\"]"),
        "{text}"
    );
}

#[test]
fn a_preferred_prefix_comes_before_expressions_that_match_beneath_it() {
    let text = site(
        "root /srv/www;\n\
         location ~ \\.php$ { return 403; }\n\
         location ^~ /static/ { expires 1d; }\n\
         location ^~ /other { return 404; }",
    );
    let order = ["regex = \"^/static/\"", "regex = '\\.php$'"]
        .map(|part| text.find(part).unwrap_or_else(|| panic!("{part}: {text}")));
    assert!(order[0] < order[1], "{text}");
    // Without such an expression, it is a pattern.
    assert!(
        site("root /srv/www; location ^~ /static/ { expires 1d; }")
            .contains("path = \"/static/*\"")
    );
}

#[test]
fn no_directive_is_without_a_verdict() {
    let converted = converted(
        "sendfile on; unheard_of 1; gzip on;\n\
         server { listen 8080; slice 1m; root /srv/www; proxy_pass_header X; mirror /m; flv; }",
    );
    let verdict = |name: &str| {
        converted
            .report
            .findings()
            .find(|finding| finding.name == name)
            .map(|finding| finding.verdict.clone())
    };
    assert!(matches!(verdict("sendfile"), Some(Verdict::NotNeeded(_))));
    assert!(matches!(verdict("unheard_of"), Some(Verdict::Lost(_))));
    assert!(matches!(verdict("flv"), Some(Verdict::Lost(_))));
    assert!(matches!(verdict("mirror"), Some(Verdict::Lost(_))));
    assert!(matches!(verdict("proxy_pass_header"), Some(Verdict::NotNeeded(_))));
    let names: Vec<&str> =
        converted.report.findings().map(|finding| finding.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "events",
            "http",
            "sendfile",
            "unheard_of",
            "gzip",
            "server",
            "listen",
            "slice",
            // Media types, and a field that nginx does not send.
            "root",
            "root",
            "proxy_pass_header",
            "mirror",
            "flv"
        ]
    );
}

#[test]
fn losses_have_the_line_of_their_directive() {
    assert_eq!(
        losses(
            "server { listen 80;\nroot /srv/www;\nlocation / {\nif ($other) { return 403; }\n}\n}"
        ),
        ["6 if"]
    );
    assert_eq!(losses("server { root /srv/www; }"), Vec::<String>::new());
}

#[test]
fn a_server_without_tls_and_one_with_tls_are_one_site() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nginx.conf");
    let text = "events {} http {\n\
        server { listen 80; server_name a.test; return 301 https://$host$request_uri; }\n\
        server { listen 443 ssl http2; server_name a.test; root /srv/www; ssl_certificate c.pem; ssl_certificate_key k.pem; }\n}";
    std::fs::write(&file, format!("{text}\n{}", padding())).unwrap();
    let converted = nginx(&file, None).unwrap();
    assert_eq!(converted.toml.matches("[[site]]").count(), 1, "{}", converted.toml);
    let rule = "when = { scheme = \"http\" }\nredirect = { to = \"https://{host}{target}\", status = 301 }";
    assert!(converted.toml.contains(rule), "{}", converted.toml);
    assert!(converted.toml.contains("address = \":443\"\ntls = true"), "{}", converted.toml);
    let certificate = format!("tls = {{ certificate = \"{}/c.pem\"", folder.path().display());
    assert!(converted.toml.contains(&certificate), "{}", converted.toml);
}

#[test]
fn conditions_are_routes_before_all_others() {
    let text = site(
        "root /srv/www; if ($request_method = PUT) { return 405; }\n\
         location = /a { return 204; } location ~ \\.css$ { expires 1h; }",
    );
    let exact = text.find("path = \"/a\"\nwhen = { method = \"PUT\" }\nrespond = { status = 405 }");
    let every =
        text.find("regex = \"^/\"\nwhen = { method = \"PUT\" }\nrespond = { status = 405 }");
    assert!(exact.is_some() && every < text.find("regex = '\\.css$'"), "{text}");
}

#[test]
fn included_files_are_read_in_their_places() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    };
    write("nginx.conf", "events {} http { include sites/*.conf; include none/*; }");
    write("sites/b.conf", "server { server_name b.test; root /srv/b; }");
    write("sites/a.conf", "server { server_name a.test; root /srv/a; include common; }");
    write("common", "index a.html;\n");
    let converted = nginx(&folder.path().join("nginx.conf"), None).unwrap();
    let (a, b) = (converted.toml.find("/srv/a"), converted.toml.find("/srv/b"));
    assert!(a.is_some() && a < b, "{}", converted.toml);
    assert_eq!(converted.files.len(), 4);
    write("common", "include common;\n");
    let error = nginx(&folder.path().join("nginx.conf"), None).unwrap_err().to_string();
    assert!(error.contains("includes itself"), "{error}");
    write("common", "include missing;\n");
    let error = nginx(&folder.path().join("nginx.conf"), None).unwrap_err().to_string();
    assert!(error.contains("common:1: ") && error.contains("missing"), "{error}");
}

#[test]
fn what_is_not_syntax_is_an_error_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.conf");
    for (text, what) in [
        ("http {\n a b\n}", ":2: "),
        ("http {", "not closed"),
        ("a;\n}", ":2: "),
        ("\"a", "not closed"),
        (";", "unexpected"),
    ] {
        std::fs::write(&file, text).unwrap();
        let error = nginx(&file, None).unwrap_err().to_string();
        assert!(error.contains(what), "{text}: {error}");
    }
    let deep = "a {".repeat(100) + &"}".repeat(100);
    std::fs::write(&file, deep).unwrap();
    assert!(nginx(&file, None).unwrap_err().to_string().contains("nested"));
}

#[test]
fn a_file_of_sites_available_needs_no_http() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("site");
    std::fs::write(&file, "server { listen 8080; location / { return 200 ok; } }").unwrap();
    assert!(nginx(&file, None).unwrap().toml.contains("respond = { body = \"ok\""));
    std::fs::write(&file, "location / { return 200 ok; }").unwrap();
    assert!(nginx(&file, None).unwrap().toml.contains("respond = { body = \"ok\""));
}

#[test]
fn what_restricts_access_and_is_lost_leaves_nothing_open() {
    let closed = "deny = [\"0.0.0.0/0\", \"::/0\"]";
    for directives in [
        "auth_basic a;",
        "auth_basic a; auth_basic_user_file /users/$host;",
        "auth_request /auth/$host;",
        "auth_basic a; auth_basic_user_file /users; auth_request /auth;",
        "secure_link $arg_md5,$arg_expires;",
        "auth_jwt area;",
    ] {
        let text = site(&format!("root /srv/www; {directives}"));
        assert!(text.contains(closed), "{directives}\n{text}");
    }
    let text =
        site("root /srv/www; location / { if ($ssl_client_verify != SUCCESS) { return 403; } }");
    assert!(text.contains("respond = { status = 403 }"), "{text}");
}

#[test]
fn the_first_rule_of_access_decides() {
    let text = site("root /srv/www; deny 10.0.0.0/8; allow 10.0.0.1; allow all;");
    assert!(text.contains("deny = [\"10.0.0.0/8\"]") && !text.contains("10.0.0.1"), "{text}");
    let text = site("root /srv/www; deny 10.0.0.1; allow 10.0.0.0/8; deny all;");
    assert!(text.contains("allow = [\"10.0.0.0/8\"]\ndeny = [\"10.0.0.1\"]"), "{text}");
}

#[test]
fn a_route_that_cannot_be_carried_over_is_lost_alone() {
    let converted = converted(
        "server { root /srv/www; location / { } location /a/ { proxy_pass http://10.0.0.1:1; proxy_set_header \"a b\" c; } \
         location /b/ { return 204; } }",
    );
    let losses: Vec<String> = converted.report.losses().map(ToString::to_string).collect();
    assert!(losses.len() == 1 && losses[0].contains("500"), "{losses:?}");
    assert!(
        converted.toml.contains("path = \"/a/*\"\nrespond = { status = 500 }"),
        "{}",
        converted.toml
    );
    assert!(converted.toml.contains("respond = { status = 204 }"), "{}", converted.toml);
}

#[test]
fn bodies_are_changed_and_lifetimes_kept() {
    let text = site("root /srv/www; location / { sub_filter a $scheme://$host/; ssi on; }");
    assert!(
        text.contains("substitute = [{ from = \"a\", to = \"{scheme}://{host}/\", once = true }]"),
        "{text}"
    );
    assert!(text.contains("ssi = true"), "{text}");
    let text = site("root /srv/www; location /d/ { dav_methods PUT DELETE; }");
    assert!(text.contains("dav = { methods = [\"PUT\", \"DELETE\"] }"), "{text}");
    let converted = converted(
        "proxy_cache_path /var/cache/x keys_zone=c:1m;\n\
         server { location / { proxy_pass http://10.0.0.1:1; proxy_cache c; proxy_cache_valid 200 10m; proxy_cache_valid any 1m; } }",
    );
    let lifetime = "cache = { responses = true, lifetime = { \"200\" = \"10m\", any = \"1m\" } }";
    assert!(converted.toml.contains(lifetime), "{}", converted.toml);
}

#[test]
fn a_lost_condition_that_rejects_requests_holds_for_all() {
    let forbidden = "respond = { status = 403";
    for directives in [
        "if ($geoip_country_code = XX) { return 403; }",
        "set $bad 0; if ($geoip_city) { set $bad 1; } if ($bad = 1) { return 403; }",
        "if ($geoip_country_code = XX) { set $a 1; return 403; }",
    ] {
        let text = site(&format!("root /srv/www; {directives}"));
        assert!(text.contains(forbidden), "{directives}\n{text}");
    }
    let text = site("root /srv/www; if ($geoip_city = x) { return 444; }");
    assert!(text.contains("close = true"), "{text}");
    // Nothing is closed by a condition that changes something else.
    let text = site("root /srv/www; if ($geoip_city = x) { return 301 /x; }");
    assert!(!text.contains(forbidden) && !text.contains("close"), "{text}");
    let text = site("root /srv/www; access_by_lua_file x.lua;");
    assert!(text.contains("deny = [\"0.0.0.0/0\", \"::/0\"]"), "{text}");
}

#[test]
fn a_lost_location_that_restricts_access_is_closed_for_more_paths() {
    for (location, regex) in [
        ("~ ^/a/(?=x)[a-z]+$ { deny all; }", "^/a/[a-z]+$"),
        ("~ (?<!public)\\.key$ { auth_basic a; auth_basic_user_file u; }", "\\.key$"),
        ("~ ^/(.)\\1$ { return 404; }", "^/(.).*$"),
    ] {
        let http = format!("server {{ root /srv/www; location {location} }}");
        let converted = converted(&http);
        let route = format!("regex = '{regex}'\nrespond = {{ status = 403 }}");
        let plain = route.replace('\'', "\"");
        let is_there = converted.toml.contains(&route) || converted.toml.contains(&plain);
        assert!(is_there, "{location}\n{}", converted.toml);
        assert_eq!(converted.report.losses().count(), 1);
    }
    let text = site("root /srv/www; location ~ ^/a { location ~ b$ { deny all; } }");
    // The expression of the outer location is a condition.
    let inner =
        "regex = \"b$\"\nwhen = { map = { path_1 = true } }\ndeny = [\"0.0.0.0/0\", \"::/0\"]";
    assert!(text.contains(inner), "{text}");
}

#[test]
fn links_are_verified() {
    let converted = converted(
        "server { server_name a.test; root /srv/www;\n\
         location /files/ { secure_link $arg_md5,$arg_expires; secure_link_md5 \"$secure_link_expires$uri secret\";\n\
         if ($secure_link = \"\") { return 403; } if ($secure_link = \"0\") { return 410; }\n\
         rewrite ^/files/(.*)$ /data/$1; }\n\
         location /img/ { valid_referers none blocked server_names *.b.test:8080 ~\\.c\\.test$;\n\
         if ($invalid_referer) { return 403; } } }",
    );
    for part in [
        "signed = { secret = \"secret\", algorithm = \"md5\", signature = \"md5\", expires = \"expires\", text = \"{expires}{path} {secret}\" }",
        "when = { map = { header_referer_1 = false }, not = { referer = [\"none\", \"blocked\", \"server_names\", \"*.b.test\"] } }\nrespond = { status = 403 }",
        "'~(?i)^https?://(?:.*(?:\\.c\\.test$))' = \"1\"",
    ] {
        assert!(converted.toml.contains(part), "{part}\n{}", converted.toml);
    }
    // The rewrite comes after the conditions.
    assert_eq!(converted.toml.matches("signed = ").count(), 2, "{}", converted.toml);
    assert_eq!(converted.report.losses().count(), 0);
    let text = site("root /srv/www; secure_link $cookie_a; secure_link_md5 \"$uri s\";");
    assert!(text.contains("deny = [\"0.0.0.0/0\", \"::/0\"]"), "{text}");
}

#[test]
fn locations_have_logs_of_their_own() {
    let converted = converted(
        "log_format short '$remote_addr {$http_x_id} $sent_http_content_type $status';\n\
         access_log /log/all.log;\n\
         server { server_name a.test; root /srv/a; location /b/ { access_log off; }\n\
         location /c/ { access_log /log/c.log short; } }\n\
         server { server_name b.test; root /srv/b; access_log /log/b.log; }",
    );
    for part in [
        "[server]\naccess_log = \"/log/all.log\"",
        "path = \"/b/*\"\naccess_log = false",
        "access_log = { path = \"/log/c.log\", format = \"{remote} {{{header.X-Id}}} {response.Content-Type} {status}\" }",
        "root = \"/srv/b\"\naccess_log = \"/log/b.log\"",
    ] {
        assert!(converted.toml.contains(part), "{part}\n{}", converted.toml);
    }
    assert_eq!(converted.report.losses().count(), 0);
}

#[test]
fn fields_of_the_endpoint_are_copied() {
    let converted = converted(
        "server { root /srv/www; location = /auth { internal; proxy_pass http://10.0.0.1:9; }\n\
         location / { auth_request /auth; auth_request_set $groups $upstream_http_remote_groups;\n\
         auth_request_set $user $upstream_http_x_user; auth_request_set $cookie $upstream_http_set_cookie;\n\
         proxy_set_header Remote-Groups $groups; proxy_set_header X-Login $user; add_header Set-Cookie $cookie;\n\
         proxy_pass http://10.0.0.1:3000; } }",
    );
    let auth = "auth = { forward = \"/auth\", user_field = \"X-User\", copy_to_request = [\"Remote-Groups\"], copy_to_response = [\"Set-Cookie\"] }";
    assert!(converted.toml.contains(auth), "{}", converted.toml);
    assert!(converted.toml.contains("X-Login = \"{user}\""), "{}", converted.toml);
    assert_eq!(converted.report.losses().count(), 0, "{:?}", converted.report);
}

#[test]
fn no_spelling_gets_past_a_condition_that_rejects_requests() {
    let converted = converted(
        "server { root /srv/www; if ($host = evil.test) { return 403; } if ($arg_token = \"\") { return 401; } }",
    );
    for part in [
        "from = \"{host}\"\nvalues = { '~(?s)^evil\\.test$' = \"1\" }",
        "when = { not = { query = { token = \"~(?s).\" } } }\nrespond = { status = 401 }",
    ] {
        assert!(converted.toml.contains(part), "{part}\n{}", converted.toml);
    }
}

#[test]
fn an_invalid_route_that_restricts_access_is_closed() {
    let toml = "[[site]]\nroot = \"/srv\"\n\n[[site.route]]  # x:3: location ~ (\nregex = \"(\"\ndeny = [\"10.0.0.1\"]\n";
    let mut report = crate::Report::default();
    let text = super::repair::repaired(toml.to_owned(), Path::new("/x"), &mut report);
    let closed = "regex = \"^/\"\ndeny = [\"0.0.0.0/0\", \"::/0\"]\nrespond = { status = 500 }";
    assert!(text.contains(closed), "{text}");
    assert!(report.losses().count() == 1);
    let open = toml.replace("deny = [\"10.0.0.1\"]", "expires = \"1d\"");
    let text = super::repair::repaired(open, Path::new("/x"), &mut report);
    assert!(!text.contains("site.route"), "{text}");
}

#[test]
fn an_alias_without_heirs_is_one_key() {
    let text = site("root /srv/www; location /files/ { alias /srv/data/; }");
    assert!(text.contains("path = \"/files/*\"\nalias = \"/srv/data\""), "{text}");
    let text = site(
        "root /srv/www; location / { try_files $uri /index.html; } location /files/ { alias /srv/data/; }",
    );
    assert!(text.contains("path = \"/files/*\"\nalias = \"/srv/data\"\n"), "{text}");
    assert!(text.contains("try = []"), "{text}");
    // Other files beneath it would be looked for in its directory.
    let text = site(
        "root /srv/www; location /files/ { alias /srv/data/; } location ~ \\.css$ { expires 1d; }",
    );
    assert!(text.contains("try = [\"/{rest}\""), "{text}");
}

#[test]
fn a_named_location_is_as_restricted_as_what_leads_there() {
    let text = site(
        "root /srv/www; location / { auth_basic a; auth_basic_user_file /users; try_files $uri @app; }\n\
         location @app { include_nothing on; fastcgi_pass 127.0.0.1:9000; fastcgi_param SCRIPT_FILENAME /srv/app.php; }",
    );
    let (_, named) = text.split_once("path = \"/@app/*\"").unwrap_or_else(|| panic!("{text}"));
    assert!(!named.contains("auth = false"), "{text}");
    assert!(text.contains("auth = { basic = \"/users\""), "{text}");
}

#[test]
fn an_internal_location_is_internal_whatever_it_does() {
    for body in ["return 200 secret;", "rewrite ^ /x last;", "if ($arg_a) { expires 1d; }"] {
        let text = site(&format!("root /srv/www; location /in/ {{ internal; {body} }}"));
        assert!(text.contains("internal = true"), "{body}\n{text}");
        assert!(!text.contains("internal = false"), "{body}\n{text}");
    }
}

#[test]
fn a_pass_has_the_version_the_buffer_and_the_rest_of_an_expression() {
    for (location, part) in [
        (
            "/ { proxy_http_version 2; proxy_pass http://127.0.0.1:1; }",
            "to = \"h2c://127.0.0.1:1\"",
        ),
        (
            "/ { proxy_request_buffering off; proxy_pass http://127.0.0.1:1; }",
            "buffer = { request = \"0\" }",
        ),
        (
            "~ ^/v/(.*)$ { proxy_pass http://127.0.0.1:1/w/$1$is_args$args; }",
            "to = \"http://127.0.0.1:1/w/\", strip = \"/v\", rewrite_location = false",
        ),
        (
            "/ { proxy_pass http://127.0.0.1:1; proxy_set_header X \"$arg_a $cookie_b\"; }",
            "set_request_fields = { X = \"{query.a} {cookie.b}\" }",
        ),
        (
            "/ { proxy_pass https://10.0.0.1; proxy_ssl_trusted_certificate /ca.pem; }",
            "host = \"upstream\", verify = false",
        ),
        (
            "/ { proxy_pass https://10.0.0.1; proxy_ssl_verify on; proxy_ssl_trusted_certificate /ca.pem; }",
            "host = \"upstream\", authority = \"/ca.pem\"",
        ),
        (
            "/ { return 200 x; add_header X $upstream_cookie_a; }",
            "set_fields = { X = { value = \"{response_cookie.a}\", status = [\"2xx\", \"3xx\"] } }",
        ),
    ] {
        let made = converted(&format!("server {{ location {location} }}"));
        assert!(made.toml.contains(part), "{location}: {part}\n{}", made.toml);
        assert_eq!(made.report.losses().count(), 0, "{:?}", made.report.losses().next());
    }
}

#[test]
fn what_nginx_does_otherwise_is_reported() {
    let report = |http: &str| {
        let converted = converted(http);
        converted.report.findings().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    for (http, line) in [
        ("server { root /srv/a; }", ":3: carried: root: no `types` apply"),
        ("types { text/css css; } server { root /srv/a; }", "no `default_type` applies"),
        (
            "server { root /srv/a; location / { try_files $uri /a.html; } }",
            "try_files: other methods than GET, HEAD and POST get 405",
        ),
        (
            "server { root /srv/a; location / { try_files $uri /a.php?q=$uri; } }",
            "try_files: values in the query are encoded for it",
        ),
        ("server { add_header X: 1; }", "lost: add_header: x: is not the name of a field"),
        (
            "server { location / { proxy_pass http://127.0.0.1:1; } }",
            "proxy_pass: X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host state the client",
        ),
        (
            "server { location / { return 200 a; } }",
            "return: the body has `default_type`, whatever the extension of the path is",
        ),
        (
            "server { location / { proxy_pass http://127.0.0.1:1; add_header X-Time $upstream_response_time; } }",
            "add_header: the time is that until the head of the response, for which nginx has `-`",
        ),
        (
            "server { location / { proxy_pass http://127.0.0.1:1; early_hints 0; } }",
            "not needed here: early_hints: clients of HTTP/1.1 and later get each 103",
        ),
        (
            "map \"$ssl_early_data:$request_method\" $r { 1:POST 1; } server { if ($r) { return 425; } location / { return 200 a; } }",
            "map: `$ssl_early_data` counts as empty",
        ),
    ] {
        assert!(report(http).contains(line), "{line}\n{}", report(http));
        assert!(!report(http).contains("lost") || line.contains("lost"), "{}", report(http));
    }
}

#[test]
fn a_request_for_the_root_is_one_for_its_index_file_which_an_expression_matches() {
    let converted = converted(
        "server { root /srv/a; location / { index index.html; }\n\
         location ~ \\.html$ { add_header X-Page yes; } }",
    );
    let text = &converted.toml;
    assert!(text.contains("path = \"/\"\nrewrite = \"/index.html\""), "{text}");
}

#[test]
fn cache_control_of_errors_is_a_field() {
    let text = site("root /srv/a; add_header Cache-Control no-store always;");
    assert!(text.contains("set_fields = { Cache-Control = \"no-store\" }"), "{text}");
    let text = site("root /srv/a; add_header Cache-Control no-store;");
    assert!(text.contains("cache_control = \"no-store\""), "{text}");
}
