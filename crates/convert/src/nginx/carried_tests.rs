//! Directives that are carried over, with the keys that they become.

use super::tests::converted;

/// Content of `http`, and a part of the result.
const CARRIED: [(&str, &str); 64] = [
    (
        "server { location /a/ { proxy_pass http://10.0.0.1/b/; proxy_redirect http://b.test/ /c/; proxy_redirect ~*^/x/(.*)$ /y/$1; } }",
        "replace_location = [{ from = \"http://b.test/\", to = \"/c/\" }, { from = \"~(?i)^/x/(.*)$\", to = \"/y/{1}\" }]",
    ),
    (
        "server { location /a/ { proxy_pass http://10.0.0.1/b/; proxy_redirect / /c/; proxy_redirect default; } }",
        "{ from = \"http://10.0.0.1/b/\", to = \"/a/\" }",
    ),
    (
        "server { location / { proxy_pass http://10.0.0.1; proxy_cookie_domain a.test $host; proxy_cookie_path /x /; } }",
        "replace_cookie_domain = [{ from = \"a.test\", to = \"{host}\" }], replace_cookie_path = [{ from = \"/x\", to = \"/\" }]",
    ),
    (
        "server { location / { proxy_pass http://10.0.0.1; proxy_cookie_flags ~^s secure nohttponly samesite=lax; } }",
        "cookie_flags = [{ cookie = \"~^s\", secure = true, http_only = false, same_site = \"lax\" }]",
    ),
    (
        "upstream u { server a.test:81 resolve; server b.test service=http resolve max_conns=5 slow_start=10s; } server { location / { proxy_pass http://u; } }",
        "to = [\"dns+http://a.test:81\", \"srv+http://_http._tcp.b.test\"], balance = \"round-robin\"",
    ),
    (
        "limit_req_zone $binary_remote_addr zone=z:1m rate=1r/s; server { limit_req zone=z; limit_req_status 509; root /srv; }",
        "limit = { requests = \"1/s\", burst = 1, status = 509 }",
    ),
    (
        "limit_conn_zone $binary_remote_addr zone=z:1m; server { limit_conn z 2; limit_conn_status 429; limit_conn_dry_run on; root /srv; }",
        "status = 429, dry_run = true",
    ),
    (
        "server { root /srv; location /l/ { autoindex on; autoindex_format json; } }",
        "listing_format = \"nginx-json\"",
    ),
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
    (
        "server { location / { proxy_pass http://10.0.0.1; proxy_set_header X-Request-ID $request_id; } }",
        "X-Request-ID = \"{request_id}\"",
    ),
    (
        "server { location / { return 200 '{\"at\": \"$time_iso8601\", \"host\": \"$host\"}'; } }",
        "template = '{\"at\": \"{time_iso}\", \"host\": \"{host}\"}'",
    ),
    (
        "server { listen 443 ssl; listen 443 quic; http3 on; quic_retry on; ssl_certificate /c; ssl_certificate_key /k; return 204; }",
        "address = \":443\"",
    ),
    ("server { server_name a; return 204; } server { server_name a; return 403; }", "status = 204"),
    ("server { server_name a /srv/a; return 204; }", "status = 204"),
    (
        "server { root /srv; rewrite ^(.*)/$ $1 permanent; }",
        "regex = \"^/(.*)/$\"\nredirect = { to = \"/{1}?{query}\", status = 301 }",
    ),
    ("server { root /srv; rewrite ^(.*/)index$ $1 permanent; }", "regex = \"^/((?:.*/)?)index$\""),
    (
        "server { root /srv; location = /a { return 204; } if ($host != b) { rewrite ^/(.*)$ http://b/$1; } }",
        "redirect = \"http://b/a?{query}\"",
    ),
    ("server { location = / { rewrite ^/(.*)$ app/$1 permanent; } }", "to = \"/app/?{query}\""),
    (
        "server { root /srv; location ~ \\.php$ { rewrite ^/old/(.*)$ /new/$1; } }",
        "regex = \"^/old/(.*)$\"\nwhen = { map = { path_1 = true } }",
    ),
    (
        "server { root /srv; location ~* \\.(css|woff)$ { location ~ \\.woff$ { expires 1d; } } }",
        "when = { map = { path_1 = true } }",
    ),
    (
        "server { root /srv; location / { if (!-e $request_filename) { rewrite ^/u/([a-z]+)$ /index.php?u=$1; } } }",
        "try = [\"{path}\", \"=directory\", \"/index.php?u={1}&{query}\"]",
    ),
    (
        "server { root /srv; location / { try_files $uri @w; } location @w { rewrite ^/m/(.*)$ /m.php?f=$1 last; rewrite ^/(.*)$ /x.php?id=$1 last; } }",
        "regex = \"^/@w/m/(.*)$\"",
    ),
    (
        "server { location ~ ^/u/(.+)/f/ { root /data/$1-x/; } }",
        "root = \"/data\"\ntry = [\"/{1}-x{path}\"",
    ),
    ("server { root /srv; error_page 404 =200 /index.html; }", "\"/index.html\"]"),
    (
        "server { if ($request_uri ~ /\\.(?!ok)) { return 403; } location / { proxy_pass http://10.0.0.1; } }",
        r"/\.(?:$|[^o]|o(?:$|[^k]))",
    ),
    (
        "server { set $origin ''; if ($http_origin ~ ^https://(a|b)$) { set $origin $http_origin; } location / { proxy_pass http://10.0.0.1; add_header Access-Control-Allow-Origin $origin; } }",
        "\"~^https://(a|b)$\" = \"{header.Origin}\"",
    ),
    (
        "server { root /srv; location /index.php { try_files /none @octane; } location @octane { set $suffix ''; if ($uri = /index.php) { set $suffix ?$query_string; } proxy_pass http://10.0.0.1$suffix; } }",
        "path = \"/?{query}\"",
    ),
    (
        "server { location / { proxy_pass http://10.0.0.1; proxy_ignore_headers Set-Cookie; } }",
        "proxy = ",
    ),
    (
        "server { root /srv; if (-f $document_root/closed.html) { return 503; } }",
        "when = { file = \"/srv/closed.html\" }",
    ),
    (
        "server { root /srv; if (-f $document_root/closed.html) { rewrite ^ /closed.html last; } }",
        "when = { map = { path_1 = false }, file = \"/srv/closed.html\" }",
    ),
    (
        "server { root /srv; if (!-d $request_filename) { rewrite ^/(.*)/$ /$1 permanent; } }",
        "when = { not = { directory = \"/srv{path}\" } }",
    ),
    (
        "server { root /srv; location / { if (!-f $request_filename) { rewrite ^/a/(.*)$ /x?a=$1 last; rewrite ^/b/(.*)$ /x?b=$1 last; } } }",
        "rewrite = \"/x?b={1}&{query}\"",
    ),
    (
        "server { location / { proxy_pass http://10.0.0.1; error_page 502 = @b; } location @b { proxy_pass http://10.0.0.2; } }",
        "error_pages = { \"502\" = { to = \"/@b{path}?{query}\", status = \"page\" } }",
    ),
    (
        "server { location / { proxy_pass http://10.0.0.1; error_page 502 @b; } location @b { proxy_pass http://10.0.0.2; } }",
        "strip = \"/@b\"",
    ),
    (
        "server { root /srv; error_page 500 502 =503 /503.html; }",
        "\"502\" = { to = \"/503.html\", status = 503 }",
    ),
    (
        "server { location / { return 404; } location /api/ { proxy_pass http://10.0.0.1; } location /api/shop/ { proxy_pass http://10.0.0.2; } }",
        "path = \"/api/shop\"\nredirect = { to = \"/api/shop/{query}\", status = 301 }",
    ),
    (
        "server { location / { proxy_pass http://10.0.0.1; } location /s { alias /srv/s; expires 1d; } }",
        "redirect = { to = \"/s/{query}\", status = 301 }\nexpires = \"1d\"",
    ),
    (
        "server { root /srv; error_page 404 404.html; error_page 502 = wait; error_page 503 =307 b/c?d; }",
        "{ \"404\" = { to = \"./404.html\", status = 302 }, \"502\" = { to = \"./wait\", status = 302 }, \"503\" = { to = \"./b/c?d\", status = 307 } }",
    ),
    (
        "server { root /srv; error_page 401 https://a.test/login; }",
        "error_pages = { \"401\" = \"https://a.test/login\" }",
    ),
    (
        "server { root /srv; error_page 404 /index.php?$query_string; }",
        "\"404\" = \"/index.php?{query}\"",
    ),
    ("server { root /srv; error_page 404 = @none; }", "respond = { status = 500 }"),
    (
        "server { location / { fastcgi_pass unix:/run/a; fastcgi_param HTTP_X_REAL_IP $remote_addr; fastcgi_param KIND $scheme-$http_x_kind; } }",
        "env = { HTTP_X_REAL_IP = \"{client}\", KIND = \"{scheme}-{header.X-Kind}\" }",
    ),
    (
        "server { location / { uwsgi_pass unix:/run/a; add_header Last-Modified $date_gmt; } }",
        "Last-Modified = { value = \"{date}\"",
    ),
    ("server { location ~ ^/a/${B} { return 204; } }", r"^/a/$\{B}"),
    ("server { location ~ ^/x(?<path>/.*)$ { return 301 /y$path; } }", "to = \"/y{path_group}\""),
    (
        "server { set $closed ''; if ($http_x) { set $closed no; } if ($closed = yes) { return 503; } root /srv; }",
        "root = \"/srv\"",
    ),
    (
        "server { location ~ ^/a/ { set $h 10.0.0.1; proxy_pass http://$h/fixed; } }",
        "path = \"/fixed?\"",
    ),
    (
        "server { location ~ ^/a/ { set $h 10.0.0.1; proxy_pass http://$h/deep$request_uri; } }",
        "path = \"/deep{path}?{query}\"",
    ),
    (
        "map $request_uri $rest { ~^/(?<all>.*)$ $all; } server { root /srv; try_files $uri /index.php/$rest; }",
        "\"/index.php{path}?{query}\"",
    ),
    (
        "map $sent_http_content_type $life { default off; text/html epoch; ~image/ max; } server { root /srv; expires $life; }",
        "from = \"{response.Content-Type}\"",
    ),
    (
        "server { location ~ ^/doc(.*)$ { return 301 $scheme://$http_host$1; } }",
        "to = \"//{host}/{1}\"",
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

#[test]
fn a_file_without_a_server_has_nothing_to_lose() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nginx.conf");
    std::fs::write(&file, "events {}\nhttp { sendfile on; }\n").unwrap();
    let converted = crate::nginx(&file, None).unwrap();
    assert!(converted.is_empty);
    assert_eq!(converted.report.losses().count(), 0);
    let findings = converted.report.findings().map(ToString::to_string);
    assert!(findings.into_iter().any(|line| line.contains("it has no server")));
}
