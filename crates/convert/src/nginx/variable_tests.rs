//! Variables: maps, and those that `set` gives values.

use super::tests::{converted, losses, site};

#[test]
fn maps_are_tables_where_a_setting_uses_them() {
    let http = "map $uri $moved { default ''; /old /new; ~^/u/(?<name>\\w+)$ /people/$name; }\n\
        geo $inside { default 0; 10.0.0.0/8 1; }\n\
        map $http_user_agent $bot { ~*bad 1; }\n\
        map $host $unused { a b; }\n\
        server { root /srv/www;\n\
        if ($moved) { return 301 $moved; }\n\
        if ($inside = 0) { return 403; }\n\
        if ($bot) { return 444; } }";
    let converted = converted(http);
    for part in [
        "[map.moved]\nfrom = \"{path}\"\nvalues = { \"*\" = \"\", \"/old\" = \"/new\", '~^/u/(?<name>\\w+)$' = \"/people/{name}\" }",
        "[map.inside]\nfrom = \"{client}\"\nvalues = { \"*\" = \"0\", \"10.0.0.0/8\" = \"1\" }",
        "[map.bot]\nfrom = \"{header.User-Agent}\"\nvalues = { \"~(?i)bad\" = \"1\" }",
        "when = { map = { moved = \"~(?s)^([^0]|..)\" } }\nredirect = { to = \"{map.moved}\", status = 301 }",
        "when = { map = { inside = \"0\" } }\nrespond = { status = 403 }",
        "when = { map = { bot = true } }\nclose = true",
    ] {
        assert!(converted.toml.contains(part), "{part}\n{}", converted.toml);
    }
    assert!(!converted.toml.contains("unused"));
    assert_eq!(converted.report.losses().count(), 0, "{:?}", converted.report);
}

#[test]
fn values_of_maps_stand_in_other_keys() {
    let converted = converted(
        "map $host $backend { default app; b.test 10.0.0.2:3000; }\n\
         upstream app { server 10.0.0.1:3000; }\n\
         map $uri $life { default off; ~\\.css$ 30d; /x epoch; }\n\
         map $host $folder { default one; b.test two; }\n\
         split_clients $remote_addr $variant { 50% a; 50% b; }\n\
         server { root /srv/$folder; expires $life; add_header X-Variant $variant;\n\
         location /app/ { proxy_pass http://$backend; proxy_set_header X-Folder $folder; } }",
    );
    for part in [
        "root = \"/srv/{map.folder}\"",
        "to = \"http://{map.backend_server}\"",
        "X-Folder = \"{map.folder}\"",
        "X-Variant = { value = \"{map.variant}\", status = [\"2xx\", \"3xx\"] }",
        "Cache-Control = \"{map.life_lifetime}\"",
        "values = { \"*\" = \"10.0.0.1:3000\", \"b.test\" = \"10.0.0.2:3000\" }",
        "split = { \"50%\" = \"a\", \"50.0%\" = \"b\" }",
        "'~\\.css$' = \"max-age=2592000\"",
    ] {
        assert!(converted.toml.contains(part), "{part}\n{}", converted.toml);
    }
    assert_eq!(converted.report.losses().count(), 0, "{:?}", converted.report);
}

