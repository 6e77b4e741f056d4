//! Directives that are carried over, with the keys that they become.

use super::tests::converted;

/// Content of `http`, and a part of the result.
const CARRIED: [(&str, &str); 14] = [
    (
        "upstream app { server 10.0.0.1; server 10.0.0.2 backup; } server { location / { proxy_pass http://app; } }",
        "{ url = \"http://10.0.0.2\", backup = true }",
    ),
    ("server { location = /s { stub_status; } }", "status = { format = \"nginx\" }"),
    (
        "server { location = /p.gif { empty_gif; } }",
        "content_type = \"image/gif\", methods = [\"GET\", \"HEAD\"]",
    ),
    (
        "server { location / { proxy_pass http://10.0.0.1; proxy_pass_header Server; } }",
        "pass_server_field = true",
    ),
    (
        "server { location / { proxy_pass http://10.0.0.1; auth_basic a; auth_basic_user_file /users; } }",
        "authorization = true",
    ),
    (
        "map $status $logged { ~^[23] 0; default 1; } server { access_log /l combined if=$logged; return 200 a; }",
        "status = [\"1xx\", \"4xx\", \"5xx\"]",
    ),
    (
        "map $request_method $logged { POST 0; default 1; } server { access_log /l combined if=$logged; location / { proxy_pass http://10.0.0.1; } }",
        "access_log = false",
    ),
    (
        "server { error_page 418 = @a; location /x { return 418; } location @a { proxy_pass http://10.0.0.1; } }",
        "proxy = { to = \"http://10.0.0.1\"",
    ),
    (
        "proxy_cache_path /c keys_zone=z:1m; server { location / { proxy_pass http://10.0.0.1; proxy_cache z; proxy_cache_bypass $cookie_a $http_upgrade; } }",
        "when = { map = { cookie_a_1 = true } }",
    ),
    (
        "server { root /srv; location ~ ^/a/ { location ~ \\.css$ { return 200 x; } } }",
        "regex = '^/a/.*(?:\\.css$)'",
    ),
    (
        "server { location / { return 204; add_header Content-Length 0; add_header Vary Origin; add_header Expires 0; } }",
        "Expires = { value = \"0\", status",
    ),
    (
        "server { set_real_ip_from 10.0.0.0/8; location / { proxy_pass http://10.0.0.1; } }",
        "trusted_proxies = [\"10.0.0.0/8\"]",
    ),
    (
        "server { root /srv; location ~ (.+)\\.v\\d+\\.(css|js)$ { try_files $uri $1.$2; } }",
        "try = [\"{path}\", \"{1}.{2}\"]",
    ),
    (
        "upstream u { server unix:///run/a.sock; } server { location / { proxy_pass http://u; } }",
        "\"unix:/run/a.sock\"",
    ),
];

#[test]
fn what_a_request_sees_is_carried_over() {
    for (http, part) in CARRIED {
        let made = converted(http);
        assert!(made.toml.contains(part), "{http}: {part}\n{}", made.toml);
        assert_eq!(made.report.losses().count(), 0, "{http}: {:?}", made.report.losses().next());
    }
}

#[test]
fn a_rewrite_keeps_the_query_as_nginx_does() {
    for (rewrite, to) in [
        ("^/a/(.*)$ /b/?q=$1 last", "/b/?q={1}&{query}"),
        ("^/a/(.*)$ /b/?q=$1&$args last", "/b/?q={1}&{raw_query}&{query}"),
        ("^/a/(.*)$ /b/?q=$1&$args? last", "/b/?q={1}&{raw_query}"),
    ] {
        let made = converted(&format!("server {{ root /srv; rewrite {rewrite}; }}"));
        let part = format!("rewrite = \"{to}\"");
        assert!(made.toml.contains(&part), "{rewrite}\n{}", made.toml);
    }
}

#[test]
fn servers_with_other_proxies_lose_theirs() {
    let made = converted(
        "server { server_name a; set_real_ip_from 10.0.0.1; location / { proxy_pass http://10.0.0.1; } }\n\
         server { server_name b; location / { proxy_pass http://10.0.0.1; } }",
    );
    assert!(!made.toml.contains("trusted_proxies"), "{}", made.toml);
    assert_eq!(made.report.losses().count(), 1);
}

#[test]
fn a_named_location_that_returns_its_own_error_is_no_loop() {
    let made = converted(
        "server { error_page 418 = @a; location /x { return 418; } location @a { return 418; } }",
    );
    assert!(made.toml.contains("status = 418"), "{}", made.toml);
}