#[test]
fn conditions_without_a_key_are_maps_of_one_expression() {
    let text = converted(
        "server { root /srv/www; if ($request_uri ~* \"union.*select\") { return 403; }\n\
         if ($host ~ ^[0-9]) { return 444; } if ($uri !~ ^/(a|b)) { return 404; } }",
    )
    .toml;
    for part in [
        "[map.target_1]\nfrom = \"{target}\"\nvalues = { \"~(?i)union.*select\" = \"1\" }",
        "when = { map = { target_1 = true } }\nrespond = { status = 403 }",
        "when = { map = { host_1 = true } }\nclose = true",
        "when = { not = { map = { path_1 = true } } }\nrespond = { status = 404 }",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn texts_have_values_of_requests() {
    let text = site(
        "default_type application/json; add_header X-Q $arg_q;\n\
         location / { return 200 'host $host, ${remote_addr}'; }\n\
         location ~ ^/hello/(?<who>[a-z]+)$ { return 200 \"hello $who\"; }",
    );
    for part in [
        "template = \"host {host}, {client}\"",
        "template = \"hello {who}\"",
        "X-Q = { value = \"{query.q}\", status = [\"2xx\", \"3xx\"] }",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    // A word in braces would be a placeholder.
    assert_eq!(
        losses("server { location / { return 200 '{path} of {\"host\":\"$host\"}'; } }"),
        ["3 return"]
    );
}

#[test]
fn conditions_on_variables_that_conditions_set_are_routes_of_each() {
    let text = "set $block 0; if ($arg_a = 1) { set $block 1; } if ($http_user_agent ~ bot) { set $block 1; }\n\
        if ($block = 1) { return 403; }";
    let converted = converted(&format!("server {{ root /srv/www; {text} }}"));
    for part in [
        "when = { query = { a = \"1\" } }\nrespond = { status = 403 }",
        "when = { header = { User-Agent = \"*bot*\" } }\nrespond = { status = 403 }",
    ] {
        assert!(converted.toml.contains(part), "{part}\n{}", converted.toml);
    }
    assert_eq!(converted.report.losses().count(), 0);
    // One of them ends what another one has set: a map has the last value.
    let text = site(&format!(
        "root /srv/www; {}",
        text.replace("bot) { set $block 1", "bot) { set $block 0")
    ));
    let ended = "when = { map = { map_block_2_1 = true } }\nrespond = { status = 403 }";
    assert!(text.contains(ended), "{text}");
}

#[test]
fn maps_that_are_made_have_names_of_their_own() {
    let converted = converted(
        "map $uri $life { default off; ~css$ 1d; } map $https $hsts { on max-age=1; }\n\
         map $uri $target_1 { /a b; }\n\
         server { root /srv/www; add_header Strict-Transport-Security $hsts;\n\
         if ($request_uri ~ x=1) { return 403; } if ($request_uri ~ x=2) { return 403; } if ($target_1) { return 404; }\n\
         location / { expires $life; } location /b/ { expires $life; add_header Cache-Control public; } }",
    );
    for part in [
        "[map.target_2]",
        "[map.target_3]",
        "[map.https]\nfrom = \"{scheme}\"\nvalues = { https = \"on\" }",
        "values = { on = \"max-age=1\" }",
        "[map.life_lifetime]\nfrom = \"{path}\"\nvalues = { \"~css$\" = \"max-age=86400\" }",
        "[map.life_lifetime_2]\nfrom = \"{path}\"\nvalues = { \"*\" = \"public\", \"~css$\" = \"max-age=86400, public\" }",
    ] {
        assert!(converted.toml.contains(part), "{part}\n{}", converted.toml);
    }
}

#[test]
fn a_variable_chooses_an_upstream() {
    let upstreams = "upstream a { server 10.0.0.1:80; server 10.0.0.2:80; } upstream b { server 10.0.0.3:80; }\n\
        map $arg_x $pool { default a; 1 b; }";
    for (location, parts) in [
        (
            "~ ^/(a|b|c)/ { proxy_pass http://$1; }",
            ["regex = \"^/(a)/\"", "regex = \"^/(b)/\"", "respond = { status = 502 }"],
        ),
        (
            "/ { proxy_pass http://$arg_p; }",
            [
                "when = { query = { p = \"a\" } }",
                "when = { query = { p = \"b\" } }",
                "respond = { status = 502 }",
            ],
        ),
        (
            "/ { proxy_pass http://$pool; }",
            [
                "when = { map = { pool = \"a\" } }",
                "when = { map = { pool = \"b\" } }",
                "to = [\"http://10.0.0.1:80\", \"http://10.0.0.2:80\"]",
            ],
        ),
    ] {
        let made = converted(&format!("{upstreams} server {{ location {location} }}"));
        for part in parts {
            assert!(made.toml.contains(part), "{location}: {part}\n{}", made.toml);
        }
    }
}

#[test]
fn referers_are_a_map() {
    let text = converted(
        "server { server_name a.test; location / { valid_referers blocked server_names *.b.test/x;\n\
         return 200 $invalid_referer; } }",
    )
    .toml;
    for part in [
        "template = \"{map.invalid_referer}\"",
        "\"\" = \"1\"",
        "'~(?i)^https?://a\\.test(?:[:/?#]|$)' = \"\"",
        "'~(?i)^https?://[^/:?#]+\\.b\\.test(?::[0-9]+)?/x' = \"\"",
        "\"~(?i)^https?://\" = \"1\"",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("\"~(?s).\""), "{text}");
}
